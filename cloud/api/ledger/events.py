"""Events of the books: what kinds there are, what each may move, and that it is balanced. Pure.

An event is one balanced set of postings under a key that is used once. It is never changed afterwards: what was
wrong is set right by another event.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NewType

from cloud.api.accounts.money import Nano
from cloud.api.ledger.places import Place, Sort, sort_of
from shared.errors import Conflict, LocalMisuse

EventId = NewType("EventId", str)
Kind = Literal[
    "top_up",
    "reserve",
    "settle",
    "release",
    "mature",
    "payout_asked",
    "payout_sent",
    "payout_failed",
    "adjustment",
]
_ADJUSTED = frozenset({Sort.AVAILABLE, Sort.PENDING, Sort.PAYABLE, Sort.CASH, Sort.ADJUSTMENTS})


@dataclass(frozen=True, slots=True)
class Rule:
    """What an event of a kind may do."""

    takes: frozenset[Sort]
    """Sorts of places that may have a negative posting."""
    gives: frozenset[Sort]
    """Those that may have a positive one."""
    overdraws: frozenset[Sort] = frozenset()
    """Those that it may take below zero; the house's places have no bound."""
    needs_reason: bool = False


def _rule(takes: set[Sort], gives: set[Sort], overdraws: set[Sort] | None = None) -> Rule:
    return Rule(frozenset(takes), frozenset(gives), frozenset(overdraws or ()))


KINDS: Final[Mapping[Kind, Rule]] = {
    "top_up": _rule({Sort.CASH}, {Sort.AVAILABLE}),
    "reserve": _rule({Sort.AVAILABLE}, {Sort.RESERVED}),
    "settle": _rule(
        {Sort.AVAILABLE, Sort.RESERVED, Sort.USE, Sort.REVENUE},
        {Sort.AVAILABLE, Sort.REVENUE, Sort.PENDING},
        overdraws={Sort.AVAILABLE},
    ),
    "release": _rule({Sort.RESERVED}, {Sort.AVAILABLE}),
    "mature": _rule({Sort.PENDING}, {Sort.PAYABLE}),
    "payout_asked": _rule({Sort.PAYABLE}, {Sort.PAYING}),
    "payout_sent": _rule({Sort.PAYING}, {Sort.PAID}),
    "payout_failed": _rule({Sort.PAYING}, {Sort.PAYABLE}),
    "adjustment": Rule(_ADJUSTED, _ADJUSTED, needs_reason=True),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What is to be posted, before the books have taken it."""

    key: str
    """Used once, whoever posts it and however often: `{kind}:{what it is about}`, at most 100 characters."""
    kind: Kind
    postings: Mapping[Place, Nano]
    reason: str = ""
    """At most 500 characters."""
    actor: str = ""
    """Who did it by hand; empty for what the gateway does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """An entry in the books; `at` in seconds since 1970."""

    id: EventId
    at: int
    entry: Entry

    def told_again(self, entry: Entry) -> "Event":
        """This event, which has the key of `entry`. Raises `Conflict` when it says something else."""
        if (self.entry.kind, dict(self.entry.postings)) != (entry.kind, dict(entry.postings)):
            raise Conflict(f"{entry.key} is in the books already, and says something else.")
        return self


class WrongEntry(LocalMisuse):
    """An entry that breaks the rules of its kind: a fault in our own code."""


def check(entry: Entry) -> None:
    """Raises `WrongEntry` when it is not balanced, or moves what its kind may not move."""
    rule = KINDS[entry.kind]
    if sum(entry.postings.values()):
        raise WrongEntry(f"{entry.key} is not balanced.")
    for place, amount in entry.postings.items():
        if not amount:
            raise WrongEntry(f"{entry.key} posts nothing to {place}.")
        if sort_of(place) not in (rule.gives if amount > 0 else rule.takes):
            raise WrongEntry(f"{entry.key} may not {'give to' if amount > 0 else 'take from'} {place}.")
    if rule.needs_reason and not entry.reason.strip():
        raise WrongEntry(f"{entry.key} needs a reason.")
    if not 0 < len(entry.key) <= 100 or len(entry.reason) > 500 or len(entry.actor) > 100:
        raise WrongEntry("A key has 1 to 100 characters, a reason at most 500 and an actor at most 100.")


@dataclass(slots=True)
class EventIds:
    """Names of events, in the order in which this process made them: microseconds and a random part."""

    clock_ns: Callable[[], int] = time.time_ns
    _last: int = field(default=0, init=False)

    def __call__(self) -> EventId:
        self._last = max(self._last + 1, self.clock_ns() // 1000)
        return EventId(f"evt_{self._last:014x}{secrets.token_hex(5)}")
