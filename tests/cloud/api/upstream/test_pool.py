"""Several verifiers: who takes a request, and what happens when one is gone."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import httpx2
import pytest

from cloud.api.upstream.client import VerifierClient
from cloud.api.upstream.pool import FRESH_S, VerifierPool
from shared.errors import ModelNotFound, Unavailable

PATH = "/v1/completions"
DONE = b'data: {"choices":[{"index":0,"text":"x","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Fleet:
    """Verifiers by host name; `models` of a host that is missing cannot be reached."""

    def __init__(self) -> None:
        self.models = {"a": ["m", "only-a"], "b": ["m"]}
        self.down: set[str] = set()
        self.asked: list[str] = []
        self.now = 0.0

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        if host in self.down:
            raise httpx2.ConnectError("refused")
        if request.url.path == "/v1/models":
            return httpx2.Response(200, json={"data": [{"id": m} for m in self.models[host]]})
        self.asked.append(host)
        return httpx2.Response(200, content=DONE)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
async def pool(fleet: Fleet):
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(fleet.answer)) as http:
        clients = [VerifierClient(http, f"http://{host}") for host in ("a", "b")]
        clock: Callable[[], float] = lambda: fleet.now  # noqa: E731
        yield VerifierPool(clients, probe_timeout_s=1, clock=clock)


async def test_least_loaded_takes_the_request(fleet, pool):
    """Open streams are spread."""
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(pool.stream(PATH, {"model": "m"}))
    assert sorted(fleet.asked) == ["a", "a", "b", "b"]


async def test_only_a_verifier_with_the_model_is_asked(fleet, pool):
    """A model that one verifier serves goes there."""
    for _ in range(3):
        async with pool.stream(PATH, {"model": "only-a"}):
            pass
    assert fleet.asked == ["a"] * 3


async def test_a_verifier_that_is_gone_is_passed_over(fleet, pool):
    """The other one takes over at once; when both are gone it is 503; when one is back it is used again."""
    await pool.models()
    fleet.down = {"a"}
    async with pool.stream(PATH, {"model": "m"}):
        pass
    assert fleet.asked == ["b"]
    fleet.down = {"a", "b"}
    with pytest.raises(Unavailable):
        async with pool.stream(PATH, {"model": "m"}):
            pass
    fleet.down = set()
    fleet.now += FRESH_S
    assert await pool.reachable() == 2
    async with pool.stream(PATH, {"model": "m"}):
        pass


async def test_a_new_model_is_found_before_the_list_is_old(fleet, pool):
    """An unknown name makes the pool look again, soon but not at every request."""
    await pool.models()
    fleet.models["b"].append("new")
    with pytest.raises(ModelNotFound):
        await pool.find("new")
    fleet.now += 1
    assert (await pool.find("new")).name == "new"


async def test_a_verifier_that_does_not_answer_delays_one_request_only():
    """While one request looks again, the others go by the list that is known."""
    asked, answer = asyncio.Event(), asyncio.Event()
    now = 0.0

    async def respond(request: httpx2.Request) -> httpx2.Response:
        if now:
            asked.set()
            await answer.wait()
        return httpx2.Response(200, json={"data": [{"id": "m"}]})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(respond)) as http:
        pool = VerifierPool([VerifierClient(http, "http://a")], probe_timeout_s=60, clock=lambda: now)
        await pool.models()
        now = FRESH_S
        looking = asyncio.create_task(pool.models())
        await asyncio.wait_for(asked.wait(), 10)
        assert [m.name for m in await asyncio.wait_for(pool.models(), 10)] == ["m"]
        assert not looking.done()
        answer.set()
        assert [m.name for m in await looking] == ["m"]


async def test_open_streams_are_counted_down_on_failure(pool):
    """A stream that is left by an exception counts no more."""
    with pytest.raises(RuntimeError):
        async with pool.stream(PATH, {"model": "m"}):
            raise RuntimeError
    assert [client.open_streams for client in pool._clients] == [0, 0]
