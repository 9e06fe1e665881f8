"""Whether the books agree with themselves: what is compared, and what a difference is called."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cloud.api.ledger.events import EventId
from cloud.api.ledger.places import HOUSE, Place, Sort, sort_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """What the books hold at one moment, in nano-dollars. The mappings of differences hold only what is not zero."""

    events: int
    postings: int
    unbalanced: Mapping[EventId, int] = field(default_factory=dict)
    """Sum of an event's postings."""
    sums: Mapping[Place, int] = field(default_factory=dict)
    """Of all postings to a place."""
    cached: Mapping[Place, int] = field(default_factory=dict)
    held: Mapping[Place, int] = field(default_factory=dict)
    """Of the reservations that are held, by the place that they were moved to."""
    maturing: Mapping[Place, int] = field(default_factory=dict)
    """Earnings that have a day on which they become payable, by their pending place."""
    unsettled: int = 0
    """Settle events without their settlement and the reverse, and settlements whose usage has another cost."""
    overdue: int = 0
    """Reservations whose time is over: the next round of a gateway releases them. No fault."""

    def problems(self) -> list[str]:
        """Every difference in words; none when the books reconcile."""
        found = [f"event {event} sums to {amount}" for event, amount in self.unbalanced.items()]
        if total := sum(self.sums.values()):
            found.append(f"all postings sum to {total}")
        for place in sorted({*self.sums, *self.cached}):
            if (cached := self.cached.get(place, 0)) != (real := self.sums.get(place, 0)):
                found.append(f"{place} is kept as {cached}, but its postings sum to {real}")
        for place in sorted({*self.sums, *self.held, *self.maturing}):
            real, sort = self.sums.get(place, 0), sort_of(place)
            if sort is Sort.RESERVED and real != (held := self.held.get(place, 0)):
                found.append(f"{place} has {real}, but the reservations held sum to {held}")
            if sort is Sort.PENDING and real > (maturing := self.maturing.get(place, 0)):
                found.append(f"{place} has {real}, but only {maturing} has a day on which it becomes payable")
            if real < 0 and sort is not Sort.AVAILABLE and not place.startswith(HOUSE):
                found.append(f"{place} is below zero: {real}")
        if self.unsettled:
            found.append(f"{self.unsettled} settlements do not agree with their events or with the usage")
        return found

    @property
    def owed(self) -> int:
        """What customers have used beyond what they had prepaid."""
        return -sum(amount for place, amount in self.sums.items() if _available(place) and amount < 0)


def _available(place: Place) -> bool:
    return sort_of(place) is Sort.AVAILABLE
