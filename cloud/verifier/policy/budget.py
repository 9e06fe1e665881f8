"""How long each stream's draft is in a step: the slots that bring the most committed tokens per second."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def allocate(chances: Sequence[Sequence[float]], others: int, cost: StepCost) -> Step:
    """The step with the highest expected tokens per second.

    Slots are taken in the order of their chances, which within a draft never rise, so the best set of any size is a
    prefix of that order; all sizes are compared, because costs have steps in them.

    Args:
        chances: for each stream, the chance of each of its draft tokens; an empty one decodes plainly.
        others: tokens that the step computes besides: requests without drafts, prefill.
        cost: seconds by tokens.
    """
    streams = len(chances)
    slots = sorted(
        ((chance, stream) for stream, draft in enumerate(chances) for chance in draft), key=lambda slot: -slot[0]
    )
    base = streams + others
    # What others need is spent in any case: it makes no slot look cheap, only dearer where the machine is full.
    sunk = cost.seconds(base) - cost.seconds(streams) if others and streams else 0.0
    committed = float(streams)
    best, taken = Step([], committed, cost.seconds(max(base, 1)) - sunk), 0
    for count, (chance, _) in enumerate(slots, 1):
        committed += chance
        step = Step([], committed, cost.seconds(base + count) - sunk)
        if step.rate > best.rate:
            best, taken = step, count
    lengths = [0] * streams
    for _, stream in slots[:taken]:
        lengths[stream] += 1
    return Step(lengths, best.committed, best.seconds)
