"""The recorded traces: what is committed can be read, and the figures made of it are right."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.traces import Trace, acceptance, load, prompts, save
from shared.wire.limits import TOKEN_ID_END

ONE = Trace(
    id="one",
    kind="code",
    prompt="?",
    prompt_tokens=[1, 2],
    temperature=0.8,
    top_p=0.95,
    seed=7,
    tokens=[10, 11, 12, 13],
    guess=[10, 11, 12, 0],
    argmax=[10, 11, 0, 0],
    runner_up=[1, 1, 1, 13],
    margin=[1.0, 1.0, 0.1, 0.1],
    one_minus_tv=[1.0, 0.9, 0.8, 0.5],
    independent=[0.5, 0.5, 0.25, 0.25],
)


def test_traces_survive_the_file(tmp_path: Path) -> None:
    """One a line."""
    path = tmp_path / "deep" / "traces.jsonl"
    save([ONE, replace(ONE, id="two")], path)
    assert load(path) == [ONE, replace(ONE, id="two")]
    assert len(path.read_text().splitlines()) == 2


def test_acceptance_counts_positions_and_not_answers() -> None:
    """A long answer weighs more than a short one."""
    short = replace(ONE, **{name: getattr(ONE, name)[:1] for name in ONE.__slots__ if name in LISTS})
    seen = acceptance([ONE, short])
    assert seen.positions == 5
    assert (seen.coupled, seen.argmax) == (4 / 5, 3 / 5)
    assert seen.one_minus_tv == pytest.approx(4.2 / 5)
    assert seen.independent == pytest.approx(2.0 / 5)
    assert acceptance([]).positions == 0


LISTS = ("tokens", "guess", "argmax", "runner_up", "margin", "one_minus_tv", "independent")


def test_prompts_are_four_of_each_kind_and_begin_with_those_of_run_py() -> None:
    """bench/run.py sends its own file; the other one only adds to it."""
    found = prompts()
    kinds = [prompt["kind"] for prompt in found]
    assert len(found) == len({prompt["id"] for prompt in found}) == 16
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(kinds, 4)


def test_the_recorded_traces_are_whole() -> None:
    """Every prompt at both temperatures, every list as long as the answer, ids and shares within their bounds."""
    traces = load()
    asked = {prompt["id"]: prompt["prompt"] for prompt in prompts()}
    assert {(trace.id, trace.temperature) for trace in traces} == {(name, t) for name in asked for t in (0.0, 0.8)}
    for trace in traces:
        assert trace.prompt == asked[trace.id]
        assert all(len(getattr(trace, name)) == len(trace.tokens) for name in LISTS)
        for token in (*trace.prompt_tokens, *trace.tokens, *trace.guess, *trace.argmax, *trace.runner_up):
            assert 0 <= token < TOKEN_ID_END
        assert all(0 <= value <= 1.001 for value in (*trace.one_minus_tv, *trace.independent))
        assert all(value >= 0 for value in trace.margin)
        assert not any(first == second for first, second in zip(trace.guess, trace.runner_up, strict=True))


def test_the_recorded_guesses_show_what_coupling_is_for() -> None:
    """More matches than argmax and independent drafting, fewer than the best possible; all alike when greedy."""
    traces = load()
    sampled = acceptance([trace for trace in traces if not trace.greedy])
    assert sampled.independent < sampled.argmax < sampled.coupled
    assert abs(sampled.coupled - sampled.one_minus_tv) < 0.03
    greedy = acceptance([trace for trace in traces if trace.greedy])
    assert greedy.coupled == greedy.argmax
    assert greedy.coupled == pytest.approx(greedy.one_minus_tv, abs=0.002)
