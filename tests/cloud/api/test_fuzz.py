"""Requests of every kind, right, nearly right and broken: no answer of 5xx, nothing internal, nothing left behind.

The fixture's middleware judges each answer against the published schema and the documented statuses as well.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.bodies import CHAT, COMPLETION, TEXT, nearly, spelled
from support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
CHAT_PATH, COMPLETIONS_PATH = "/v1/chat/completions", "/v1/completions"
INTERNAL = re.compile(
    r"Traceback|File \"|\.py\b|/(?:usr|root|home|opt|work|tmp)/|0x[0-9a-f]{6}|pydantic|msgspec|starlette|fastapi"
    r"|uvicorn|httpx|sqlite|sqlalchemy|vllm|cloud\.api|RecursionError|ValueError|TypeError|KeyError|__\w+__",
    re.IGNORECASE,
)
GAUGES = ("nexus_open_requests", "nexus_open_streams", "nexus_running_requests", "nexus_waiting_requests")
LIMIT_S = 30
USUAL = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
}
BODIES = st.one_of(
    st.tuples(st.just(CHAT_PATH), CHAT | nearly(CHAT)),
    st.tuples(st.just(COMPLETIONS_PATH), COMPLETION | nearly(COMPLETION)),
    st.tuples(st.sampled_from([CHAT_PATH, COMPLETIONS_PATH]), nearly(CHAT) | nearly(COMPLETION)),
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "content-type",
            "accept",
            "accept-encoding",
            "x-client-request-id",
            "idempotency-key",
            "x-stainless-retry-count",
            "content-encoding",
            "expect",
            "user-agent",
            "x-forwarded-for",
            "origin",
            "cookie",
        ]
    ),
    st.sampled_from(["", "text/html", "application/json; charset=utf-16", "multipart/form-data", "gzip", "a" * 8000])
    | st.sampled_from(["100-continue", "*/*", "1", "-1", "9" * 40, "../../x", "a b", "é"])
    | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40).map(str.strip),
    max_size=4,
)


def check(response: Any) -> None:
    """What holds for every answer."""
    assert response.status_code < 500, response.text
    told = response.text
    if response.status_code != 200:
        body = json.loads(told)
        assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
        error = body["error"]
        assert isinstance(error["message"], str) and error["message"] and len(error["message"]) < 1500
        assert isinstance(error["code"], str | None) and isinstance(error["param"], str | None)
        # What the caller wrote may come back, shortened, in quotes.
        own = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "", error["message"])
        assert not INTERNAL.search(own), error
    elif response.headers["content-type"].startswith("text/event-stream"):
        assert told.endswith("data: [DONE]\n\n"), told[-300:]
        assert '"error"' not in told
    else:
        assert json.loads(told)["choices"]


async def check_nothing_is_left(gateway: Any) -> None:
    """Every stream is released, and the gauges are where they began."""

    async def quiet() -> bool:
        lines = (await gateway.http.get("/metrics")).text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if line.startswith(GAUGES))
        # The request for the metrics is open itself.
        return all(float(value) == (name == "nexus_open_requests") for name, value in values.items())

    await until(quiet)
    assert all(handle.released.is_set() for handle in gateway.coordinator.handles.values())
    assert 'status="500"' not in (await gateway.http.get("/metrics")).text
    assert gateway.pool_client().open_streams == 0


@contextlib.asynccontextmanager
async def connected(gateway: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection, cut at the end."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def ignored() -> AsyncIterator[None]:
    """The server may close the connection at any point."""
    with contextlib.suppress(ConnectionError):
        yield


async def structured(gateway: Any, data: tuple[str, Any]) -> None:
    path, body = data
    async with asyncio.timeout(LIMIT_S):
        check(await gateway.http.post(path, content=json.dumps(body).encode("utf-8", "surrogatepass")))


async def raw(gateway: Any, path: str, body: bytes, headers: dict[str, str], *, chunked: bool) -> None:
    async def pieces():
        for at in range(0, len(body), 1000):
            yield body[at : at + 1000]

    sent = [(name, value.encode("latin-1")) for name, value in headers.items()]
    async with asyncio.timeout(LIMIT_S):
        check(await gateway.http.post(path, content=pieces() if chunked else body, headers=sent))


async def leave(gateway: Any, data: tuple[str, Any], after: int, *, whole: bool) -> None:
    """Send a request, or a part of it, take some bytes of the answer, and go."""
    path, body = data
    content = json.dumps(body).encode("utf-8", "surrogatepass")
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: {gateway.key}\r\ncontent-length: {len(content)}\r\n\r\n"
    message = head.encode() + content
    async with connected(gateway) as (reader, writer), ignored():
        writer.write(message if whole else message[: after * len(message) // 600])
        if whole and after:
            async with asyncio.timeout(LIMIT_S):
                await reader.read(after)
        else:
            await asyncio.sleep(0)


@settings(max_examples=150, **USUAL)
@given(data=BODIES)
async def test_bodies_right_and_nearly_right(gateway, data):
    """Wrong types at every place, huge numbers, deep nesting, odd characters, borrowed and missing parts."""
    await structured(gateway, data)


@settings(max_examples=150, **USUAL)
@given(
    path=st.sampled_from([CHAT_PATH, COMPLETIONS_PATH]),
    body=spelled(CHAT) | spelled(COMPLETION),
    headers=HEADERS,
    chunked=st.booleans(),
)
async def test_bytes_and_headers(gateway, path, body, headers, chunked):
    """Broken JSON, keys twice, bytes that are no text, wrong content types, chunked bodies, odd headers."""
    await raw(gateway, path, body, headers, chunked=chunked)


@settings(max_examples=60, **USUAL)
@given(
    data=st.tuples(st.just(CHAT_PATH), CHAT) | st.tuples(st.just(COMPLETIONS_PATH), COMPLETION),
    after=st.integers(0, 600),
    whole=st.booleans(),
)
async def test_callers_who_leave(gateway, data, after, whole):
    """Before, within and after the answer; what was opened for them is closed."""
    await leave(gateway, data, after, whole=whole)
    await check_nothing_is_left(gateway)


@settings(max_examples=60, **USUAL)
@given(
    path=TEXT.map(lambda text: "/v1/" + text.replace("\x00", "")) | TEXT,
    method=st.sampled_from(["GET", "PUT", "DELETE"]),
)
async def test_addresses(gateway, path, method):
    """Whatever stands in the address."""
    from urllib.parse import quote

    async with asyncio.timeout(LIMIT_S):
        response = await gateway.http.request(method, "/" + quote(path.encode("utf-8", "replace"), safe="/?&=%"))
    if response.headers.get("content-type") == "application/json" and response.status_code != 200:
        check(response)
    assert response.status_code < 500


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\nabcde",
        b"BREW /v1/chat/completions HTCPCP/1.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer \xff\xfe\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
async def test_what_is_hardly_http(gateway, head):
    """The server refuses it, and goes on."""
    async with connected(gateway) as (reader, writer), ignored():
        writer.write(head)
        async with asyncio.timeout(LIMIT_S):
            told = await reader.read(100_000)
        if b"/health" not in head:
            assert re.match(rb"HTTP/1\.1 4\d\d", told), told
            told_head, _, body = told.partition(b"\r\n\r\n")
            assert b"content-type: application/json" in told_head and b"x-request-id: req_" in told_head
            assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert (await gateway.http.get("/health")).status_code == 200
    await check_nothing_is_left(gateway)


@pytest.mark.soak
@settings(max_examples=4000, **USUAL)
@given(
    data=BODIES,
    body=spelled(CHAT) | spelled(COMPLETION),
    headers=HEADERS,
    chunked=st.booleans(),
    after=st.integers(0, 600),
)
@pytest.mark.timeout(1800)
async def test_all_of_it_for_longer(gateway, data, body, headers, chunked, after):
    """The same in larger numbers."""
    await structured(gateway, data)
    await raw(gateway, data[0], body, headers, chunked=chunked)
    await leave(gateway, data, after, whole=chunked)
