"""From single runs to figures: medians with spread over repetitions, and ratios to the stock run beside each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Run = dict[str, Any]
"""One measured run, as compare.py writes it: `cell`, `system`, `repeat`, `phase` and its figures."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the smallest and the largest value."""

    median: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{shown(self.median)} ({shown(self.low)}–{shown(self.high)})"


def shown(value: float) -> str:
    """Three significant digits."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: Iterable[float]) -> Spread | None:
    """None when there is no value."""
    some = sorted(values)
    return Spread(median(some), some[0], some[-1], len(some)) if some else None


def select(runs: Sequence[Run], **fields: Any) -> list[Run]:
    """Runs with these values."""
    return [run for run in runs if all(run.get(name) == value for name, value in fields.items())]


def figure(runs: Sequence[Run], name: str, **fields: Any) -> Spread | None:
    """Spread of one figure over the repetitions that `fields` select; none where it was not measured."""
    return spread(run[name] for run in select(runs, **fields) if run.get(name) is not None)


def partner(runs: Sequence[Run], run: Run, system: str) -> Run | None:
    """The run of another system in the same cell, repetition and phase."""
    found = select(runs, cell=run["cell"], repeat=run["repeat"], phase=run["phase"], system=system)
    return found[0] if found else None


def ratios(runs: Sequence[Run], name: str, system: str, to: str, **fields: Any) -> Spread | None:
    """Spread of `system`'s figure over `to`'s, each pair measured next to each other."""
    values = []
    for run in select(runs, system=system, **fields):
        other = partner(runs, run, to)
        if other is not None and run.get(name) is not None and other.get(name):
            values.append(run[name] / other[name])
    return spread(values)


def worst_latency(runs: Sequence[Run], cell: str, system: str, to: str) -> float | None:
    """The largest ratio of latencies of the same request, its median over the repetitions."""
    found: dict[str, list[float]] = {}
    for run in select(runs, cell=cell, system=system):
        other = partner(runs, run, to)
        theirs = {each["id"]: each["latency_s"] for each in other["requests"]} if other is not None else {}
        for each in run["requests"]:
            if each["id"] in theirs:
                found.setdefault(each["id"], []).append(each["latency_s"] / theirs[each["id"]])
    return max((median(values) for values in found.values()), default=None)


def summed(runs: Sequence[Run], name: str) -> list[int]:
    """Lists of counts added up place by place."""
    total: list[int] = []
    for run in runs:
        counts = run.get(name) or []
        total.extend([0] * (len(counts) - len(total)))
        for place, count in enumerate(counts):
            total[place] += count
    return total
