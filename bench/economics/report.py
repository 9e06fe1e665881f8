"""docs/economics.md's generated part: every figure of the page, and what the figures say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench import simulate
from bench.economics import inputs
from bench.economics.day import BILLION, Outcome
from bench.economics.drafts import tables
from bench.economics.predictions import (
    COLOCATED_SAVING,
    GROSS_HOUR,
    LOAD_SAVING,
    LOSING_SHARE,
    NET_HOUR,
    SCARCE,
    SPEED_SAVING,
)
from bench.economics.suite import GOAL, Row, beside_with
from bench.economics.verifier import TOKEN_S, Drafting, by_name, fitted, steps

BEGIN, END = "<!-- economics: begin (make economics) -->", "<!-- economics: end -->"
PROMPT_RATIOS = (0.25, 1.0, 5.0)
DRAFT_STEPS_MS = (0.6, 1.2, 2.4, 3.6, 4.8)
LONG = 10
"""Recorded answers that are strung together to one for the comparison with `bench.simulate`."""


@dataclass(frozen=True, slots=True)
class Check:
    """Tokens per second against plain decoding, by the table that a day is computed with, and event by event."""

    streams: int
    rtt_ms: float
    table: float
    simulated: float


def checks() -> list[Check]:
    """Answers are as long as ten recorded ones: at the end of a run of short ones, machines are half empty."""
    verifier, gains, pace_s = by_name("table"), tables()[1], 0.005
    found = [
        *simulate.load(simulate.HERE / "data/traces.jsonl", 0.0),
        *simulate.load(simulate.HERE / "data/traces.jsonl", 0.8),
    ]
    answers = []
    for index, first in enumerate(found):
        parts = [found[(index * 7 + part * 5) % len(found)] for part in range(LONG)]
        tokens = [token for part in parts for token in part.tokens]
        answers.append(
            simulate.Answer(tokens, [guess for part in parts for guess in part.guesses], (), (), first.temperature)
        )
    rows = []
    for streams in (8, 32, 64):
        plain = simulate.World(answers, streams, 3 * streams, verifier.table, None, k=0).run()
        for rtt_ms in (10.0, 20.0, 40.0):
            link = simulate.Link(rtt_ms / 1000, pace_s)
            world = simulate.World(answers, streams, 3 * streams, verifier.table, link, price=1.0).run()
            drafting = Drafting(np.array([rtt_ms / 1000]), np.array([pace_s]), np.array([1.0]))
            ours = steps(verifier, streams, drafting, gains).rate / verifier.plain(streams)
            simulated = world.tokens / world.busy_s * plain.busy_s / plain.tokens
            rows.append(Check(streams, rtt_ms, ours, simulated))
    return rows


def write(page: Path, rows: Sequence[Row], base: Outcome, compared: Sequence[Check]) -> None:
    """Replaces what is between the marks."""
    text = page.read_text() if page.exists() else f"# Economics\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{generated(rows, base, compared)}\n{END}{after}")


def generated(rows: Sequence[Row], base: Outcome, compared: Sequence[Check]) -> str:
    parts = (
        _command(base),
        _goal(rows),
        _loads(rows),
        _speeds(rows),
        _nodes(rows, base),
        _variations(rows),
        _prompts(rows),
        _predicted(rows),
        _checked(compared),
        _sources(),
    )
    return "\n".join(parts)


def _of(rows: Sequence[Row], group: str) -> list[Row]:
    return sorted((row for row in rows if row.group == group), key=lambda row: row.varied)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = "|" + "---|" * len(head)
    return "\n".join(["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)]) + "\n"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def _command(base: Outcome) -> str:
    scenario = base.scenario
    return (
        f"Written by `make economics`, seed {scenario.seed}; all figures are in `economics/figures.json`. The base "
        f"day: {len(base.fleet):,} nodes, two H100 at ${scenario.gpu_hour:g} an hour each for a verifier, "
        f"{scenario.streams:g} streams on it at full load, {scenario.peak:,} streams at the peak, "
        f"${scenario.token_price:g} a million output tokens to the customer.\n"
    )


def _goal(rows: Sequence[Row]) -> str:
    lines = ["## The goal: 35 % less than plain decoding\n"]
    for profile, words in {
        "table": "with the step costs of `bench.simulate`",
        "split": "with context told apart",
        "h200": "on two H200, projected",
    }.items():
        some = _of(rows, f"load {profile}")
        if some:
            lines.append(f"- At equal streams on a verifier, {words}: {_stops(some)}.")
    fast = [row for row in _of(rows, "speed") if row.saving >= GOAL]
    if fast:
        lines.append(
            f"- At equal speed of a stream: held from {min(row.varied for row in fast):g} tokens/s on "
            f"(saving {_percent(min(row.saving for row in fast))} to {_percent(max(row.saving for row in fast))})."
        )
    for load in (8, 32, 64, 128):
        some = _of(rows, f"acceptance {load}")
        if some:
            enough = _crossing([row.varied for row in some], [row.saving for row in some])
            lines.append(f"- With {load} streams on a verifier it needs an acceptance of {enough}.")
    base = next(row for row in rows if row.group == "base")
    lines.append(
        f"- Price at which it stops, for the base day: nodes may get ${base.most_price:.2f} for a million marginal "
        f"tokens; they got ${base.price:.3f}, and a million were worth ${base.value:.2f}."
    )
    short = [row for row in _of(rows, "nodes") if row.varied > 0 and row.saving < GOAL]
    if short:
        lines.append(
            f"- With {max(row.varied for row in short):,.0f} nodes or fewer it stops: every node is needed in many "
            "minutes, and then the price is what a token is worth."
        )
    lines.append(_power(rows, base))
    return "\n".join(lines) + "\n"


def _power(rows: Sequence[Row], base: Row) -> str:
    served = [row for row in rows if row.served_nodes]
    behind = [row for row in served if row.losing_nodes]
    if not behind:
        return f"- Every served node of all {len(served)} days earned more than its electricity."
    worst = max(behind, key=lambda row: row.losing_nodes)
    return (
        f"- More than its electricity: in the base day {base.served_nodes - base.losing_nodes} of {base.served_nodes} "
        f"served nodes; {_percent(base.losing_share)} of their minutes paid less, and the other nodes are "
        f"{100 * base.losses:.2f} ¢ behind, all together: the node whose ask is the price gets what is left when the "
        f"others are full, which may be a single stream. Of all {len(served)} days, "
        f"{len(served) - len(behind)} have no node that ended behind; the most are {worst.losing_nodes} of "
        f"{worst.served_nodes} in «{worst.name}»."
    )


def _stops(rows: Sequence[Row]) -> str:
    held = [row for row in rows if row.saving >= GOAL]
    if not held:
        best = max(rows, key=lambda row: row.saving)
        return f"nowhere; at best {_percent(best.saving)}, at {best.varied:g} streams"
    if len(held) == len(rows):
        least = _percent(min(row.saving for row in rows))
        return f"held at every load up to {rows[-1].varied:g} streams (least {least})"
    return (
        f"held up to {held[-1].varied:g} streams ({_percent(held[-1].saving)}), "
        f"at {_last(rows):.0f} it stops; {_percent(rows[-1].saving)} at {rows[-1].varied:g}"
    )


def _last(rows: Sequence[Row]) -> float:
    """The load at which the goal is missed from then on, between two that were run."""
    for left, right in reversed(list(pairwise(rows))):
        if left.saving >= GOAL > right.saving:
            part = (left.saving - GOAL) / (left.saving - right.saving)
            return float(left.varied * (right.varied / left.varied) ** part)
    return rows[0].varied


def _crossing(xs: Sequence[float], ys: Sequence[float]) -> str:
    for left, right in zip(range(len(xs)), range(1, len(xs)), strict=False):
        if ys[left] < GOAL <= ys[right]:
            part = (GOAL - ys[left]) / (ys[right] - ys[left])
            return f"{xs[left] + part * (xs[right] - xs[left]):.2f}"
    return f"{xs[0]:g} or less" if ys and ys[0] >= GOAL else f"more than {xs[-1]:g}"


def _loads(rows: Sequence[Row]) -> str:
    parts = [
        "## Cost by load\n",
        "Dollars for a million output tokens at equal output. Streams: open on a verifier at full load. Beside: the "
        "draft model on the verifier's own GPUs. Worth: a million marginal tokens, by the product's formula; the price "
        "is never above it.\n",
    ]
    head = (
        "step costs, streams, plain, lookup, beside, Nexus, of it nodes, saving, against beside, price, worth, tokens/s"
    )
    lines = []
    for profile in ("table", "split", "h200", "cpu"):
        for row in _of(rows, f"load {profile}"):
            lines.append(
                (
                    profile,
                    f"{row.varied:g}",
                    *(f"{cost:.3g}" for cost in (row.plain, row.lookup, row.colocated, row.nexus, row.to_nodes)),
                    _percent(row.saving),
                    _percent(row.saving_colocated),
                    f"{row.price:.3f}",
                    f"{row.value:.2f}",
                    f"{row.speed_plain:.3g} → {row.speed:.3g}",
                )
            )
    parts += [_table(head.split(", "), lines), "![cost by load](economics/cost.png)\n", _beside(rows)]
    return "\n".join(parts)


def _beside(rows: Sequence[Row]) -> str:
    lines = [
        (f"{row.varied:g}", f"{row.nexus:.3f}", *(f"{beside_with(row.varied, ms / 1000):.3f}" for ms in DRAFT_STEPS_MS))
        for row in _of(rows, "load table")
    ]
    return (
        "How dear a draft model on the verifier is depends on its step; above it is "
        f"{1000 * inputs.COLOCATED_PART * float(by_name('table').step_s(1)):.1f} ms.\n\n"
        + _table(("streams", "Nexus", *(f"beside, {ms:g} ms" for ms in DRAFT_STEPS_MS)), lines)
    )


def _speeds(rows: Sequence[Row]) -> str:
    some = _of(rows, "speed")
    if not some:
        return ""
    lines = [
        (row.name, *(f"{cost:.3f}" for cost in (row.plain, row.nexus, row.to_nodes)), _percent(row.saving))
        for row in some
    ]
    return (
        "## Cost at equal speed\n\nWho promises a stream so many tokens a second puts as many streams on a verifier as "
        f"that allows, at most {inputs.MOST_STREAMS}, which its memory holds. Faster streams can be more.\n\n"
        + _table(("promise", "plain", "Nexus", "of it nodes", "saving"), lines)
    )


def _nodes(rows: Sequence[Row], base: Outcome) -> str:
    row = next(each for each in rows if each.group == "base")
    hours, power = base.nexus.served_min / 60, base.electricity() / BILLION
    earned = base.nexus.earned / BILLION
    lines = []
    for index, card in enumerate(inputs.CARDS):
        chosen = (base.fleet.card == index) & (hours > 0)
        if chosen.any():
            gross, net = base.hourly(chosen)
            each = np.sort(((earned - power) / np.maximum(hours, 1e-9))[chosen])
            lines.append(
                (
                    card.name,
                    f"{chosen.sum()} of {(base.fleet.card == index).sum()}",
                    f"{hours[chosen].mean():.1f}",
                    f"{1000 * base.fleet.pace_s[chosen].mean():.1f}",
                    f"{base.fleet.watts[chosen].mean():.0f}",
                    f"{100 * gross:.2f}",
                    f"{100 * net:.2f}",
                    f"{100 * each[0]:.2f} … {100 * each[-1]:.2f}",
                )
            )
    waiting = row.waiting_hours * inputs.WAITING_W / inputs.PSU / 1000 * 0.187
    return (
        "## What a node earns\n\nThe base day, for an hour in which the node drafts. Electricity is the whole PC's at "
        "the wall, at the owner's tariff, as if it ran for nothing else.\n\n"
        + _table(
            ("card", "served", "hours", "ms a token", "W", "¢ before", "¢ after", "¢ after, least … most"),
            lines,
        )
        + f"\nAll served nodes: ${row.gross_hour:.3f} before and ${row.net_hour:.3f} after electricity for each of "
        f"{row.served_hours:,.0f} hours, at ${row.price:.3f} for a million marginal tokens. {row.waiting_hours:,.0f} "
        f"hours of nodes that were there were not asked for and not paid; at {inputs.WAITING_W:g} W more than idling "
        f"they cost all owners together ${waiting:.0f}, while ${row.net_hour * row.served_hours:.0f} were earned after "
        "electricity. A rented RTX 4090 costs some $0.34 an hour: nobody can rent cards and draft with them.\n\n"
        "![a day](economics/day.png)\n\n![earnings](economics/earnings.png)\n"
    )


def _variations(rows: Sequence[Row]) -> str:
    head = "varied, plain, Nexus, saving, against beside, price, worth, ¢/h before, ¢/h after, paid less than power"
    groups = (
        *(f"acceptance {load}" for load in (8, 32, 64, 128)),
        *("demand", "nodes", "nodes, half", "token price", "GPU price", "round trip", "tariff"),
        *("streams of a node", "asks", "good share", "rent"),
    )
    lines = [
        (
            row.name,
            f"{row.plain:.3f}",
            f"{row.nexus:.3f}",
            _percent(row.saving),
            _percent(row.saving_colocated),
            f"{row.price:.3f}",
            f"{row.value:.2f}",
            f"{100 * row.gross_hour:.1f}",
            f"{100 * row.net_hour:.1f}",
            f"{_percent(row.losing_share)} of minutes, {row.losing_nodes} of {row.served_nodes} nodes",
        )
        for group in groups
        for row in _of(rows, group)
    ]
    return (
        "## What it depends on\n\nOne thing varied at a time from the base day; intervals of five minutes.\n\n"
        + _table(head.split(", "), lines)
        + "\n![sensitivity](economics/sensitivity.png)\n\n![acceptance](economics/acceptance.png)\n"
    )


def _prompts(rows: Sequence[Row]) -> str:
    """The whole bill: what prompts cost is the same with and without drafts."""
    lines = []
    for row in _of(rows, "load split"):
        verifier = by_name("split")
        second = verifier.hour / 3600
        shares = []
        for ratio in PROMPT_RATIOS:
            prompts = ratio * TOKEN_S * second * 1e6 * inputs.HEADROOM
            shares.append(_percent((row.plain - row.nexus) / (row.plain + prompts)))
        lines.append((f"{row.varied:g}", _percent(row.saving), *shares))
    return (
        "## With prompts counted\n\nAll figures above are of output tokens. Prompts cost the same with and without "
        "drafts, so the saving on the whole bill is smaller, the more so the longer they are (step costs of `split`; "
        "nothing cached).\n\n"
        + _table(
            ("streams", "output only", *(f"{ratio:g} in for 1 out" for ratio in PROMPT_RATIOS)),
            lines,
        )
    )


def _predicted(rows: Sequence[Row]) -> str:
    def of(group: str, varied: float, figure: Callable[[Row], float]) -> str:
        found = [row for row in _of(rows, group) if row.varied == varied]
        return _percent(figure(found[0])) if found else "not run"

    base = next(row for row in rows if row.group == "base")
    scarce = min((row for row in _of(rows, "nodes") if row.varied), key=lambda row: row.varied, default=base)
    lines = [
        *(
            (f"saving at {load} streams", _percent(share), of("load table", load, lambda row: row.saving))
            for load, share in LOAD_SAVING.items()
        ),
        *(
            (
                f"against beside at {load} streams",
                _percent(share),
                of("load table", load, lambda row: row.saving_colocated),
            )
            for load, share in COLOCATED_SAVING.items()
        ),
        *(
            (f"saving at equal speed, {speed} tokens/s", _percent(share), of("speed", speed, lambda row: row.saving))
            for speed, share in SPEED_SAVING.items()
        ),
        ("a node-hour before electricity", f"${GROSS_HOUR[0]:g} to {GROSS_HOUR[1]:g}", f"${base.gross_hour:.3f}"),
        ("after electricity", f"${NET_HOUR[0]:g} to {NET_HOUR[1]:g}", f"${base.net_hour:.3f}"),
        ("minutes paid less than power", _percent(LOSING_SHARE), _percent(base.losing_share)),
        (f"saving with all nodes needed ({scarce.name})", _percent(SCARCE), _percent(scarce.saving)),
    ]
    return (
        "## Predicted, and what came\n\nExpected from what a single verifier gains; written down after the first "
        "exploratory runs.\n\n" + _table(("figure", "predicted", "came"), lines)
    )


def _checked(compared: Sequence[Check]) -> str:
    lines = [
        (f"{check.streams}", f"{check.rtt_ms:g}", f"{check.table:.2f}", f"{check.simulated:.2f}") for check in compared
    ]
    fits = [(words, f"{count}", f"{ms:.1f}", f"{ours:.1f}") for words, count, ms, ours in fitted()]
    return (
        "## How far the models are to be trusted\n\nTokens per second against plain decoding: the table that a day is "
        "computed with, and `bench.simulate`, which plays the product's own policy event by event over the same "
        "guesses (a node needs 5 ms for a token).\n\n"
        + _table(("streams", "round trip, ms", "table", "simulated"), lines)
        + "\nMilliseconds between tokens, 70B FP8 on two H100: published, and by the step costs of `split`.\n\n"
        + _table(("workload", "requests", "published", "split"), fits)
    )


def _sources() -> str:
    lines = [(source.what, source.figure, source.where) for source in inputs.SOURCES]
    return "## Sources\n\n" + _table(("figure", "value", "where"), lines)
