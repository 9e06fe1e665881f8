"""The claims that the comparison must bear out, each with its figure."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import Run, Spread, ratios, select, shown, worst_latency
from bench.systems import DRAFT_MODEL, NEXUS, STOCK
from bench.traces import Trace, acceptance

BUSY = {1: 0.32, 2: 0.50, 4: 0.85}
"""Verifier busy time per token, at most this times stock's, by concurrency."""
DISTANCE = {0.5: 2.4, 1.0: 2.0, 2.0: 1.5, 4.0: 1.1}
"""Tokens per second of a request, at least this times stock's, by round trip in steps."""
NATIVE_GAIN, NATIVE_CONCURRENCY = 1.5, 4
NO_SLOWER, NO_LATER = 0.97, 1.05
COUPLED_WITHIN = 0.03


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim. `met` is none when the run did not measure it."""

    claim: str
    wanted: str
    seen: str
    met: bool | None


def judge(runs: Sequence[Run], traces: Sequence[Trace]) -> list[Verdict]:
    """Every claim, in the order of the report."""
    return [
        *_acceptance(traces),
        *(_busy(runs, concurrency, limit) for concurrency, limit in BUSY.items()),
        _native(runs),
        *(_distance(runs, rtt, least) for rtt, least in DISTANCE.items()),
        *_never_slower(runs),
        _invariant(runs),
    ]


def _verdict(claim: str, wanted: str, seen: Spread | None, met: bool) -> Verdict:
    return Verdict(claim, wanted, str(seen) if seen else "not measured", met if seen else None)


def _acceptance(traces: Sequence[Trace]) -> list[Verdict]:
    sampled = acceptance([trace for trace in traces if not trace.greedy])
    seen = f"coupled {sampled.coupled:.3f}, argmax {sampled.argmax:.3f}, 1−TV {sampled.one_minus_tv:.3f}"
    return [
        Verdict("Coupled above argmax drafting", "temperature 0.8", seen, sampled.coupled > sampled.argmax),
        Verdict(
            "Coupled close to the best possible",
            f"≥ 1−TV − {COUPLED_WITHIN}",
            seen,
            sampled.coupled >= sampled.one_minus_tv - COUPLED_WITHIN,
        ),
    ]


def _busy(runs: Sequence[Run], concurrency: int, limit: float) -> Verdict:
    cell = f"c{concurrency}-rtt0.5-t0"
    seen = ratios(runs, "busy_ms", NEXUS, STOCK, cell=cell)
    claim = f"Verifier busy time per token, concurrency {concurrency}"
    return _verdict(claim, f"≤ {limit:.2f} × stock", seen, seen is not None and seen.median <= limit)


def _native(runs: Sequence[Run]) -> Verdict:
    """Both against the stock vLLM beside them: they were not resident at the same time."""
    cell = f"c{NATIVE_CONCURRENCY}-rtt0.5-t0"
    ours = ratios(runs, "tokens_s", NEXUS, STOCK, cell=cell)
    theirs = ratios(runs, "tokens_s", DRAFT_MODEL, STOCK, cell=cell)
    claim = f"Total tokens/s against vLLM's draft-model speculation, concurrency {NATIVE_CONCURRENCY}"
    wanted = f"≥ {NATIVE_GAIN} ×"
    if ours is None or theirs is None:
        return Verdict(claim, wanted, "not measured", None)
    gain = ours.median / theirs.median
    seen = f"{shown(gain)} ({shown(ours.median)} × stock against {shown(theirs.median)} × stock)"
    return Verdict(claim, wanted, seen, gain >= NATIVE_GAIN)


def _distance(runs: Sequence[Run], rtt: float, least: float) -> Verdict:
    seen = ratios(runs, "speed", NEXUS, STOCK, cell=f"c1-rtt{rtt:g}-t0")
    claim = f"Tokens/s of a request, round trip {rtt:g} steps"
    return _verdict(claim, f"≥ {least} × stock", seen, seen is not None and seen.median >= least)


def hard_cells(runs: Sequence[Run]) -> list[str]:
    """Cells where drafts cannot help, in the order of the run."""
    hard = [
        run["cell"]
        for run in select(runs, system=NEXUS)
        if run["acceptance"] == 0 or run["node_kind"] != "good" or run["concurrency"] == 16
    ]
    return list(dict.fromkeys(hard))


def _never_slower(runs: Sequence[Run]) -> list[Verdict]:
    verdicts = []
    for cell in hard_cells(runs):
        seen = ratios(runs, "tokens_s", NEXUS, STOCK, cell=cell)
        met = seen is not None and seen.median >= NO_SLOWER
        verdicts.append(_verdict(f"Never slower: {cell}", f"throughput ≥ {NO_SLOWER} × stock", seen, met))
        worst = worst_latency(runs, cell, NEXUS, STOCK)
        if worst is not None:
            wanted = f"every latency ≤ {NO_LATER} × stock"
            verdicts.append(Verdict(f"Never slower: {cell}", wanted, f"worst {worst:.3f}", worst <= NO_LATER))
    return verdicts


def _invariant(runs: Sequence[Run]) -> Verdict:
    """The nodes compare what the target committed with the recorded answer."""
    nodes = [run["node"] for run in select(runs, system=NEXUS)]
    off, streams = sum(each["off_trace"] for each in nodes), sum(each["streams"] for each in nodes)
    met = off == 0 if streams else None
    return Verdict("Answers are the recorded ones, whoever drafts", "0 others", f"{off} of {streams} others", met)
