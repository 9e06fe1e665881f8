"""Rows of the books' tables, to and from what they mean."""

from collections import Counter, defaultdict
from typing import Any

from sqlalchemy import ColumnElement, Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.money import Nano
from cloud.api.ledger.events import Entry, Event, EventId
from cloud.api.ledger.places import Place, in_locking_order
from cloud.api.ledger.posting import Settled
from cloud.api.ledger.reservations import Reservation, State
from cloud.api.store.ledger_tables import EVENTS, POSTINGS
from shared.ids import AccountId, GatewayId


async def events(
    connection: AsyncConnection, where: ColumnElement[bool], *, limit: int, newest_first: bool = False
) -> list[Event]:
    """With their postings, by id: in the order in which they were made, as far as gateways' clocks agree."""
    order = EVENTS.c.id.desc() if newest_first else EVENTS.c.id
    found = (await connection.execute(select(EVENTS).where(where).order_by(order).limit(limit))).all()
    postings: dict[str, dict[Place, Nano]] = defaultdict(dict)
    mine = select(POSTINGS).where(POSTINGS.c.event_id.in_([row.id for row in found]))
    for row in await connection.execute(mine.order_by(POSTINGS.c.event_id, POSTINGS.c.place)):
        postings[row.event_id][Place(row.place)] = Nano(row.amount)
    return [_event(row, postings[row.id]) for row in found]


def _event(row: Row[Any], postings: dict[Place, Nano]) -> Event:
    entry = Entry(key=row.key, kind=row.kind, postings=postings, reason=row.reason, actor=row.actor)
    return Event(id=EventId(row.id), at=row.at, entry=entry)


def event_row(event: Event) -> dict[str, Any]:
    entry = event.entry
    return {
        "id": event.id,
        "key": entry.key,
        "kind": entry.kind,
        "at": event.at,
        "reason": entry.reason,
        "actor": entry.actor,
    }


def posting_rows(event: Event) -> list[dict[str, Any]]:
    return [{"event_id": event.id, "place": place, "amount": n} for place, n in event.entry.postings.items()]


def balance_rows(moves: Counter[Place]) -> list[dict[str, Any]]:
    """Additions, in the order in which balances are locked."""
    return [{"place": place, "amount": moves[place]} for place in sorted(moves, key=in_locking_order) if moves[place]]


def reservation(row: Row[Any]) -> Reservation:
    return Reservation(
        request_id=row.request_id,
        account=AccountId(row.account),
        amount=Nano(row.amount),
        gateway=GatewayId(row.gateway),
        expires_at=row.expires_at,
        state=State(row.state),
    )


def reservation_row(reservation: Reservation) -> dict[str, Any]:
    return {
        "request_id": reservation.request_id,
        "account": reservation.account,
        "amount": reservation.amount,
        "gateway": reservation.gateway,
        "expires_at": reservation.expires_at,
        "state": reservation.state.value,
    }


def settlement_row(settled: Settled) -> dict[str, Any]:
    settlement, event = settled.settlement, settled.event
    return {
        "request_id": settlement.charge.request_id,
        "event_id": event.id if event is not None else None,
        "account": settlement.account,
        "target": settlement.target,
        "price_version": settlement.price_version,
        "cost": settlement.charge.cost,
        "paid_out": settlement.paid_out,
        "at": event.at if event is not None else settlement.charge.at,
    }
