"""Writes the comparison's report: `report.md` and plots beside the JSON of a run.

`python -m bench.report bench/out/compare/results.json` makes them anew, without measuring anything.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import plots
from bench.figures import Run, figure, ratios, select, shown, spread, worst_latency
from bench.judge import judge
from bench.systems import NEXUS, STOCK, SYSTEMS, WORDS
from bench.traces import DATA, Trace, acceptance, load


def write(results: dict[str, Any], traces: Sequence[Trace], out: Path) -> None:
    """Report and plots into `out`. Without matplotlib, the report alone."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        pictures = plots.draw(results["runs"], traces, out)
    except ImportError:
        pictures = []
        print("matplotlib is not installed: no plots", file=sys.stderr)
    (out / "report.md").write_text(markdown(results, traces, pictures))


def markdown(results: dict[str, Any], traces: Sequence[Trace], pictures: Sequence[str] = ()) -> str:
    """The whole report."""
    runs: list[Run] = results["runs"]
    parts = [
        "# Nexus beside stock vLLM",
        _facts(results),
        "## What must hold",
        _verdicts(runs, traces),
        "## Concurrency",
        "Temperature 0, round trip ½ step, acceptance as recorded. Nexus against stock vLLM beside it in the same "
        "repetition.",
        _by_concurrency(runs),
        "## All cells",
        _cells(runs),
        "## What steps took",
        _profile(runs),
        "## The draft model's guesses",
        _guesses(traces),
        *(f"![{name.removesuffix('.png')}]({name})" for name in pictures),
        "## How to read it",
        NOTES,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


NOTES = """\
- Figures are medians over repetitions, with the smallest and the largest in brackets. A ratio is taken within a
  repetition, where both systems ran right after each other, in alternating order.
- *One step* is stock vLLM's median time between two tokens of a single request, measured at the start of the run.
  Round trips and the node's speed are given in steps, since what matters is their relation.
- *Tokens/s* counts from the first request sent to the last text received; *speed* is one request's tokens per second
  after its first token. Requests stream, and times are the client's.
- *Busy* is the time in which the verifier works, per output token, without steps that compute a prompt. Stock vLLM
  works whenever it has a request, so there it is the wall time of decoding. For Nexus it is the sum of the durations of
  its engine steps, plus for each step what the engine spends between two steps (given above), without the time that
  it waits for drafts.
- *CPU* is the CPU time of the engine's processes per token. Threads that spin for work count as busy, so that it
  overstates what a waiting engine needs; it is here as a check that needs no cooperation of the engine.
- The draft model is not run: nodes replay what it was recorded to guess (bench/traces.py), so that both cores are the
  verifier's. In vLLM's own draft-model speculation the draft model runs on the verifier's cores. It is measured at
  temperature 0 only, because vLLM 0.32 on a CPU samples wrongly when drafts are present.
- A cell's name says requests at once, round trip in steps, temperature, and what is unusual: `acc50` right at half of
  all positions, `late` each guess sent when its position was just committed, `silent` connected but never drafting,
  `dying` its connection ends in the middle of the first answers, `none` no node at all. Late, silent, dying and never
  right nodes are new ones in each repetition; others were met before.
- All prompts are in all systems' prefix caches: a first token takes the time of the rest of a prompt, up to 31 tokens.
- Two cells of one request at a time may share the stock run between them.
- Stock vLLM is asked with `ignore_eos`, and for fewer requests in cells of one request at a time: its speed depends on
  neither. Where Nexus must be no slower, both get the same requests."""


def _facts(results: dict[str, Any]) -> str:
    machine = results["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    repeats = 1 + max((run["repeat"] for run in results["runs"]), default=-1)
    lines = [
        f"- machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; {machine['system']}",
        f"- software: Python {machine['python']}, {packages}",
        "- models: qwen2.5-coder-1.5b verifies, qwen2.5-coder-0.5b drafts (recorded)",
        f"- all engines: `{results['flags']}`, {results.get('engine_cpus', 'all')} of the cores",
        f"- {repeats} repetitions of {results['tokens']} tokens a request, on {machine['date']}",
    ]
    if "step_ms" in results:
        lines.append(f"- one step: {results['step_ms']:.0f} ms")
    if "loop_ms" in results:
        lines.append(f"- Nexus between two steps: {results['loop_ms']:.1f} ms")
    if idle := [run["idle_cpu_share"] for run in results["runs"]]:
        lines.append(f"- CPU share of engines that were not measured: at most {max(idle):.1%} of one core")
    if later := results.get("not_beside_stock"):
        words = " and ".join(WORDS[system] for system in later)
        lines.append(f"- did not fit into memory beside stock vLLM and was measured right after it: {words}")
    for system, why in results.get("failed", {}).items():
        lines.append(f"- **failed**: {WORDS[system]}: `{' '.join(why.split())[-300:]}`")
    lines.append(f"- command: `{results['command']}`")
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _verdicts(runs: Sequence[Run], traces: Sequence[Trace]) -> str:
    words = {True: "met", False: "**not met**", None: "–"}
    return _table(
        ("claim", "wanted", "seen", ""),
        [(each.claim, each.wanted, each.seen, words[each.met]) for each in judge(runs, traces)],
    )


def _by_concurrency(runs: Sequence[Run]) -> str:
    rows = []
    for count in sorted({run["concurrency"] for run in select(runs, axis="concurrency")}):
        for system in SYSTEMS:
            some = select(runs, axis="concurrency", system=system, concurrency=count)
            if system == STOCK:
                some = select(some, phase="nexus") or some
            if not some:
                continue
            cell = some[0]["cell"]
            against = ratios(runs, "tokens_s", system, STOCK, cell=cell) if system != STOCK else None
            rows.append(
                (
                    str(count),
                    WORDS[system],
                    *(str(figure(some, name) or "–") for name in ("tokens_s", "speed", "latency_s", "first_token_s")),
                    str(figure(some, "busy_ms") or "–"),
                    str(against or ""),
                )
            )
    head = ("at once", "system", "tokens/s", "speed", "latency, s", "first token, s", "busy, ms/token", "× stock")
    return _table(head, rows)


def _cells(runs: Sequence[Run]) -> str:
    rows = []
    for cell in dict.fromkeys(run["cell"] for run in select(runs, system=NEXUS)):
        some = select(runs, cell=cell, system=NEXUS)
        drafted, accepted = (sum(run[name] for run in some) for name in ("drafted", "accepted"))
        looked, found = (sum(run[name] for run in some) for name in ("lookup_drafted", "lookup_accepted"))
        worst = worst_latency(runs, cell, NEXUS, STOCK)
        rows.append(
            (
                f"`{cell}`",
                *(str(ratios(runs, name, NEXUS, STOCK, cell=cell) or "–") for name in ("tokens_s", "speed", "busy_ms")),
                str(ratios(runs, "cpu_ms", NEXUS, STOCK, cell=cell) or "–"),
                str(figure([run for run in some if "harness_ms" in run], "harness_ms") or "–"),
                f"{worst:.2f}" if worst is not None else "–",
                str(figure(some, "tokens_per_step") or "–"),
                f"{accepted / drafted:.0%} of {drafted}" if drafted else "–",
                f"{found} of {looked}" if looked else "–",
            )
        )
    head = (
        "cell",
        "tokens/s, × stock",
        "speed, × stock",
        "busy, × stock",
        "CPU, × stock",
        "CPU of client and nodes, ms/token",
        "worst latency, × stock",
        "tokens per step",
        "drafted tokens accepted",
        "of these by lookup",
    )
    return _table(head, rows) if rows else ""


def _profile(runs: Sequence[Run]) -> str:
    """What bounds the gain: a draft pays only as far as a step of more tokens takes no longer."""
    found: dict[int, list[float]] = {}
    for run in select(runs, system=NEXUS):
        for size, times in (run.get("steps") or {}).items():
            found.setdefault(int(size), []).extend(times)
    seen = {size: spread(times) for size, times in sorted(found.items())}
    one = next((each.median for size, each in seen.items() if each and size == 1), None)
    rows = [
        (str(size), str(each.count), str(each), shown(each.median / one) if one else "–")
        for size, each in seen.items()
        if each
    ]
    if not rows:
        return ""
    words = "Steps of Nexus without a prompt, all cells, by the tokens computed: each stream's next, and drafts."
    return words + "\n\n" + _table(("tokens", "steps", "ms", "× one token"), rows)


def _guesses(traces: Sequence[Trace]) -> str:
    rows = []
    for temperature in sorted({trace.temperature for trace in traces}):
        kinds = sorted({trace.kind for trace in traces})
        for kind in (*kinds, "all"):
            seen = acceptance([t for t in traces if t.temperature == temperature and kind in (t.kind, "all")])
            figures = (seen.coupled, seen.argmax, seen.independent, seen.one_minus_tv)
            rows.append((f"{temperature:g}", kind, str(seen.positions), *(f"{value:.3f}" for value in figures)))
    head = ("temperature", "text", "positions", "coupled", "argmax", "independent", "1−TV")
    return "Share of positions at which a guess is the target's token.\n\n" + _table(head, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="results.json of a run")
    parser.add_argument("--traces", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, help="folder for report and plots; default: where the results are")
    options = parser.parse_args()
    write(json.loads(options.results.read_text()), load(options.traces), options.out or options.results.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
