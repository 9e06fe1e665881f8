"""The report's plots, from the results of a run and the traces."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.figures import Run, Spread, figure, ratios, select, summed
from bench.judge import DISTANCE
from bench.systems import DRAFT_MODEL, NEXUS, NGRAM, STOCK, SYSTEMS, WORDS
from bench.traces import Trace

COLOURS = {STOCK: "#5b6770", DRAFT_MODEL: "#c2702d", NGRAM: "#8a6bb1", NEXUS: "#1f7a5c"}
MARKERS = {STOCK: "o", DRAFT_MODEL: "s", NGRAM: "^", NEXUS: "D"}


def draw(runs: Sequence[Run], traces: Sequence[Trace], out: Path) -> list[str]:
    """Writes all plots that the runs have data for; their file names."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    made = []
    for name, plot in {
        "throughput": _throughput,
        "busy": _busy,
        "distance": _distance,
        "latency": _latency,
        "acceptance": _acceptance,
    }.items():
        shape, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
        if plot(axes, runs, traces):
            axes.grid(axis="y", color="#dddddd", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            shape.savefig(out / f"{name}.png", dpi=130)
            made.append(f"{name}.png")
        plt.close(shape)
    return made


def _line(axes: Any, points: dict[float, Spread], system: str, label: str | None = None) -> None:
    places = sorted(points)
    middle = [points[x].median for x in places]
    below = [points[x].median - points[x].low for x in places]
    above = [points[x].high - points[x].median for x in places]
    style = {"color": COLOURS[system], "marker": MARKERS[system], "label": label or WORDS[system]}
    axes.errorbar(places, middle, yerr=[below, above], capsize=3, markersize=5, linewidth=1.6, **style)


def _by_concurrency(runs: Sequence[Run], name: str, system: str) -> dict[float, Spread]:
    cells = {run["concurrency"]: run["cell"] for run in select(runs, axis="concurrency", system=system)}
    # Stock is measured in every part of a run: the one beside Nexus is shown.
    phase = {"phase": "nexus"} if system == STOCK and select(runs, phase="nexus") else {}
    found = {count: figure(runs, name, system=system, cell=cell, **phase) for count, cell in cells.items()}
    return {count: value for count, value in found.items() if value is not None}


def _concurrency_axis(axes: Any, runs: Sequence[Run]) -> None:
    counts = sorted({run["concurrency"] for run in select(runs, axis="concurrency")})
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel("requests at once")


def _throughput(axes: Any, runs: Sequence[Run], traces: Sequence[Trace]) -> bool:
    return _systems(axes, runs, "tokens_s", "tokens per second, all requests", "Throughput")


def _busy(axes: Any, runs: Sequence[Run], traces: Sequence[Trace]) -> bool:
    return _systems(axes, runs, "busy_ms", "milliseconds", "Verifier busy time per output token")


def _systems(axes: Any, runs: Sequence[Run], name: str, unit: str, title: str) -> bool:
    """One figure of every system by concurrency; false if there is nothing to show."""
    lines = {system: _by_concurrency(runs, name, system) for system in SYSTEMS}
    if not any(lines.values()):
        return False
    for system, points in lines.items():
        if points:
            _line(axes, points, system)
    _concurrency_axis(axes, runs)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.set_title(f"{title}: temperature 0, round trip ½ step")
    axes.legend(frameon=False)
    return True


def _distance(axes: Any, runs: Sequence[Run], traces: Sequence[Trace]) -> bool:
    cells = {
        run["rtt"]: run["cell"]
        for run in select(runs, system=NEXUS, concurrency=1, temperature=0.0, acceptance=None, node_kind="good")
    }
    found = {rtt: ratios(runs, "speed", NEXUS, STOCK, cell=cell) for rtt, cell in cells.items()}
    points = {rtt: value for rtt, value in found.items() if value is not None}
    if not points:
        return False
    _line(axes, points, NEXUS)
    axes.plot(list(DISTANCE), list(DISTANCE.values()), color="#b03030", linestyle="--", linewidth=1.2, label="wanted")
    axes.axhline(1.0, color=COLOURS[STOCK], linewidth=1.2, label=WORDS[STOCK])
    axes.set_xlabel("round trip between node and gateway, in verifier steps")
    axes.set_ylabel("tokens per second of a request, times stock")
    axes.set_ylim(bottom=0)
    axes.set_title("Distance: one request at a time, temperature 0")
    axes.legend(frameon=False)
    return True


def _latency(axes: Any, runs: Sequence[Run], traces: Sequence[Trace]) -> bool:
    """Latency of each cell's requests, Nexus against stock."""
    cells = list(dict.fromkeys(run["cell"] for run in select(runs, system=NEXUS)))
    rows = [(cell, ratios_of_latency(runs, cell)) for cell in cells]
    rows = [(cell, values) for cell, values in rows if values]
    if not rows:
        return False
    axes.figure.set_size_inches(7.2, 1.4 + 0.3 * len(rows))
    boxes = axes.boxplot([values for _, values in rows], orientation="horizontal", widths=0.6, patch_artist=True)
    for box in boxes["boxes"]:
        box.set(facecolor="#cfe5dc", edgecolor=COLOURS[NEXUS])
    for middle in boxes["medians"]:
        middle.set(color=COLOURS[NEXUS])
    axes.set_yticks(range(1, len(rows) + 1), [cell for cell, _ in rows])
    axes.invert_yaxis()
    axes.axvline(1.0, color=COLOURS[STOCK], linewidth=1.2)
    axes.axvline(1.05, color="#b03030", linestyle="--", linewidth=1.0)
    axes.set_xlim(0, max(1.15, *(1.05 * max(values) for _, values in rows)))
    axes.set_xlabel("latency of a request, times stock's for the same length (dashed: 1.05)")
    axes.set_title("Latency of whole requests")
    return True


def ratios_of_latency(runs: Sequence[Run], cell: str) -> list[float]:
    """Each Nexus request's latency over stock's median latency in the same repetition."""
    found = []
    for run in select(runs, cell=cell, system=NEXUS):
        beside = select(runs, cell=cell, system=STOCK, repeat=run["repeat"], phase=run["phase"])
        if beside:
            found += [each["latency_s"] / beside[0]["latency_s"] for each in run["requests"]]
    return found


def _acceptance(axes: Any, runs: Sequence[Run], traces: Sequence[Trace]) -> bool:
    """Match rate by position in the answer (traces), and what was accepted by depth of a draft (runs)."""
    if not traces:
        return False
    window = 8
    for name, style in {"greedy": "-", "sampled": "--"}.items():
        some = [trace for trace in traces if trace.greedy == (name == "greedy")]
        series = {"guess": "coupled" if name == "sampled" else "argmax"} | (
            {"argmax": "argmax"} if name == "sampled" else {}
        )
        for what, words in series.items():
            rates = by_position(some, what, window)
            places = [window * place + window / 2 for place in range(len(rates))]
            colour = COLOURS[NEXUS] if what == "guess" else COLOURS[DRAFT_MODEL]
            temperature = "temperature 0" if name == "greedy" else "temperature 0.8"
            axes.plot(places, rates, style, color=colour, linewidth=1.6, label=f"{words}, {temperature}")
    good = list(select(runs, system=NEXUS, node_kind="good", acceptance=None, temperature=0.0))
    drafted, right = summed(good, "depth_drafted"), summed(good, "depth_accepted")
    if drafted:
        inset = axes.inset_axes((0.56, 0.09, 0.42, 0.36))
        shares = [(right[depth] if depth < len(right) else 0) / count for depth, count in enumerate(drafted)]
        inset.bar(range(1, len(shares) + 1), shares, color=COLOURS[NEXUS], width=0.7)
        inset.set_title("accepted, by depth of a draft (in the runs)", fontsize=7)
        inset.tick_params(labelsize=7)
        inset.set_ylim(0, 1)
    axes.set_xlabel(f"position in the answer (means over {window} positions)")
    axes.set_ylabel("share of positions that match")
    axes.set_ylim(0, 1)
    axes.set_title("Acceptance by position: 0.5B guesses, 1.5B decides")
    axes.legend(frameon=False, loc="lower left", fontsize=8)
    return True


def by_position(traces: Sequence[Trace], guesses: str, window: int) -> list[float]:
    """Match rate of each `window` answer positions, over all traces that reach them."""
    right: list[int] = []
    count: list[int] = []
    for trace in traces:
        for position, (guess, token) in enumerate(zip(getattr(trace, guesses), trace.tokens, strict=True)):
            place = position // window
            if place == len(count):
                right.append(0)
                count.append(0)
            right[place] += guess == token
            count[place] += 1
    return [hits / total for hits, total in zip(right, count, strict=True)]
