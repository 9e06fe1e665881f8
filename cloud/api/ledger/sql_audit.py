"""Reads everything that must agree out of the database."""

from typing import Any

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.ledger.audit import Audit
from cloud.api.ledger.events import EventId
from cloud.api.ledger.places import Place, pending, reserved
from cloud.api.ledger.reservations import State
from cloud.api.store.ledger_tables import BALANCES, EVENTS, MATURING, POSTINGS, RESERVATIONS, SETTLEMENTS
from cloud.api.store.tables import USAGE
from shared.ids import AccountId


async def audit(connection: AsyncConnection, now: int) -> Audit:
    """One transaction; on PostgreSQL it must see one moment, so that it is made repeatable first."""
    if connection.dialect.name == "postgresql":
        await connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    async def pairs(wanted: Select[Any]) -> list[tuple[str, int]]:
        # PostgreSQL's sums of bigint are numeric.
        return [(name, int(amount)) for name, amount in await connection.execute(wanted)]

    async def count(wanted: Select[Any]) -> int:
        return int((await connection.execute(select(func.count()).select_from(wanted.subquery()))).scalar_one())

    total = func.sum(POSTINGS.c.amount)
    unbalanced = select(POSTINGS.c.event_id, total).group_by(POSTINGS.c.event_id).having(total != 0)
    held_rows = select(RESERVATIONS.c.account, func.sum(RESERVATIONS.c.amount)).where(
        RESERVATIONS.c.state == State.HELD
    )
    maturing = select(MATURING.c.owner, func.sum(MATURING.c.amount)).group_by(MATURING.c.owner)
    overdue = (RESERVATIONS.c.state == State.HELD) & (RESERVATIONS.c.expires_at <= now)
    return Audit(
        events=await count(select(EVENTS.c.id)),
        postings=await count(select(POSTINGS.c.event_id)),
        unbalanced={EventId(event): amount for event, amount in await pairs(unbalanced)},
        sums={Place(p): n for p, n in await pairs(select(POSTINGS.c.place, total).group_by(POSTINGS.c.place))},
        cached={Place(p): n for p, n in await pairs(select(BALANCES.c.place, BALANCES.c.amount)) if n},
        held={reserved(AccountId(a)): n for a, n in await pairs(held_rows.group_by(RESERVATIONS.c.account))},
        maturing={pending(AccountId(owner)): amount for owner, amount in await pairs(maturing)},
        unsettled=await count(_without_settlement()) + await count(_without_usage()),
        overdue=await count(select(RESERVATIONS.c.request_id).where(overdue)),
    )


def _without_settlement() -> Select[Any]:
    """Settle events that no settlement names."""
    joined = EVENTS.outerjoin(SETTLEMENTS, SETTLEMENTS.c.event_id == EVENTS.c.id)
    return select(EVENTS.c.id).select_from(joined).where(EVENTS.c.kind == "settle", SETTLEMENTS.c.event_id.is_(None))


def _without_usage() -> Select[Any]:
    """Settlements that the usage does not have, or has with another cost."""
    joined = SETTLEMENTS.outerjoin(USAGE, USAGE.c.request_id == SETTLEMENTS.c.request_id)
    differs = or_(USAGE.c.request_id.is_(None), and_(USAGE.c.cost != SETTLEMENTS.c.cost))
    return select(SETTLEMENTS.c.request_id).select_from(joined).where(differs)
