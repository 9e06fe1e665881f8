"""Disputes: somebody says that money is wrong, an operator decides, and an adjustment sets it right; pure."""

import secrets
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal, NewType

from cloud.api.accounts.money import Nano
from cloud.api.ledger import places
from cloud.api.ledger.entries import adjustment
from cloud.api.ledger.events import Entry
from shared.errors import Conflict, InvalidInput
from shared.ids import AccountId

DisputeId = NewType("DisputeId", str)
"""`dsp_` and 16 hexadecimal digits."""
Side = Literal["customer", "owner"]
"""Whose money it is about: what a customer prepaid, or what an owner earned."""
TEXT_MAX: Final = 500


class State(StrEnum):
    OPEN = "open"
    RESOLVED = "resolved"
    REJECTED = "rejected"


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.OPEN: frozenset({State.RESOLVED, State.REJECTED}),
    State.RESOLVED: frozenset(),
    State.REJECTED: frozenset(),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispute:
    """Times are seconds since 1970."""

    id: DisputeId
    account: AccountId
    side: Side
    request_id: str | None
    claim: str
    """What is said to be wrong."""
    opened_by: str
    opened_at: int
    state: State = State.OPEN
    resolved_by: str | None = None
    resolved_at: int | None = None
    reason: str | None = None
    amount: Nano | None = None
    """Of the adjustment, to the account's favour when it is positive."""
    event_id: str | None = None


def new_dispute(account: AccountId, side: Side, claim: str, by: str, now: int, request_id: str | None) -> Dispute:
    return Dispute(
        id=DisputeId(f"dsp_{secrets.token_hex(8)}"),
        account=account,
        side=side,
        request_id=request_id,
        claim=claim,
        opened_by=by,
        opened_at=now,
    )


def resolve(dispute: Dispute, amount: Nano, reason: str, by: str, now: int) -> Dispute:
    """With an adjustment when there is an amount, else rejected. Raises `Conflict` when it is over, `Forbidden` never.

    Nobody needs four eyes here: the adjustment says who made it and why, in books that are never changed.
    """
    after = State.RESOLVED if amount else State.REJECTED
    if after not in TRANSITIONS[dispute.state]:
        raise Conflict(f"Dispute {dispute.id} is {dispute.state} already.")
    if by == dispute.account:
        raise InvalidInput("Nobody decides a dispute about their own money.")
    return replace(
        dispute, state=after, resolved_by=by, resolved_at=now, reason=reason, amount=amount if amount else None
    )


def entry(dispute: Dispute) -> Entry | None:
    """What the ledger is to post."""
    if dispute.amount is None or dispute.reason is None:
        return None
    place = places.available(dispute.account) if dispute.side == "customer" else places.payable(dispute.account)
    reason, actor = f"{dispute.id}: {dispute.reason}"[:TEXT_MAX], dispute.resolved_by or ""
    return adjustment(place, dispute.amount, dispute.id, reason=reason, actor=actor)
