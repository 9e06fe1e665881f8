"""Puts receipts at the end of their owners' chains. Pure: what is stored, and when, is for the stores."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cloud.api.accounts.money import Nano
from cloud.api.ledger.posting import Posted
from cloud.api.ledger.settlement import NodeShare, Settlement
from shared.ids import AccountId
from shared.receipts import BEGINNING, Receipt, ReceiptKey, SignedReceipt, SignedStatement, Statement

NodeClass = Literal["own", "trusted", "any"]
"""What a node was to the customer whose prompt it saw: theirs, a vetted owner's, or anybody's."""
Trusted = Callable[[AccountId], bool]


@dataclass(frozen=True, slots=True)
class Head:
    """The end of an owner's chain."""

    sequence: int = 0
    digest: bytes = BEGINNING
    total: Nano = Nano(0)  # noqa: RUF009 - a NewType


@dataclass(frozen=True, slots=True)
class Adjusted:
    """An owner's earnings were set right, by `amount`, which may be negative."""

    owner: AccountId
    amount: Nano
    reason: str
    event_id: str
    at: int


@dataclass(frozen=True, slots=True)
class Written:
    """A receipt with what is kept beside it for questions; energy is the node's own word and is not signed."""

    signed: SignedReceipt
    event_id: str
    node_class: NodeClass | None
    millijoules: int | None


def owners(events: Iterable[Posted | Adjusted]) -> list[AccountId]:
    """Whose chains grow, in the order in which they are to be locked."""
    found: set[AccountId] = set()
    for event in events:
        match event:
            case Posted(settlement):
                found.update(share.owner for share in settlement.shares)
            case Adjusted(owner):
                found.add(owner)
    return sorted(found)


def extend(
    heads: Mapping[AccountId, Head], events: Sequence[Posted | Adjusted], key: ReceiptKey, trusted: Trusted
) -> tuple[list[Written], dict[AccountId, Head]]:
    """New receipts, and the heads that they lead to."""
    ends = dict(heads)
    written: list[Written] = []
    for event in events:
        for owner, draft in _drafts(event, trusted):
            head = ends.get(owner, Head())
            receipt = Receipt(
                **draft.fields,
                id=f"rcpt_{secrets.token_hex(8)}",
                key=key.name,
                owner=owner,
                sequence=head.sequence + 1,
                previous=head.digest,
                at=event.at,
            )
            signed = key.sign_receipt(receipt)
            written.append(Written(signed, event.event_id, draft.node_class, draft.millijoules))
            ends[owner] = Head(receipt.sequence, signed.digest, Nano(head.total + receipt.amount))
    return written, ends


def statement(owner: AccountId, head: Head, key: ReceiptKey, at: int) -> SignedStatement:
    """How far the chain goes at this moment."""
    return key.sign_statement(
        Statement(key=key.name, owner=owner, count=head.sequence, head=head.digest, total=head.total, at=at)
    )


@dataclass(frozen=True, slots=True)
class _Draft:
    fields: dict[str, Any]
    node_class: NodeClass | None = None
    millijoules: int | None = None


def _drafts(event: Posted | Adjusted, trusted: Trusted) -> Iterable[tuple[AccountId, _Draft]]:
    match event:
        case Posted(settlement):
            for share in settlement.shares:
                yield (
                    share.owner,
                    _Draft(_work(settlement, share), _class(settlement, share, trusted), _millijoules(share)),
                )
        case Adjusted(owner, amount, reason):
            nothing = {"first": 0, "last": 0, "drafted": 0, "accepted": 0, "marginal": 0, "price": 0}
            named = {"node": "", "request": "", "model": "", "price_version": ""}
            yield owner, _Draft({**nothing, **named, "kind": "adjustment", "amount": amount, "reason": reason})


def _work(settlement: Settlement, share: NodeShare) -> dict[str, Any]:
    work = share.work
    return {
        "kind": "work",
        "node": work.node,
        "request": settlement.charge.request_id,
        "model": settlement.target,
        "first": work.first,
        "last": work.last,
        "drafted": work.drafted,
        "accepted": work.accepted,
        "marginal": work.marginal,
        "price": share.price,
        "price_version": share.price_version,
        "amount": share.amount,
    }


def _class(settlement: Settlement, share: NodeShare, trusted: Trusted) -> NodeClass:
    if settlement.account is not None and share.owner == settlement.account:
        return "own"
    return "trusted" if trusted(share.owner) else "any"


def _millijoules(share: NodeShare) -> int | None:
    return None if share.work.joules is None else round(share.work.joules * 1000)
