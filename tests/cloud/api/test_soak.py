"""A gateway process after many requests and callers who left: nothing of them is left in it."""

import asyncio
import contextlib
import random
import re
from typing import Any

import httpx2
import psutil
import pytest
from clients.stack import KEY, MODEL, running
from support.waiting import until

REQUESTS = 1000
AT_ONCE = 40
GAUGES = ("nexus_open_requests", "nexus_running_requests", "nexus_waiting_requests", "nexus_open_streams")
GROWTH_MIB = 24
"""Caches and the allocator's holes; a leak of a request's body and answer alone would be several times that."""
TEXT = "The sea is old and wide. " * 40


def some_request(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Right in nine of ten cases."""
    body: dict[str, Any] = {"model": MODEL, "max_tokens": rng.choice([1, 8, 40, 900]), "seed": rng.randrange(1000)}
    body |= {"stream": rng.random() < 0.6, "n": rng.choice([1, 1, 1, 3])}
    if rng.random() < 0.3:
        body["nexus"] = {"trace": True}
    if rng.random() < 0.1:
        body |= rng.choice([{"temperature": 9}, {"model": "other"}, {"unheard_of": TEXT}, {"n": 0}, {"stop": []}])
    if rng.random() < 0.5:
        return "/v1/completions", body | {"prompt": TEXT + str(rng.random()), "logprobs": rng.choice([None, 2])}
    return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": TEXT + str(rng.random())}]}


async def one(http: httpx2.AsyncClient, rng: random.Random) -> str:
    """Send a request and read the answer, or leave at some point; what came of it."""
    path, body = some_request(rng)
    stay_s = rng.choice([None, None, 0.002, 0.02, 0.2])
    headers = {"idempotency-key": str(rng.random())} if rng.random() < 0.2 else {}
    try:
        async with asyncio.timeout(stay_s), http.stream("POST", path, json=body, headers=headers) as response:
            blocks = [block async for block in response.aiter_bytes()]
    except TimeoutError:
        return "left"
    assert response.status_code < 500, b"".join(blocks)
    if response.headers["content-type"].startswith("text/event-stream"):
        assert b"".join(blocks).endswith(b"data: [DONE]\n\n")
    return str(response.status_code)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_nothing_is_left_of_a_thousand_requests():
    """Gauges are at zero again, connections are closed, and memory is where it was after the first few hundred."""
    rng = random.Random(4)
    with running(played=True) as stack:
        process = psutil.Process(stack.gateway_pid)
        limits = httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        outcomes: dict[str, int] = {}
        async with httpx2.AsyncClient(
            base_url=stack.gateway,
            headers={"authorization": f"Bearer {KEY}"},
            timeout=120,
            limits=limits,
            trust_env=False,
        ) as http:
            turn = asyncio.Semaphore(AT_ONCE)

            async def in_turn() -> None:
                async with turn:
                    outcome = await one(http, rng)
                    outcomes[outcome] = outcomes.get(outcome, 0) + 1

            async def many(count: int) -> float:
                await asyncio.gather(*(in_turn() for _ in range(count)))
                await until(lambda: quiet(stack.gateway))
                return process.memory_info().rss / 2**20

            files = process.num_fds()
            sizes = [await many(REQUESTS // 4) for _ in range(4)]
        assert outcomes["left"] > REQUESTS / 10 and outcomes["200"] > REQUESTS / 4 and outcomes["400"] > REQUESTS / 50
        assert sizes[-1] - sizes[1] < GROWTH_MIB, sizes
        await until(lambda: process.num_fds() <= files + 8)
        assert "Traceback" not in stack.gateway_log.read_text()


async def quiet(gateway: str) -> bool:
    """Whether all gauges of work are at zero, and what was charged is written down."""
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        text = (await http.get(f"{gateway}/metrics")).text
    values = {}
    for name in (*GAUGES, "nexus_unrecorded_charges"):
        with contextlib.suppress(TypeError):
            values[name] = float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])
    assert set(GAUGES) <= set(values), values
    # The request for the metrics is open itself.
    return all(value == (name == "nexus_open_requests") for name, value in values.items())
