"""The report's plots."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.economics import inputs
from bench.economics.day import BILLION, Outcome
from bench.economics.suite import GOAL, Row

PLAIN, LOOKUP, BESIDE, NEXUS, GOALS = "#5b6770", "#8a6bb1", "#c2702d", "#1f7a5c", "#b03030"


def draw(rows: Sequence[Row], base: Outcome, out: Path) -> None:
    """Writes all of them as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for name, size, plot in (
        ("cost", (1, 2), _cost),
        ("day", (3, 1), _day),
        ("earnings", (1, 2), _earnings),
        ("sensitivity", (2, 3), _sensitivity),
        ("acceptance", (1, 1), _acceptance),
    ):
        shape, axes = plt.subplots(
            *size, figsize=(3.4 * size[1] + 2.4, 2.5 * size[0] + 1.5), layout="constrained", squeeze=False
        )
        plot(axes, rows, base)
        for each in axes.flat:
            each.grid(axis="y", color="#dddddd", linewidth=0.7)
            each.set_axisbelow(True)
            each.spines[["top", "right"]].set_visible(False)
        shape.savefig(out / f"{name}.png", dpi=120)
        plt.close(shape)


def _of(rows: Sequence[Row], group: str) -> list[Row]:
    return sorted((row for row in rows if row.group == group), key=lambda row: row.varied)


def _cost(axes: Any, rows: Sequence[Row], base: Outcome) -> None:
    titles = {"table": "step costs as in bench.simulate", "split": "context apart"}
    for place, (profile, words) in enumerate(titles.items()):
        some, axis = _of(rows, f"load {profile}"), axes[0, place]
        loads = [row.varied for row in some]
        axis.plot(loads, [row.plain for row in some], "o-", color=PLAIN, label="plain decoding")
        axis.plot(loads, [row.lookup for row in some], "^-", color=LOOKUP, label="prompt lookup")
        axis.plot(loads, [row.colocated for row in some], "s-", color=BESIDE, label="draft model on the verifier")
        axis.plot(loads, [row.nexus for row in some], "D-", color=NEXUS, label="Nexus, nodes paid")
        axis.plot(loads, [(1 - GOAL) * row.plain for row in some], "--", color=GOALS, label="35 % less than plain")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(loads, [f"{load:g}" for load in loads])
        axis.set_yticks((0.3, 0.5, 1, 2, 5), ("0.3", "0.5", "1", "2", "5"))
        axis.minorticks_off()
        axis.set_xlabel("streams on a verifier at full load")
        axis.set_title(f"Two H100, 70B FP8: {words}", fontsize=10)
    axes[0, 0].set_ylabel("dollars for a million output tokens")
    axes[0, 0].legend(frameon=False, fontsize=8)


def _day(axes: Any, rows: Sequence[Row], base: Outcome) -> None:
    plain, nexus = base.plain.minute, base.nexus.minute
    hours = np.arange(len(plain["rate"])) * base.scenario.minutes / 60
    machines, nodes, price = axes[:, 0]
    machines.plot(hours, plain["machines"], color=PLAIN, label="verifiers, plain")
    machines.plot(hours, nexus["machines"], color=NEXUS, label="verifiers, Nexus")
    machines.set_title("A day: verifiers rented by the hour", fontsize=10)
    nodes.plot(hours, nexus["online"], color=PLAIN, label="nodes that are there")
    nodes.plot(hours, nexus["served"], color=NEXUS, label="nodes that draft")
    nodes.set_title("Nodes", fontsize=10)
    price.plot(hours, nexus["value"], color=GOALS, label="what a token is worth")
    price.plot(hours, nexus["price"], color=NEXUS, label="price of the minute")
    price.set_yscale("log")
    price.set_title("Dollars for a million marginal tokens", fontsize=10)
    price.set_xlabel("hour of the day")
    for axis in (machines, nodes, price):
        axis.set_xlim(0, 24)
        axis.set_xticks(range(0, 25, 3))
        axis.legend(frameon=False, fontsize=8)
    machines.set_ylim(bottom=0)
    nodes.set_ylim(bottom=0)


def _earnings(axes: Any, rows: Sequence[Row], base: Outcome) -> None:
    hours = base.nexus.served_min / 60
    gross, power = base.nexus.earned / BILLION, base.electricity() / BILLION
    before, after = [], []
    for index in range(len(inputs.CARDS)):
        chosen = (base.fleet.card == index) & (hours >= 1)
        before.append((gross[chosen] / hours[chosen] * 100).tolist())
        after.append(((gross - power)[chosen] / hours[chosen] * 100).tolist())
    names = [f"{card.name}\n({len(these)})" for card, these in zip(inputs.CARDS, before, strict=True)]
    for axis, values, words in zip(axes[0], (before, after), ("before", "after"), strict=True):
        axis.boxplot(values, whis=(0, 100), widths=0.6, patch_artist=True, boxprops={"facecolor": "#cfe5dc"})
        axis.set_xticks(range(1, len(names) + 1), names, fontsize=8)
        axis.set_title(f"{words.capitalize()} electricity", fontsize=10)
        axis.axhline(0, color=GOALS, linewidth=1)
    axes[0, 0].set_ylabel("cents for an hour of drafting (nodes)")
    axes[0, 0].set_ylim(bottom=0)


def _sensitivity(axes: Any, rows: Sequence[Row], base: Outcome) -> None:
    groups = (
        ("acceptance 32", "acceptance of a guess", False),
        ("load table", "streams on a verifier", True),
        ("GPU price", "dollars for a GPU-hour", False),
        ("round trip", "round trips, times", False),
        ("nodes", "nodes", False),
        ("tariff", "electricity tariffs, times", False),
    )
    for axis, (group, words, doubling) in zip(axes.flat, groups, strict=True):
        some = _of(rows, group)
        axis.plot([row.varied for row in some], [100 * row.saving for row in some], "D-", color=NEXUS)
        axis.axhline(100 * GOAL, color=GOALS, linestyle="--", linewidth=1)
        axis.set_xlabel(words, fontsize=9)
        axis.set_ylim(-2, 60)
        if doubling:
            axis.set_xscale("log", base=2)
            axis.set_xticks([row.varied for row in some], [f"{row.varied:g}" for row in some], fontsize=8)
            axis.minorticks_off()
        beside = axis.twinx()
        beside.plot([row.varied for row in some], [100 * row.net_hour for row in some], "o:", color=BESIDE)
        top = max(5.0, *(110 * row.net_hour for row in some))
        beside.set_ylim(-2 * top / 60, top)
        beside.spines[["top"]].set_visible(False)
        beside.tick_params(labelsize=8, colors=BESIDE)
    axes[0, 0].set_ylabel("saving against plain, %")
    axes[1, 0].set_ylabel("saving against plain, %")
    axes[0, 0].figure.suptitle("Green: saving. Dotted, right: cents an hour of drafting after electricity", fontsize=10)


def _acceptance(axes: Any, rows: Sequence[Row], base: Outcome) -> None:
    axis = axes[0, 0]
    for load, colour in ((8, "#0b3d2e"), (32, NEXUS), (64, "#6fb39b"), (128, "#b7d8cc")):
        some = _of(rows, f"acceptance {load}")
        if some:
            xs = [row.varied for row in some]
            axis.plot(xs, [100 * row.saving for row in some], "D-", color=colour, label=f"{load} streams")
    axis.axhline(100 * GOAL, color=GOALS, linestyle="--", linewidth=1, label="goal")
    axis.set_xlabel("chance that a guess is right")
    axis.set_ylabel("saving against plain, %")
    axis.set_title("Acceptance and load", fontsize=10)
    axis.legend(frameon=False, fontsize=8)
