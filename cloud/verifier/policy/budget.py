"""How long each stream's draft is in a step: the slots that bring the most committed tokens per second."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloud.verifier.policy.cost import StepCost


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it could be run."""

    lengths: list[int]
    """Draft tokens of each stream."""
    committed: float
    """Expected tokens that all streams together commit."""
    seconds: float
    """Of the step, without what others need of it."""

    @property
    def rate(self) -> float:
        """Expected tokens per second."""
        return self.committed / self.seconds


def allocate(chances: Sequence[Sequence[float]], others: int, cost: StepCost, least_gain: float = 1.0) -> Step:
    """The step with the highest expected tokens per second.

    Slots are taken in the order of their chances, which within a draft never rise, so the best set of any size is a
    prefix of that order; all sizes are compared, because costs have steps in them.

    Args:
        chances: for each stream, the chance of each of its draft tokens; an empty one decodes plainly.
        others: tokens that the step computes besides: requests without drafts, prefill.
        cost: seconds by tokens.
        least_gain: a draft that promises less than so many times the rate of a step without any is left out. Costs and
            chances are estimates, and where drafts gain next to nothing, their error is all that is left.
    """
    streams, base = len(chances), len(chances) + others
    # What others need is spent in any case: it makes no slot look cheap, only dearer where the machine is full.
    sunk = cost.seconds(base) - cost.seconds(streams) if others and streams else 0.0
    flat = np.fromiter((chance for draft in chances for chance in draft), dtype=np.float64)
    if not flat.size:
        return Step([0] * streams, float(streams), cost.seconds(max(base, 1)) - sunk)
    owner = np.repeat(np.arange(streams), [len(draft) for draft in chances])
    order = np.argsort(-flat, kind="stable")
    committed = streams + np.concatenate(([0.0], np.cumsum(flat[order])))
    seconds = cost.curve(base, len(committed)) - sunk
    rates = committed / seconds
    taken = int(np.argmax(rates))
    if rates[taken] < least_gain * rates[0]:
        taken = 0
    lengths = np.bincount(owner[order[:taken]], minlength=streams)
    return Step(lengths.tolist(), float(committed[taken]), float(seconds[taken]))
