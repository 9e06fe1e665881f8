"""The node that replays traces: what it guesses, when it sends it, and that it drafts through the real agent."""

import asyncio
from dataclasses import replace

import pytest

from bench.traced_node import DelayLine, Library, Plan, TracedWorker, TraceEngine, Withheld, degraded, offer, wrong
from bench.traces import Trace, acceptance
from desktop.agent.worker.messages import DraftBlock
from shared.ids import StreamId
from shared.sampling import Sampling
from shared.wire.messages import Advance, Draft, Open

PROMPT = [1, 2, 3]
TOKENS = list(range(10, 30))
GREEDY = Sampling()
SAMPLED = Sampling(temperature=0.8, top_p=0.95)
STREAM = StreamId("s")


def trace(*wrong_at: int, temperature: float = 0.0, seed: int = 7) -> Trace:
    """An answer whose guesses are right except at some positions."""
    guesses = [wrong(token) if place in wrong_at else token for place, token in enumerate(TOKENS)]
    return Trace(
        id="one",
        kind="code",
        prompt="?",
        prompt_tokens=PROMPT,
        temperature=temperature,
        top_p=0.95,
        seed=seed,
        tokens=TOKENS,
        guess=guesses,
        argmax=guesses,
        runner_up=TOKENS,
        margin=[0.5] * len(TOKENS),
        one_minus_tv=[1.0] * len(TOKENS),
        independent=[1.0] * len(TOKENS),
    )


def drafted(engine: TraceEngine, prefix: list[int], count: int) -> list[int | None]:
    engine.start(STREAM, prefix, count, GREEDY, None)
    found = []
    while engine.busy:
        found += [each.token for each in engine.step()]
    return found


def engine(*wrong_at: int) -> TraceEngine:
    return TraceEngine(Library([trace(*wrong_at)]), 1000)


def test_guesses_are_the_recorded_ones_up_to_the_first_wrong_one() -> None:
    """After a wrong guess nothing is right until the engine starts again from the target's own tokens."""
    found = drafted(engine(2), PROMPT, 5)
    assert found[:3] == [10, 11, wrong(12)]
    assert found[3] != 13
    assert found[4] != 14
    assert drafted(engine(2), [*PROMPT, 10, 11, 12], 3) == [13, 14, 15]


def test_a_round_ends_with_the_trace() -> None:
    """Behind the recorded answer there is nothing to say."""
    assert drafted(engine(), [*PROMPT, *TOKENS[:-1]], 5) == [29, None]
    assert drafted(engine(), [9, 9, 9], 5) == [None]


def test_a_prefix_that_left_the_trace_gets_no_right_guess() -> None:
    """The node's own wrong guess, or an answer that is not the recorded one."""
    assert drafted(engine(), [*PROMPT, 10, 99], 2) != [12, 13]


def test_sampled_traces_are_found_by_seed_and_temperature() -> None:
    """Greedy ones whatever the seed."""
    greedy, sampled = trace(), trace(temperature=0.8)
    library = Library([greedy, sampled])
    assert library.find(PROMPT, GREEDY, None) is greedy
    assert library.find([*PROMPT, 10], SAMPLED, 7) is sampled
    assert library.find(PROMPT, SAMPLED, 8) is None
    assert library.find(PROMPT[:2], GREEDY, None) is None


def test_degraded_traces_are_right_about_as_often_as_asked() -> None:
    """Always at the same positions, never at one where the recorded guess was wrong, and without a way round."""
    recorded = [replace(trace(place % 20), id=f"t{place}") for place in range(60)]
    half = degraded(recorded, 0.5)
    assert acceptance(half).coupled == pytest.approx(0.5, abs=0.05)
    assert half == degraded(recorded, 0.5)
    assert acceptance(degraded(recorded, 0.0)).coupled == 0
    assert acceptance(degraded(recorded, 1.0)).coupled == acceptance(recorded).coupled
    for before, after in zip(recorded, half, strict=True):
        better = zip(before.guess, after.guess, before.tokens, strict=True)
        assert all(now != token for old, now, token in better if old != token)
        assert not any(other == token for other, token in zip(after.runner_up, after.tokens, strict=True))


async def test_a_delay_line_keeps_the_order() -> None:
    """Nothing overtakes, whatever the delay."""
    got: list[int] = []
    done = asyncio.Event()

    def deliver(item: int) -> None:
        got.append(item)
        if len(got) == 50:
            done.set()

    line = DelayLine(0.001, deliver)
    for item in range(50):
        line.put(item)
    assert got == []
    await asyncio.wait_for(done.wait(), 10)
    assert got == list(range(50))


def block(pos: int, *tokens: int, epoch: int = 0) -> DraftBlock:
    return DraftBlock(stream="s", epoch=epoch, pos=pos, tokens=tokens)


def test_a_late_node_sends_only_what_was_committed_meanwhile() -> None:
    """Token by token as positions are passed, and nothing of an epoch that is over."""
    held = Withheld()
    assert held.advance("s", 3) == []
    assert held.add(block(3, 10, 11)) == []
    assert held.add(block(5, 12)) == []
    assert held.advance("s", 4) == [block(3, 10)]
    assert held.advance("s", 6) == [block(4, 11), block(5, 12)]
    assert held.add(block(6, 13)) == []
    assert held.add(block(7, 99, epoch=1)) == []
    assert held.advance("s", 9) == [block(7, 99, epoch=1)]


async def replay(plan: Plan, *wrong_at: int, steps: int = 40) -> tuple[TracedWorker, list[int]]:
    """A worker in front of a target that commits one token whenever drafts came, or after a while."""
    one = trace(*wrong_at)
    library = Library([one])
    worker = TracedWorker(TraceEngine(library, 1000), library, plan, offer("f", 1000))
    await worker.start()
    got: list[Draft] = []

    async def read() -> None:
        async for draft in worker.drafts():
            got.append(draft)

    reading = asyncio.create_task(read())
    worker.open(
        Open(stream="s", model="m", fingerprint="f", tokens=tuple(PROMPT), sampling=GREEDY, seed=None, k=4, ahead=8)
    )
    sent = []
    for place in range(10):
        for _ in range(steps):
            await asyncio.sleep(0)
        sent.append(sum(len(draft.tokens) for draft in got))
        worker.advance(Advance(stream="s", epoch=0, pos=len(PROMPT) + place, tokens=(TOKENS[place],)))
    await worker.stop(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return worker, sent


async def test_a_good_node_drafts_ahead() -> None:
    """Its window is full before the target has moved."""
    worker, sent = await replay(Plan(token_s=0.0))
    assert sent[0] == 8
    assert worker.counts.off_trace == worker.counts.unknown == 0
    assert worker.counts.streams == 1


async def test_a_late_node_is_never_in_time() -> None:
    """At each moment it has sent no more than was committed."""
    _, sent = await replay(Plan(token_s=0.0, late=True))
    assert all(count <= committed for committed, count in enumerate(sent))
    assert sent[-1] > 0


async def test_a_silent_node_drafts_and_sends_nothing() -> None:
    """It looks alive."""
    worker, sent = await replay(Plan(token_s=0.0, silent_after=0))
    assert sent[-1] == 0
    assert worker.counts.drafted > 0
    assert not worker.dead.is_set()


async def test_a_dying_node_says_so() -> None:
    """After so many tokens, which were sent."""
    worker, sent = await replay(Plan(token_s=0.0, dies_after=3))
    assert sent[-1] == 3
    assert worker.dead.is_set()


async def test_an_answer_off_its_trace_is_counted_once() -> None:
    """The measurement is void then, and says so."""
    library = Library([trace()])
    worker = TracedWorker(TraceEngine(library, 1000), library, Plan(token_s=0.0), offer("f", 1000))
    await worker.start()
    worker.open(
        Open(stream="s", model="m", fingerprint="f", tokens=tuple(PROMPT), sampling=GREEDY, seed=None, k=4, ahead=8)
    )
    for place, token in enumerate((10, 99, 98)):
        worker.advance(Advance(stream="s", epoch=0, pos=len(PROMPT) + place, tokens=(token,)))
    for _ in range(40):
        await asyncio.sleep(0)
    await worker.stop(0)
    assert worker.counts.off_trace == 1
