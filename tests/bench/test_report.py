"""From measured runs to figures, verdicts and the report."""

from pathlib import Path
from typing import Any

import pytest

from bench import plots, report
from bench.cells import chosen, default_cells, neighbours
from bench.client import Timing, decode_seconds
from bench.compare import sequence
from bench.figures import Run, figure, ratios, shown, spread, summed, worst_latency
from bench.judge import judge
from bench.plots import by_position
from bench.systems import DRAFT_MODEL, NEXUS, STOCK
from bench.traces import load


def run(system: str, cell: str = "c1-rtt0.5-t0", repeat: int = 0, phase: str = "nexus", **figures: Any) -> Run:
    """A run as compare.py writes it."""
    return {
        "system": system,
        "cell": cell,
        "repeat": repeat,
        "phase": phase,
        "axis": "concurrency",
        "concurrency": 1,
        "rtt": 0.5,
        "temperature": 0.0,
        "acceptance": None,
        "node_kind": "good",
        "requests": [{"id": "one", "tokens": 9, "latency_s": 2.0, "first_token_s": 0.5, "speed": 5.0}],
        "tokens": 9,
        "wall_s": 2.1,
        "tokens_s": 4.0,
        "speed": 5.0,
        "latency_s": 2.0,
        "first_token_s": 0.5,
        "cpu_ms": 300.0,
        "idle_cpu_share": 0.01,
        "busy_ms": 200.0,
        "drafted": 8,
        "accepted": 6,
        "lookup_drafted": 0,
        "lookup_accepted": 0,
        "tokens_per_step": 3.0,
        "steps": {1: [100.0, 120.0, 110.0], 5: [220.0]},
        "depth_drafted": [2, 2, 2, 2],
        "depth_accepted": [2, 2, 1, 1],
        "node": {"streams": 1, "unknown": 0, "off_trace": 0, "drafted": 9, "sent": 9},
        **figures,
    }


def results(*runs: Run) -> dict[str, Any]:
    machine = {"cpu": "x", "cores": 2, "memory_gib": 23, "system": "s", "python": "3", "packages": {"torch": "2"}}
    return {
        "machine": {**machine, "date": "2026-01-01"},
        "command": "compare",
        "tokens": 9,
        "flags": "--x",
        "runs": list(runs),
    }


def test_spreads_are_medians_with_both_ends() -> None:
    """Three significant digits are shown."""
    seen = spread([3.0, 1.0, 2.0])
    assert seen is not None
    assert (seen.median, seen.low, seen.high, seen.count) == (2.0, 1.0, 3.0, 3)
    assert str(seen) == "2.00 (1.00–3.00)"
    assert [shown(value) for value in (0.123, 12.34, 123.4)] == ["0.12", "12.3", "123"]
    assert spread([]) is None


def test_ratios_are_taken_between_neighbours() -> None:
    """A machine that slows down from one repetition to the next slows both: the ratio stays."""
    runs = [run(system, repeat=turn, speed=speed / (turn + 1)) for turn in (0, 1) for system, speed in PAIR]
    seen = ratios(runs, "speed", NEXUS, STOCK)
    assert seen is not None
    assert (seen.low, seen.high) == (2.0, 2.0)
    assert ratios([run(NEXUS)], "speed", NEXUS, STOCK) is None
    assert ratios([run(NEXUS), run(STOCK, phase="other")], "speed", NEXUS, STOCK) is None


PAIR = ((STOCK, 5.0), (NEXUS, 10.0))


def test_latency_is_judged_request_by_request() -> None:
    """The worst of them counts, not their median; other requests of the neighbour do not."""

    def requests(**latencies: float) -> list[dict[str, Any]]:
        return [{"id": name, "latency_s": seconds} for name, seconds in latencies.items()]

    runs = [
        run(STOCK, requests=requests(a=1.0, b=2.0)),
        run(NEXUS, requests=requests(a=1.2, b=2.0, c=9.0)),
        run(STOCK, repeat=1, requests=requests(a=1.0, b=2.0)),
        run(NEXUS, repeat=1, requests=requests(a=1.0, b=2.0, c=9.0)),
    ]
    assert worst_latency(runs, "c1-rtt0.5-t0", NEXUS, STOCK) == pytest.approx(1.1)
    assert worst_latency(runs[1:2], "c1-rtt0.5-t0", NEXUS, STOCK) is None


def test_counts_by_depth_are_added_place_by_place() -> None:
    """Lists may differ in length."""
    assert summed([{"n": [1, 2]}, {"n": [1]}, {}], "n") == [2, 2]


def test_decoding_begins_when_all_requests_have_their_first_token() -> None:
    """Tokens before that are not counted either."""
    wave = [Timing("a", 11, 0.0, 1.0, 11.0), Timing("b", 11, 0.0, 6.0, 11.0)]
    seconds, tokens = decode_seconds(wave)
    assert seconds == 5.0
    assert tokens == pytest.approx(5 * 1.0 + 5 * 2.0)


def verdicts(*runs: Run) -> dict[tuple[str, str], bool | None]:
    return {(each.claim, each.wanted): each.met for each in judge(runs, load())}


def test_claims_are_met_not_met_or_not_measured() -> None:
    """Never met by default."""
    busy = ("Verifier busy time per token, concurrency 1", "≤ 0.32 × stock")
    assert verdicts()[busy] is None
    assert verdicts(run(STOCK, busy_ms=100.0), run(NEXUS, busy_ms=31.0))[busy] is True
    assert verdicts(run(STOCK, busy_ms=100.0), run(NEXUS, busy_ms=33.0))[busy] is False


def test_native_speculation_is_compared_by_way_of_stock() -> None:
    """Each was measured beside a stock engine of its own part."""
    cell = "c4-rtt0.5-t0"
    claim = "Total tokens/s against vLLM's draft-model speculation, concurrency 4"
    runs = [
        run(STOCK, cell, tokens_s=4.0),
        run(NEXUS, cell, tokens_s=6.0),
        run(STOCK, cell, phase=DRAFT_MODEL, tokens_s=8.0),
    ]
    slow, fast = (run(DRAFT_MODEL, cell, phase=DRAFT_MODEL, tokens_s=speed) for speed in (7.9, 8.1))
    assert verdicts(*runs)[claim, "≥ 1.5 ×"] is None
    assert verdicts(*runs, slow)[claim, "≥ 1.5 ×"] is True
    assert verdicts(*runs, fast)[claim, "≥ 1.5 ×"] is False


def test_bad_nodes_must_not_slow_anybody_down() -> None:
    """Throughput and each request's latency are claims of their own."""
    cell = "c1-rtt0.5-t0-late"
    slower = [{"id": "one", "tokens": 9, "latency_s": 2.2, "first_token_s": 0.5, "speed": 5.0}]
    seen = verdicts(run(STOCK, cell), run(NEXUS, cell, node_kind="late", tokens_s=3.9, requests=slower))
    assert seen[f"Never slower: {cell}", "throughput ≥ 0.97 × stock"] is True
    assert seen[f"Never slower: {cell}", "every latency ≤ 1.05 × stock"] is False


def test_an_answer_off_its_trace_is_a_claim_not_met() -> None:
    """Drafter invariance is part of the comparison."""
    claim = ("Answers are the recorded ones, whoever drafts", "0 others")
    off = run(NEXUS, node={"streams": 2, "unknown": 0, "off_trace": 1, "drafted": 9, "sent": 9})
    assert verdicts(run(NEXUS))[claim] is True
    assert verdicts(run(NEXUS), off)[claim] is False


def test_the_report_is_written_from_whatever_was_measured(tmp_path: Path) -> None:
    """After a run that was stopped at once, too."""
    report.write(results(), load(), tmp_path)
    assert "not measured" in (tmp_path / "report.md").read_text()
    report.write(results(run(STOCK), run(NEXUS), run(STOCK, repeat=1), run(NEXUS, repeat=1)), load(), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| `c1-rtt0.5-t0` | 1.00 (1.00–1.00) |" in text
    assert "| 5 | 2 | 220 (220–220) | 2.00 |" in text, "what a step of five tokens took beside one of one"
    for name in ("throughput", "busy", "distance", "latency", "acceptance"):
        assert f"![{name}]({name}.png)" in text
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


def test_match_rates_by_position_are_means_over_traces() -> None:
    """A shorter last window counts what is there."""
    greedy = [trace for trace in load() if trace.greedy]
    rates = by_position(greedy, "guess", 8)
    assert len(rates) == -(-max(len(trace.tokens) for trace in greedy) // 8)
    assert all(0 <= rate <= 1 for rate in rates)
    assert by_position(greedy, "tokens", 8) == [1.0] * len(rates)
    assert plots.by_position([], "guess", 8) == []


def test_cells_have_names_of_their_own_and_can_be_chosen() -> None:
    """Each axis differs from the base cell in one thing."""
    cells = default_cells()
    assert len({cell.name for cell in cells}) == len(cells)
    assert len(chosen("all")) == len(cells) > len(chosen("default"))
    assert [cell.name for cell in chosen("c1-rtt0.5-t0, c1-rtt2-t0")] == ["c1-rtt0.5-t0", "c1-rtt2-t0"]
    with pytest.raises(ValueError, match="no cell nonsense"):
        chosen("nonsense")


def test_plans_follow_the_step_that_was_measured() -> None:
    """Round trip and speed of a node are in steps."""
    cell = chosen("c1-rtt2-t0")[0]
    plan = cell.plan(0.5, 32)
    assert plan is not None
    assert (plan.rtt_s, plan.token_s) == (1.0, 0.025)
    dying = chosen("c1-rtt0.5-t0-dying")[0].plan(0.5, 32)
    assert dying is not None
    assert dying.dies_after == 16
    assert chosen("c1-rtt0.5-t0-none")[0].plan(0.5, 32) is None
    assert figure([run(NEXUS)], "speed", system=STOCK) is None


def test_two_cells_share_a_stock_run_only_when_it_is_the_same_for_both() -> None:
    """One request at a time, same temperature, same requests; every cell is in one group."""
    groups = neighbours(default_cells())
    assert [cell for group in groups for cell in group] == default_cells()
    shared = [group for group in groups if len(group) == 2]
    assert shared
    for first, second in shared:
        assert first.concurrency == second.concurrency == 1
        assert (first.temperature, first.stock_prompts) == (second.temperature, second.stock_prompts)


def test_stock_is_always_next_to_what_it_is_compared_with() -> None:
    """In another order in each repetition."""
    first, second = default_cells()[:2]
    assert sequence([first, second], 0) == [second, None, first]
    assert sequence([first, second], 1) == [first, None, second]
    assert sequence([first], 0) == [None, first]
