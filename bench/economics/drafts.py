"""What a draft from afar gains a stream, replayed on recorded guesses: by round trip, pace and length.

A replay of one stream under steps of equal length, in units of a step: guesses arrive one by one, are checked when they
are there, and after a wrong one nothing is there until the node has heard of it and its next guess has come back.
`bench.simulate` plays the same with the product's own code and all streams at once, for any node; this is a table of it
that a day can be computed with, and the report compares the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import traces
from cloud.verifier.drafts.lookup import PromptLookup, agreement

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST = 8
"""Tokens of a draft."""
DISTANCES = np.array([0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0])
"""Round trips, in steps."""
PACES = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0])
"""Times of a draft token, in steps."""
KEPT = 0.95
"""Of the accepted tokens of a replay, what the product gets: it has to learn what a node's guesses are worth. Found by
comparing with `bench.simulate`; the report shows what is left between them."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Positions of all answers, one after another."""

    run: Ints
    """How many guesses from here on are right, at most `MOST` · 8."""
    lookup: Ints
    """How many tokens prompt lookup would have right here, of at most `MOST`."""
    offered: Ints
    """How many tokens prompt lookup would offer here."""

    @property
    def acceptance(self) -> float:
        return float((self.run > 0).mean())


def recorded(path: Path = traces.DATA, acceptance: float | None = None, seed: int = 0) -> Recorded:
    """The traces; with another `acceptance`, guesses drawn by chance are made wrong, or right, until it is reached."""
    right: list[bool] = []
    found: list[int] = []
    offered: list[int] = []
    for trace in traces.load(path):
        right += [guess == token for guess, token in zip(trace.guess, trace.tokens, strict=True)]
        lookup = PromptLookup(trace.prompt_tokens)
        for position, token in enumerate(trace.tokens):
            guess = lookup.guess(MOST)
            offered.append(len(guess))
            found.append(agreement(guess, trace.tokens[position : position + MOST]))
            lookup.extend([token])
    flags = np.array(right)
    if acceptance is not None:
        rng = np.random.default_rng(seed)
        surplus = round((flags.mean() - acceptance) * len(flags))
        changed = rng.choice(np.flatnonzero(flags if surplus > 0 else ~flags), abs(surplus), replace=False)
        flags[changed] = surplus <= 0
    return Recorded(_runs(flags), np.array(found), np.array(offered))


def _runs(flags: NDArray[np.bool_]) -> Ints:
    runs = np.zeros(len(flags), dtype=np.int64)
    length = 0
    for place in range(len(flags) - 1, -1, -1):
        length = min(length + 1, 8 * MOST) if flags[place] else 0
        runs[place] = length
    return runs


@dataclass(frozen=True, slots=True)
class Gains:
    """Per step of one stream, by [length, distance, pace]; of length 0 there is nothing."""

    slots: Floats
    """Draft tokens that are checked."""
    accepted: Floats
    marginal: Floats
    """Accepted beyond what prompt lookup would have had accepted."""

    def at(self, distance: Floats, pace: Floats) -> tuple[Floats, Floats, Floats]:
        """The three figures by [length, node], linear between the points of the table.

        Args:
            distance: round trip of each node in steps; by [length, node] where steps of other lengths take longer.
            pace: the same of a draft token.
        """
        row, right = _place(DISTANCES, distance)
        column, down = _place(PACES, pace)
        weights = (
            ((1 - right) * (1 - down), row, column),
            ((1 - right) * down, row, column + 1),
            (right * (1 - down), row + 1, column),
            (right * down, row + 1, column + 1),
        )
        length = np.arange(MOST + 1)[:, None]

        def between(table: Floats) -> Floats:
            return np.asarray(sum(weight * table[length, r, c] for weight, r, c in weights), dtype=np.float64)

        return between(self.slots), between(self.accepted), between(self.marginal)


def _place(points: Floats, values: Floats) -> tuple[Ints, Floats]:
    bounded = np.clip(values, points[0], points[-1])
    left = np.clip(np.searchsorted(points, bounded, side="right") - 1, 0, len(points) - 2)
    return left, (bounded - points[left]) / (points[left + 1] - points[left])


def gains(of: Recorded) -> Gains:
    """The whole table, all cells side by side."""
    lengths, distances, paces = (
        part.ravel() for part in np.meshgrid(np.arange(MOST + 1, dtype=np.float64), DISTANCES, PACES, indexing="ij")
    )
    end = len(of.run)
    run, lookup = np.append(of.run, 0), np.append(of.lookup, 0)
    cells = len(lengths)
    committed = np.zeros(cells, dtype=np.int64)
    start = np.zeros(cells, dtype=np.int64)  # position where the node's present line of guesses began
    since = distances / 2  # when it began
    sums = np.zeros((4, cells))
    now = 0.0
    while True:
        live = committed < end
        if not live.any():
            break
        at = np.minimum(committed, end)
        there = start + np.maximum(np.floor((now - since - distances / 2) / paces + 1e-9), 0).astype(np.int64)
        checked = np.clip(np.minimum(there - at, lengths.astype(np.int64)), 0, end - 1 - at).clip(0)
        accepted = np.minimum(run[at], checked)
        baseline = np.where(checked > 0, lookup[at], 0)
        now += 1.0
        after = at + accepted + 1
        drafted = start + np.maximum(np.floor((now + distances / 2 - since) / paces + 1e-9), 0).astype(np.int64)
        wrong = start + run[np.minimum(start, end)]
        lost = live & ((wrong < after) | (drafted < after))
        start = np.where(lost, after, start)
        since = np.where(lost, now + distances / 2, since)
        committed = np.where(live, after, committed)
        sums += live * np.array([np.ones(cells), checked, accepted, np.maximum(accepted - baseline, 0)])
    shape = (MOST + 1, len(DISTANCES), len(PACES))
    slots, accepted_, marginal = (row.reshape(shape) for row in sums[1:] / sums[0])
    return Gains(slots, KEPT * accepted_, KEPT * marginal)


def beside(of: Recorded) -> tuple[Floats, Floats]:
    """Slots and accepted tokens a step, by length, of a draft that is always there: a draft model on the same GPUs."""
    return _walk([np.full(len(of.run), length) for length in range(MOST + 1)], of.run)


def looked_up(of: Recorded) -> tuple[Floats, Floats]:
    """The same of prompt lookup, which offers nothing at most positions."""
    return _walk([np.minimum(of.offered, length) for length in range(MOST + 1)], of.lookup)


def _walk(offers: Sequence[Ints], right: Ints) -> tuple[Floats, Floats]:
    slots, accepted = [], []
    for offer in offers:
        at = steps = checked = good = 0
        while at < len(right):
            hits = min(int(offer[at]), int(right[at]))
            steps, checked, good = steps + 1, checked + int(offer[at]), good + hits
            at += hits + 1
        slots.append(checked / steps)
        accepted.append(good / steps)
    return np.array(slots), np.array(accepted)


@lru_cache(maxsize=16)
def tables(acceptance: float | None = None) -> tuple[Recorded, Gains]:
    """Both, once for each acceptance."""
    of = recorded(acceptance=acceptance)
    return of, gains(of)
