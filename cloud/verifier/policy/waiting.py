"""Whether a step should wait for drafts on their way: only if that brings more tokens per second."""

from collections.abc import Sequence
from dataclasses import dataclass

from cloud.verifier.policy.budget import Step, allocate
from cloud.verifier.policy.cost import StepCost

LOOKS = 8
"""Moments that are compared at most: more streams make them denser, not more."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """One stream's draft: what is there, and what is expected when."""

    now: Sequence[float] = ()
    """Chance of each token that is there."""
    later: Sequence[float] = ()
    """Chance of each token of the draft that is waited for, those that are there already included."""
    have: int = 0
    """How many tokens of that draft are there."""
    first_in: float | None = None
    """Seconds until its next token is expected; none if nothing is to be waited for."""
    spacing: float = 0.0
    """Seconds from each token to the next after that."""
    patience: float = 0.0
    """Seconds that this stream may be made to wait, at most."""

    def at(self, wait: float) -> Sequence[float]:
        """Chances of the draft as it is expected to be after `wait` seconds."""
        if self.first_in is None or wait < self.first_in:
            return self.now
        more = len(self.later) if self.spacing <= 0 else 1 + int((wait - self.first_in) / self.spacing + 1e-9)
        return self.later[: self.have + more]

    def moments(self) -> list[float]:
        """When more tokens are expected, within the patience."""
        if self.first_in is None:
            return []
        arrivals = (self.first_in + count * self.spacing for count in range(len(self.later) - self.have))
        return [moment for moment in arrivals if 0 < moment <= self.patience]


def best_wait(
    streams: Sequence[Outlook], others: int, cost: StepCost, price: float, least_gain: float = 1.0
) -> tuple[float, Step]:
    """How long to wait, in seconds, and the step as it would then be; 0 is now.

    A draft that is not waited for is not lost: the next step uses it, one token shorter. So waiting w for a step that
    commits N tokens in T seconds is worth N - rate * (w + T), with the rate of a step that has every draft: time has
    the price of the best use that could be made of it (marginal value theorem, Charnov 1976).

    Args:
        streams: all that take part in the step.
        others: tokens that the step computes besides; with any, nothing waits.
        cost: seconds by tokens.
        price: what waiting costs, as a multiple of that; 0 waits for everything that the streams' patience allows.
        least_gain: see `allocate`.
    """
    now = allocate([stream.now for stream in streams], others, cost, least_gain)
    moments = sorted({moment for stream in streams for moment in stream.moments()})
    if others or not moments:
        return 0.0, now
    rate = allocate([stream.now if stream.first_in is None else stream.later for stream in streams], others, cost).rate
    best = (now.committed - rate * now.seconds, 0.0, now)
    for moment in _some(moments):
        step = allocate([stream.at(moment) for stream in streams], others, cost, least_gain)
        worth = step.committed - rate * (price * moment + step.seconds)
        if worth > best[0]:
            best = (worth, moment, step)
    return best[1], best[2]


def _some(moments: Sequence[float]) -> Sequence[float]:
    """At most `LOOKS` of them, evenly, the last included."""
    count = len(moments)
    if count <= LOOKS:
        return moments
    return [moments[(look + 1) * count // LOOKS - 1] for look in range(LOOKS)]
