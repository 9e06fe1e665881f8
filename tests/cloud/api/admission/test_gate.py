"""Who is let in, who waits, who is sent away."""

import asyncio

import pytest

from cloud.api.admission.gate import DRAINING_RETRY_S, Gate
from cloud.api.admission.settings import GateSettings
from shared.errors import Unavailable


def make(clock=lambda: 0.0, **settings):
    given = {"max_streams": 2, "max_tokens": 100, "queue_requests": 3, "queue_tokens": 1000, "deadline_s": 60.0}
    return Gate(GateSettings(**given | settings), clock=clock)


async def queued(gate, *wishes):
    """Start a request for each (key, streams, tokens); gives their tasks once they have come as far as they can."""
    tasks = [asyncio.create_task(gate.enter(*wish)) for wish in wishes]
    await settled()
    return tasks


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_room_is_used_and_given_back():
    """Requests go in while streams and tokens fit, the next when one leaves."""
    gate = make()
    await gate.enter("a", 1, 50)
    await gate.enter("a", 1, 50)
    [third] = await queued(gate, ("a", 1, 1))
    assert gate.waiting == 1 and not third.done()
    gate.leave(1, 50)
    await third
    assert (gate.streams, gate.tokens, gate.requests, gate.waiting) == (2, 51, 2, 0)


async def test_tokens_bound_too():
    """Tokens in work are bounded like streams, and a large request is not overtaken for ever."""
    gate = make(max_streams=10)
    await gate.enter("a", 1, 60)
    large, small = await queued(gate, ("a", 1, 60), ("a", 1, 10))
    assert not large.done() and not small.done()
    gate.leave(1, 60)
    await asyncio.gather(large, small)


async def test_what_never_fits_goes_alone():
    """A request larger than the whole room is let in when nobody else is in."""
    gate = make()
    await gate.enter("a", 8, 5000)
    [other] = await queued(gate, ("b", 1, 1))
    assert not other.done()
    gate.leave(8, 5000)
    await other


async def test_full_queue():
    """503 with a time that follows from the pace of late; the key with most waiting gives way to others."""
    now = 0.0
    gate = make(lambda: now)
    await gate.enter("a", 2, 100)
    for _ in range(3):
        [following] = await queued(gate, ("a", 2, 100))
        now += 4.0
        gate.leave(2, 100)
        await following
    waiting = await queued(gate, *[("a", 1, 10)] * 3)
    with pytest.raises(Unavailable, match="Too many") as refused:
        await gate.enter("a", 1, 10)
    assert refused.value.retry_after_s == 16
    [light] = await queued(gate, ("b", 1, 5))
    with pytest.raises(Unavailable):
        await waiting[2]
    gate.leave(2, 100)
    await asyncio.gather(waiting[0], light)
    gate.leave(1, 10)
    await waiting[1]
    assert gate.waiting == 0


async def test_quiet_hours_do_not_slow_the_pace():
    """Only while somebody waits does the time between two that leave say anything about the next."""
    now = 0.0
    gate = make(lambda: now, queue_requests=1)
    for quiet_s in (0.0, 8 * 3600.0):
        now += quiet_s
        await gate.enter("a", 2, 100)
        for _ in range(5):
            [following] = await queued(gate, ("a", 2, 100))
            now += 3.0
            gate.leave(2, 100)
            await following
        await queued(gate, ("a", 2, 100))
        with pytest.raises(Unavailable) as refused:
            await gate.enter("a", 2, 100)
        assert refused.value.retry_after_s == 6
        for _ in range(2):
            gate.leave(2, 100)
            await settled()
    assert gate.requests == 0


async def test_tokens_in_the_queue_are_bounded():
    """Also when they are few requests."""
    gate = make(queue_tokens=100)
    await gate.enter("a", 2, 100)
    await queued(gate, ("a", 1, 90))
    with pytest.raises(Unavailable):
        await gate.enter("a", 1, 20)


async def test_deadline():
    """Whoever waits too long is told so, and nothing of it stays."""
    gate = make(deadline_s=0.01)
    await gate.enter("a", 2, 100)
    with pytest.raises(Unavailable, match="No place became free") as refused:
        await gate.enter("a", 1, 1)
    assert refused.value.retry_after_s >= 1 and gate.waiting == 0
    gate.leave(2, 100)
    assert (gate.streams, gate.tokens, gate.requests) == (0, 0, 0)


async def test_callers_who_go_leave_nothing():
    """A cancelled request gives up its place in the queue, and a place that it had just been given."""
    gate = make()
    await gate.enter("a", 2, 100)
    [first, second] = await queued(gate, ("a", 2, 10), ("b", 2, 10))
    gate.leave(2, 100)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await second
    assert (gate.streams, gate.requests, gate.waiting) == (2, 1, 0)
    [third] = await queued(gate, ("a", 2, 10))
    third.cancel()
    await settled()
    gate.leave(2, 10)
    assert (gate.streams, gate.tokens, gate.requests, gate.waiting) == (0, 0, 0, 0)


async def test_drain():
    """Those who are in may finish; those who wait and those who come are sent away with a time."""
    gate = make()
    await gate.idle()
    await gate.enter("a", 2, 100)
    [waiting] = await queued(gate, ("b", 1, 1))
    idle = asyncio.create_task(gate.idle())
    gate.drain()
    for refused in (waiting, asyncio.create_task(gate.enter("c", 1, 1))):
        with pytest.raises(Unavailable, match="shutting down") as error:
            await refused
        assert error.value.retry_after_s == DRAINING_RETRY_S
    assert not idle.done()
    gate.leave(2, 100)
    await idle
