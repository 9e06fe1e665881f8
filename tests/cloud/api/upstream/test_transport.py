"""The transport against a server of bytes on loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest
from support.waiting import until

from cloud.api.upstream import transport as module
from cloud.api.upstream.transport import StreamTransport

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Bytes:
    """A server that reads a request whole and leaves the answer to `answer`; connections are counted."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.connections = 0
        self.requests: list[bytes] = []
        self.ended = asyncio.Event()
        """Set when a client closed a connection."""
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                self.requests.append(head + await reader.readexactly(size))
                if self.answer is None:
                    writer.write(OK)
                else:
                    await self.answer(reader, writer, self.requests[-1])
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.set()
        finally:
            writer.transport.abort()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/path?q=1"


@pytest.fixture
async def server() -> AsyncIterator[Bytes]:
    made = Bytes()
    listening = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()


@asynccontextmanager
async def client(timeout_s: float = 30.0) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=StreamTransport(), timeout=timeout_s, trust_env=False) as http:
        yield http


async def test_requests_go_out_whole_and_connections_are_used_again(server):
    """Method, target, headers and body; the next request takes the same connection."""
    async with client() as http:
        for _ in range(3):
            answer = await http.post(server.url, content=b"body", headers={"x-a": "b"})
            assert (answer.status_code, answer.content) == (200, b"hi")
    assert server.connections == 1 and len(server.requests) == 3
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /path?q=1 HTTP/1.1\r\n") and body == b"body"
    assert b"\r\nx-a: b\r\n" in head + b"\r\n" and b"host: 127.0.0.1:" in head.lower()


async def test_a_kept_connection_that_the_server_closed_is_not_used(server):
    """Nor is one that was kept for too long."""

    async def answer_once(_, writer, __):
        writer.write(OK)
        await writer.drain()
        writer.close()

    server.answer = answer_once
    async with client() as http:
        for _ in range(2):
            assert (await http.get(server.url)).content == b"hi"
            [[kept]] = http._transport._idle.values()
            await until(lambda kept=kept: kept._lost)
    assert server.connections == 2


async def test_a_kept_connection_ends_when_its_time_is_over(server, monkeypatch):
    """It is closed by us, before the server would."""
    monkeypatch.setattr(module, "IDLE_S", 0.01)
    async with client() as http:
        await http.get(server.url)
        await asyncio.wait_for(server.ended.wait(), 10)


async def test_leaving_a_body_closes_its_connection_at_once(server):
    """The server sees it while it still sends."""

    async def answer(reader, writer, _):
        writer.write(CHUNKS + b"5\r\nhello\r\n")
        await reader.readexactly(1)

    server.answer = answer
    async with client() as http:
        async with http.stream("POST", server.url) as response:
            async for block in response.aiter_bytes():
                assert block == b"hello"
                break
        await asyncio.wait_for(server.ended.wait(), 10)


async def test_being_cancelled_before_the_answer_closes_the_connection(server):
    """As when a caller leaves before the first token."""
    asked = asyncio.Event()

    async def answer(reader, _, __):
        asked.set()
        await reader.readexactly(1)

    server.answer = answer
    async with client() as http:
        task = asyncio.create_task(http.post(server.url))
        await asyncio.wait_for(asked.wait(), 10)
        task.cancel()
        await asyncio.wait_for(server.ended.wait(), 10)
        assert (await asyncio.gather(task, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_a_slow_reader_holds_the_server_back(server):
    """No more than a bounded part of the body waits here; all of it comes in the end."""
    total, block = 32 << 20, b"x" * 65536
    sent = 0

    async def answer(_, writer, __):
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            writer.write(block)
            sent += len(block)
            await writer.drain()

    server.answer = answer
    async with client() as http, http.stream("GET", server.url) as response:
        blocks = response.aiter_raw()
        size = len(await anext(blocks))
        for _ in range(200):
            await asyncio.sleep(0)
        assert sent < total, "everything was taken although nobody read it"
        async for each in blocks:
            size += len(each)
    assert size == total


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\n", httpx2.RemoteProtocolError),
        (CHUNKS + b"5\r\nhel", httpx2.RemoteProtocolError),
        (b"nonsense\r\n\r\n", httpx2.RemoteProtocolError),
    ],
)
async def test_what_breaks_off_is_an_error(server, said, error):
    """In the head or in the body, as httpx2's own kind."""

    async def answer(_, writer, __):
        writer.write(said)
        await writer.drain()
        raise ConnectionError

    server.answer = answer
    async with client() as http:
        with pytest.raises(error):
            await http.get(server.url)


async def test_silence_is_a_read_timeout(server):
    """Before the head and within the body."""

    async def answer(reader, writer, request):
        writer.write(CHUNKS + b"2\r\nhi\r\n" if b"x-body" in request else b"")
        await reader.readexactly(1)

    server.answer = answer
    for headers in ({}, {"x-body": "1"}):
        async with client(timeout_s=0.05) as http:
            with pytest.raises(httpx2.ReadTimeout):
                await http.get(server.url, headers=headers)


async def test_nothing_listens():
    """A refused connection is a connection error."""
    async with client() as http:
        with pytest.raises(httpx2.ConnectError):
            await http.get("http://127.0.0.1:1/")


async def test_a_header_cannot_break_out():
    """Line ends in a header's value are refused."""
    request = httpx2.Request("GET", "http://127.0.0.1:1/")
    request.headers._list.append((b"x-a", b"x-a", b"b\r\nx-c: d"))
    with pytest.raises(httpx2.LocalProtocolError):
        await StreamTransport().handle_async_request(request)


async def test_a_connection_that_ended_before_it_was_used(monkeypatch):
    """It is no connection, so that another verifier may be asked; nobody waits for it."""
    ended = asyncio.Event()

    async def end(_, writer):
        writer.transport.abort()

    listening = await asyncio.start_server(end, "127.0.0.1", 0)
    connect, lost = StreamTransport._connect, module._Connection.connection_lost

    def note(self, error):
        lost(self, error)
        ended.set()

    async def connect_late(*given):
        connection = await connect(*given)
        await asyncio.wait_for(ended.wait(), 10)
        return connection

    monkeypatch.setattr(StreamTransport, "_connect", connect_late)
    monkeypatch.setattr(module._Connection, "connection_lost", note)
    async with listening, client(timeout_s=5.0) as http:
        with pytest.raises(httpx2.ConnectError):
            await http.get(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/")
