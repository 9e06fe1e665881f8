"""What every draft engine guarantees; each test runs against each engine."""

import random
from collections.abc import Sequence

import pytest

from desktop.agent.engines.port import Drafted, DraftEngine
from shared.errors import EngineError
from shared.ids import StreamId
from shared.sampling import Sampling

A, B, C = StreamId("s0"), StreamId("s1"), StreamId("s2")
GREEDY = Sampling()


def prompt(seed: int, length: int) -> list[int]:
    chooser = random.Random(seed)
    return [chooser.randrange(100, 900) for _ in range(length)]


def start(engine: DraftEngine, stream: StreamId, tokens: Sequence[int], count: int) -> None:
    engine.start(stream, tokens, count, GREEDY, None)


def run(engine: DraftEngine, limit: int = 1000) -> list[Drafted]:
    """Step until nothing runs."""
    drafted: list[Drafted] = []
    while engine.busy:
        drafted += engine.step()
        limit -= 1
        assert limit, "the engine never finishes"
    return drafted


def draft(engine: DraftEngine, stream: StreamId, tokens: Sequence[int], count: int) -> list[int]:
    start(engine, stream, tokens, count)
    return [item.token for item in run(engine) if item.stream == stream and item.token is not None]


def from_scratch(engine: DraftEngine, tokens: Sequence[int], count: int) -> list[int]:
    """The plain greedy continuation, on a stream that holds nothing."""
    engine.forget(C)
    return draft(engine, C, tokens, count)


def test_a_round_drafts_the_asked_count_at_consecutive_positions(engine: DraftEngine) -> None:
    """Positions begin at the prefix's length; exactly the last token is marked."""
    tokens = prompt(1, 12)
    start(engine, A, tokens, 6)
    assert engine.busy
    items = run(engine)
    assert [item.pos for item in items] == list(range(12, 18))
    assert [item.last for item in items] == [False] * 5 + [True]
    assert all(item.token is not None and 0 <= item.token < engine.vocabulary for item in items)


def test_continuing_agreed_guesses_equals_one_long_round(engine: DraftEngine) -> None:
    """Round after round on the own guesses gives the plain greedy continuation."""
    tokens = prompt(2, 20)
    whole = from_scratch(engine, tokens, 12)
    pieces: list[int] = []
    for count in (1, 4, 2, 5):
        pieces += draft(engine, A, tokens + pieces, count)
    assert pieces == whole


def test_rolling_back_to_a_diverged_prefix_equals_from_scratch(engine: DraftEngine) -> None:
    """Nothing of a rejected suffix shows in what is drafted after it."""
    tokens = prompt(3, 40)
    guessed = draft(engine, A, tokens, 8)
    for agreed in (5, 0, 7):
        diverged = tokens + guessed[:agreed] + [99]
        assert draft(engine, A, diverged, 6) == from_scratch(engine, diverged, 6)
    shorter = tokens[:9]
    assert draft(engine, A, shorter, 4) == from_scratch(engine, shorter, 4)
    assert draft(engine, A, tokens, 8) == guessed


def test_the_same_prefix_again_gives_the_same_draft(engine: DraftEngine) -> None:
    """A prefix that is wholly cached still has its last position computed."""
    for length in (1, 31, 32, 33, 64):
        tokens = prompt(4, length)
        first = draft(engine, A, tokens, 3)
        assert draft(engine, A, tokens, 3) == first
        assert draft(engine, A, [*tokens, first[0]], 2) == first[1:]


def test_streams_drafted_together_do_not_mix(engine: DraftEngine) -> None:
    """Streams that share a prefix, run ahead and restart amid others each get their own continuation."""
    common = prompt(5, 33)
    prompts = {A: [*common, 101], B: [*common, 102], C: prompt(6, 7)}
    expected = {stream: from_scratch(engine, tokens, 8) for stream, tokens in prompts.items()}
    got: dict[StreamId, list[int]] = {stream: [] for stream in prompts}
    for stream, tokens in prompts.items():
        start(engine, stream, tokens, 8)
        for item in engine.step():
            got[item.stream].append(item.token or 0)
    start(engine, B, prompts[B], 8)
    got[B].clear()
    for item in run(engine):
        assert item.pos == len(prompts[item.stream]) + len(got[item.stream])
        got[item.stream].append(item.token or 0)
    assert got == expected


def test_a_step_yields_at_most_one_token_per_stream(engine: DraftEngine) -> None:
    """All running streams move in one step."""
    for stream in (A, B, C):
        start(engine, stream, prompt(7, 5), 4)
    seen = 0
    while engine.busy:
        streams = [item.stream for item in engine.step()]
        assert len(streams) == len(set(streams))
        seen = max(seen, len(streams))
    assert seen == 3


def test_a_stopped_round_yields_nothing_more(engine: DraftEngine) -> None:
    """The other streams go on; the stopped one can start again."""
    tokens = prompt(8, 10)
    whole = from_scratch(engine, tokens, 5)
    start(engine, A, tokens, 20)
    start(engine, B, tokens, 5)
    engine.step()
    engine.stop(A)
    assert {item.stream for item in run(engine)} == {B}
    assert draft(engine, A, tokens, 5) == whole


def test_a_restart_replaces_the_running_round(engine: DraftEngine) -> None:
    """Tokens of the replaced round never come, at positions that both rounds have included."""
    first, second = prompt(9, 10), prompt(10, 10)
    start(engine, A, first, 20)
    engine.step()
    engine.step()
    assert draft(engine, A, second, 5) == from_scratch(engine, second, 5)


def test_forgetting_ends_the_round(engine: DraftEngine) -> None:
    """A forgotten stream is as good as new."""
    tokens = prompt(11, 18)
    start(engine, A, tokens, 5)
    engine.step()
    engine.forget(A)
    assert not engine.busy
    assert engine.step() == []
    assert draft(engine, A, tokens, 5) == from_scratch(engine, tokens, 5)


def test_unknown_streams_are_ignored(engine: DraftEngine) -> None:
    """Stopping and forgetting what is not there is no error."""
    engine.stop(StreamId("nobody"))
    engine.forget(StreamId("nobody"))
    assert not engine.busy
    assert engine.step() == []


def test_a_round_ends_at_the_context_limit(engine: DraftEngine) -> None:
    """Prefix and draft together fill max_model_len and no more."""
    limit = engine.max_model_len
    assert len(draft(engine, A, prompt(12, limit - 3), 20)) == 3
    assert len(draft(engine, A, prompt(12, limit - 1), 20)) == 1


def test_a_prefix_that_fills_the_context_is_refused_in_words(engine: DraftEngine) -> None:
    """The message names the length, the limit and the setting."""
    limit = engine.max_model_len
    for length in (limit, limit + 1):
        with pytest.raises(EngineError, match=rf"{length} tokens.*{limit}.*max_model_len"):
            start(engine, A, prompt(13, length), 4)
    assert not engine.busy


@pytest.mark.parametrize("bad", [-1, "vocabulary"])
def test_an_id_outside_the_vocabulary_is_refused_in_words(engine: DraftEngine, bad: int | str) -> None:
    """And the engine lives on."""
    token = engine.vocabulary if bad == "vocabulary" else int(bad)
    with pytest.raises(EngineError, match=f"Token id {token} is outside"):
        start(engine, A, [100, token, 101], 4)
    assert len(draft(engine, A, [100, 101], 2)) == 2


def test_an_empty_prefix_or_round_is_refused_in_words(engine: DraftEngine) -> None:
    """There is nothing to continue, or nothing to draft."""
    with pytest.raises(EngineError, match="at least one token"):
        start(engine, A, [], 4)
    with pytest.raises(EngineError, match="at least 1"):
        start(engine, A, [100], 0)


def test_one_stream_too_many_is_refused_in_words(engine: DraftEngine) -> None:
    """Only running rounds count, and replacing one needs no further place."""
    streams = [StreamId(f"s{number}") for number in range(engine.max_streams)]
    for stream in streams:
        start(engine, stream, prompt(14, 4), 30)
    with pytest.raises(EngineError, match="max_streams"):
        start(engine, StreamId("s9"), prompt(14, 4), 3)
    start(engine, streams[0], prompt(15, 4), 3)
    engine.stop(streams[1])
    start(engine, StreamId("s9"), prompt(14, 4), 3)
    assert {item.stream for item in run(engine)} == {*streams, StreamId("s9")} - {streams[1]}


SAMPLED = Sampling(temperature=0.8, top_p=0.95)


def sampled(engine: DraftEngine, stream: StreamId, tokens: Sequence[int], count: int, seed: int) -> list[int]:
    engine.start(stream, tokens, count, SAMPLED, seed)
    return [item.token for item in run(engine) if item.stream == stream and item.token is not None]


def test_a_sampled_draft_is_a_function_of_prefix_and_seed(engine: DraftEngine) -> None:
    """In pieces, on another stream, or beside others: the noise belongs to the position, not to the round."""
    tokens = prompt(11, 15)
    whole = sampled(engine, A, tokens, 10, seed=5)
    pieces: list[int] = []
    for count in (3, 1, 6):
        pieces += sampled(engine, B, tokens + pieces, count, seed=5)
    assert pieces == whole
    start(engine, B, prompt(12, 9), 10)
    engine.start(C, prompt(13, 20), 10, SAMPLED, 77)
    assert sampled(engine, A, tokens, 10, seed=5) == whole
    engine.forget(C)


def test_seeds_lead_to_different_drafts_where_the_engine_couples(engine: DraftEngine) -> None:
    """An engine that drafts by argmax whatever the seed is valid too; ours add the noise."""
    tokens = prompt(14, 15)
    drafts = {tuple(sampled(engine, A, tokens, 8, seed=seed)) for seed in range(6)}
    assert len(drafts) == 1 if engine.name == "fake" else len(drafts) >= 4


def ranked(
    engine: DraftEngine, tokens: Sequence[int], count: int, sampling: Sampling = GREEDY, seed: int | None = None
) -> list[Drafted]:
    """A round with runners-up."""
    engine.start(A, tokens, count, sampling, seed, True)
    return run(engine)


@pytest.mark.parametrize(("sampling", "seed"), [(GREEDY, None), (SAMPLED, 5), (Sampling(temperature=0.8), 6)])
def test_runners_up_change_no_token(engine: DraftEngine, sampling: Sampling, seed: int | None) -> None:
    """They are other tokens of the vocabulary, with a margin, and come only when they were asked for."""
    tokens = prompt(16, 20)
    engine.start(A, tokens, 12, sampling, seed)
    plain = run(engine)
    assert all(item.runner_up is None and item.margin is None for item in plain)
    items = ranked(engine, tokens, 12, sampling, seed)
    assert [item[:4] for item in items] == [item[:4] for item in plain]
    told = [item for item in items if item.runner_up is not None]
    assert len(told) >= 6
    for item in told:
        assert item.runner_up is not None and item.margin is not None
        assert 0 <= item.runner_up < engine.vocabulary and item.runner_up != item.token and item.margin >= 0


def test_a_runner_up_is_the_second_best(engine: DraftEngine) -> None:
    """Greedily the second-likeliest token; among the two likeliest, with noise, the one that was not chosen."""
    tokens = prompt(17, 20)
    [best] = ranked(engine, tokens, 1)
    assert best.runner_up is not None
    for seed in range(6):
        [item] = ranked(engine, tokens, 1, Sampling(temperature=1.0, top_k=2), seed)
        assert {item.token, item.runner_up} == {best.token, best.runner_up}


def test_a_runner_up_belongs_to_its_position_not_to_the_round(engine: DraftEngine) -> None:
    """In pieces, after a rollback, and beside a stream without them: position by position the same."""
    tokens = prompt(18, 40)
    whole = ranked(engine, tokens, 8, SAMPLED, 9)
    pieces: list[Drafted] = []
    for count in (3, 5):
        start(engine, B, prompt(19, 12), 6)
        engine.start(C, prompt(20, 12), 6, SAMPLED, 3)
        known = [item.token for item in pieces if item.token is not None]
        pieces += [item for item in ranked(engine, tokens + known, count, SAMPLED, 9) if item.stream == A]
    assert [item.runner_up for item in pieces] == [item.runner_up for item in whole]
    assert [item.margin for item in pieces] == pytest.approx([item.margin for item in whole], abs=1e-3)


def test_a_stream_that_branches_off_another_equals_from_scratch(engine: DraftEngine) -> None:
    """What it takes over of the other's cache, long or short, leaves no trace; nor does it disturb the other."""
    tokens = prompt(21, 60)
    guessed = draft(engine, A, tokens, 8)
    for agreed in (7, 3):
        branch = tokens + guessed[:agreed] + [99]
        engine.forget(B)
        assert draft(engine, B, branch, 6) == from_scratch(engine, branch, 6)
    engine.forget(B)
    branch = [*tokens[:50], 98]
    assert draft(engine, B, branch, 6) == from_scratch(engine, branch, 6)
    assert draft(engine, A, tokens + guessed[:4], 4) == guessed[4:]
