"""Several verifiers: who takes a request, and what happens when one is gone."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import httpx2
import pytest

from cloud.api.upstream.client import VerifierClient
from cloud.api.upstream.pool import FRESH_S, HUNG_S, VerifierPool
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
        made = VerifierPool(clients, probe_timeout_s=1, clock=clock)
        yield made
        await made.close()


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


class Slow:
    """A verifier that may leave its callers waiting until the client gives up."""

    def __init__(self) -> None:
        self.fault: type[httpx2.HTTPError] | None = None
        self.wait: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.now = 0.0

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path != "/v1/models":
            return httpx2.Response(200, content=DONE)
        self.asked.set()
        if self.wait is not None:
            await self.wait.wait()
        if self.fault is not None:
            raise self.fault("as told")
        return httpx2.Response(200, json={"data": [{"id": "m"}]})


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
async def slow_pool(slow: Slow):
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(slow.answer)) as http:
        pool = VerifierPool([VerifierClient(http, "http://a")], probe_timeout_s=60, clock=lambda: slow.now)
        yield pool
        await pool.close()


async def test_a_verifier_that_answers_late_delays_nobody(slow, slow_pool):
    """While the list is fetched anew, requests go by the one that is known."""
    await slow_pool.models()
    slow.now, slow.wait = FRESH_S, asyncio.Event()
    slow.asked.clear()
    for _ in range(3):
        assert [m.name for m in await asyncio.wait_for(slow_pool.models(), 10)] == ["m"]
        await asyncio.wait_for(slow.asked.wait(), 10)
    slow.wait.set()


async def test_a_busy_verifier_is_not_taken_for_dead(slow, slow_pool):
    """It takes the connection and does not answer in time: requests still go there, and health counts it."""
    assert await slow_pool.reachable() == 1
    slow.fault = httpx2.ReadTimeout
    for _ in range(5):
        slow.now += FRESH_S
        assert await slow_pool.reachable() == 1
        async with slow_pool.stream(PATH, {"model": "m"}) as pieces:
            assert [piece async for piece in pieces]


async def test_a_verifier_that_refuses_connections_is_gone_at_once(slow, slow_pool):
    """Nothing listens any more."""
    assert await slow_pool.reachable() == 1
    slow.fault, slow.now = httpx2.ConnectError, FRESH_S
    assert await slow_pool.reachable() == 0
    with pytest.raises(Unavailable):
        await slow_pool.models()


async def test_a_verifier_that_hangs_is_given_up(slow, slow_pool):
    """Nothing at all came from it for two minutes; a stream that goes on is a sign of life."""
    assert await slow_pool.reachable() == 1
    slow.fault = httpx2.ReadTimeout
    for _ in range(3):
        slow.now += HUNG_S * 0.9
        assert await slow_pool.reachable() == 1
        async with slow_pool.stream(PATH, {"model": "m"}) as pieces:
            assert [piece async for piece in pieces]
    slow.now += FRESH_S
    assert await slow_pool.reachable() == 1
    slow.now += HUNG_S
    assert await slow_pool.reachable() == 0


async def test_open_streams_are_counted_down_on_failure(pool):
    """A stream that is left by an exception counts no more."""
    with pytest.raises(RuntimeError):
        async with pool.stream(PATH, {"model": "m"}):
            raise RuntimeError
    assert [client.open_streams for client in pool._clients] == [0, 0]
