"""The life of a payout: asked → approved → sent → paid, or failed, or cancelled; pure.

`TRANSITIONS` is the whole of it. Money moves in the ledger when the state does, by `MOVES`, in the same transaction.
"""

import secrets
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NewType, assert_never

from cloud.api.accounts.money import Nano, dollars
from shared.errors import Conflict, Forbidden, InvalidInput
from shared.ids import AccountId

PayoutId = NewType("PayoutId", str)
"""`pay_` and 16 hexadecimal digits."""
CENT: Final = 10**7
"""Nano-dollars; rails pay whole cents."""


class State(StrEnum):
    ASKED = "asked"
    APPROVED = "approved"
    SENT = "sent"
    PAID = "paid"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Move(StrEnum):
    """What the ledger is told: see `cloud.api.payouts.ports.PayoutLedger`."""

    ASKED = "payout_asked"
    SENT = "payout_sent"
    FAILED = "payout_failed"


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.ASKED: frozenset({State.APPROVED, State.CANCELLED}),
    State.APPROVED: frozenset({State.SENT, State.FAILED, State.CANCELLED}),
    State.SENT: frozenset({State.PAID, State.FAILED}),
    State.PAID: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}
"""Approved to failed: the rail refused before anything was sent."""

MOVES: Final[dict[State, Move | None]] = {
    State.ASKED: Move.ASKED,
    State.APPROVED: None,
    State.SENT: None,
    State.PAID: Move.SENT,
    State.FAILED: Move.FAILED,
    State.CANCELLED: Move.FAILED,
}
"""What entering a state means for the ledger."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    """What is still to be told to a rail that is a service: the outbox's row. It exists from approval until the rail
    has answered for good.
    """

    due: int
    """When it is tried next; while a try runs, when the next one may take its place."""
    tries: int = 0
    refusals: int = 0
    """Tries of which the rail said that it did nothing. Each makes another idempotency key: a rail may repeat the
    answer that it gave under the old one."""
    in_doubt: bool = False
    """A try began whose outcome is not known: the money may have gone."""
    trouble: str = ""
    """What the last try met, for operators."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Payout:
    """Times are seconds since 1970."""

    id: PayoutId
    owner: AccountId
    amount: Nano
    rail: str
    destination: str
    """As the rail understands it: an account of Stripe, or name and bank account as JSON."""
    asked_at: int
    state: State = State.ASKED
    reviewed_by: AccountId | None = None
    """The first of the two operators."""
    approved_by: AccountId | None = None
    approved_at: int | None = None
    sent_at: int | None = None
    ended_at: int | None = None
    batch: str | None = None
    reference: str | None = None
    """The rail's own name for the payment."""
    reason: str | None = None
    """Why it failed or was cancelled."""
    errand: Errand | None = None

    @property
    def idempotency_key(self) -> str:
        """What the rail knows a try by. The same until the rail has said that it did nothing."""
        return f"{self.id}-{self.errand.refusals if self.errand else 0}"


@dataclass(frozen=True, slots=True)
class Approve:
    """By one operator; the second one's makes it approved. `service`: the rail is one that is called."""

    by: AccountId
    service: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    by: AccountId
    reason: str


@dataclass(frozen=True, slots=True)
class Try:
    """The rail is about to be called; until `until` nobody else calls it."""

    until: int


@dataclass(frozen=True, slots=True)
class Postpone:
    """The try came to nothing. `known`: the rail said that it did nothing; else the money may have gone."""

    trouble: str
    until: int
    known: bool


@dataclass(frozen=True, slots=True)
class Send:
    """The rail has it, under this name."""

    reference: str | None
    batch: str | None = None


@dataclass(frozen=True, slots=True)
class Pay:
    """The money has arrived."""

    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """It will not arrive, and is the owner's to ask for again."""

    reason: str


Event = Approve | Cancel | Try | Postpone | Send | Pay | Fail


def new_payout(owner: AccountId, amount: Nano, rail: str, destination: str, now: int) -> Payout:
    """Raises `InvalidInput` for an amount that cannot be paid."""
    if amount <= 0 or amount % CENT:
        raise InvalidInput("`amount` must be more than nothing and whole cents.", param="amount")
    id_ = PayoutId(f"pay_{secrets.token_hex(8)}")
    return Payout(id=id_, owner=owner, amount=amount, rail=rail, destination=destination, asked_at=now)


def advance(payout: Payout, event: Event, now: int) -> Payout:
    """The payout after `event`. Raises `Conflict` where its state does not allow it, and `Forbidden` where the person
    may not do it; what has happened already changes nothing.
    """
    match event:
        case Approve():
            return _approve(payout, event, now)
        case Cancel():
            if payout.errand is not None and payout.errand.in_doubt:
                raise Conflict("The payment may have gone out already. Wait until the rail has said.")
            return _end(payout, State.CANCELLED, now, reason=event.reason)
        case Try():
            errand = _errand(payout)
            return replace(payout, errand=replace(errand, due=event.until, tries=errand.tries + 1, in_doubt=True))
        case Postpone():
            errand = _errand(payout)
            refusals = errand.refusals + 1 if event.known else errand.refusals
            errand = replace(
                errand, due=event.until, refusals=refusals, trouble=event.trouble, in_doubt=not event.known
            )
            return replace(payout, errand=errand)
        case Send():
            if payout.state in (State.SENT, State.PAID) and payout.reference == event.reference:
                return payout
            sent = _enter(payout, State.SENT)
            return replace(sent, sent_at=now, reference=event.reference, batch=event.batch, errand=None)
        case Pay():
            if payout.state is State.PAID:
                return payout
            return replace(_end(payout, State.PAID, now), reference=event.reference or payout.reference)
        case Fail():
            return payout if payout.state is State.FAILED else _end(payout, State.FAILED, now, reason=event.reason)
        case _:
            assert_never(event)


def _approve(payout: Payout, event: Approve, now: int) -> Payout:
    """Four eyes beside the owner's: two different operators, neither of whom is paid by it."""
    if event.by == payout.owner:
        raise Forbidden("Nobody approves a payout to themselves.")
    _check(payout, State.APPROVED)
    if payout.reviewed_by is None:
        return replace(payout, reviewed_by=event.by)
    if payout.reviewed_by == event.by:
        raise Forbidden("You have approved this payout already. Another operator has to do so as well.")
    errand = Errand(due=now) if event.service else None
    return replace(_enter(payout, State.APPROVED), approved_by=event.by, approved_at=now, errand=errand)


def _errand(payout: Payout) -> Errand:
    if payout.errand is None or payout.state is not State.APPROVED:
        raise Conflict(f"Payout {payout.id} is not on its way to a rail: it is {payout.state}.")
    return payout.errand


def _end(payout: Payout, state: State, now: int, reason: str | None = None) -> Payout:
    return replace(_enter(payout, state), ended_at=now, reason=reason, errand=None)


def _enter(payout: Payout, state: State) -> Payout:
    _check(payout, state)
    return replace(payout, state=state)


def _check(payout: Payout, state: State) -> None:
    if state not in TRANSITIONS[payout.state]:
        raise Conflict(f"Payout {payout.id} of ${dollars(payout.amount)} is {payout.state}: it cannot become {state}.")
