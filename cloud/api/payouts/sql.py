"""Keeps payouts in the database."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import Row, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.money import Nano
from cloud.api.payouts.memory import no_such_payout
from cloud.api.payouts.payout import MOVES, Errand, Move, Payout, PayoutId, State
from cloud.api.payouts.ports import Balance, Change, PayoutLedger
from cloud.api.store.database import Database
from cloud.api.store.payout_tables import PAYOUT_DESTINATIONS, PAYOUT_OUTBOX, PAYOUTS, RAIL_EVENTS
from shared.ids import AccountId

_COLUMNS: Final = [each.name for each in fields(Payout) if each.name != "errand"]
_ERRAND: Final = [each.name for each in fields(Errand)]
_BOTH: Final = select(PAYOUTS, *(PAYOUT_OUTBOX.c[name] for name in _ERRAND)).outerjoin(
    PAYOUT_OUTBOX, PAYOUT_OUTBOX.c.payout == PAYOUTS.c.id
)


class SqlPayouts:
    """A `PayoutStore`. The database is opened and closed by whoever made it."""

    def __init__(self, database: Database, ledger: PayoutLedger) -> None:
        self._database = database
        self._ledger = ledger

    async def add(self, payout: Payout) -> Payout:
        async def work(connection: AsyncConnection) -> Payout:
            await connection.execute(insert(PAYOUTS).values(_values(payout)))
            await self._ledger.move(connection, Move.ASKED, payout, payout.asked_at)
            return payout

        return await self._database.write(work)

    async def change(self, id: PayoutId, change: Change, at: int) -> Payout:
        return (await self.change_all([id], change, at))[0]

    async def change_all(self, ids: Sequence[PayoutId], change: Change, at: int) -> Sequence[Payout]:
        async def work(connection: AsyncConnection) -> Sequence[Payout]:
            changed = {id: await self._change(connection, id, change, at) for id in sorted(ids)}
            return [changed[id] for id in ids]

        return await self._database.write(work)

    async def _change(self, connection: AsyncConnection, id: PayoutId, change: Change, at: int) -> Payout:
        this = PAYOUTS.c.id == id
        if (await connection.execute(select(PAYOUTS.c.id).where(this).with_for_update())).one_or_none() is None:
            raise no_such_payout()
        old = _payout((await connection.execute(_BOTH.where(this))).one())
        new = change(old)
        if new == old:
            return new
        await connection.execute(update(PAYOUTS).where(this).values(_values(new)))
        await connection.execute(delete(PAYOUT_OUTBOX).where(PAYOUT_OUTBOX.c.payout == id))
        if new.errand is not None:
            row = {name: getattr(new.errand, name) for name in _ERRAND}
            await connection.execute(
                insert(PAYOUT_OUTBOX).values(payout=id, idempotency_key=new.idempotency_key, **row)
            )
        move = MOVES[new.state]
        if new.state is not old.state and move is not None:
            await self._ledger.move(connection, move, new, at)
        return new

    async def get(self, id: PayoutId) -> Payout:
        async def work(connection: AsyncConnection) -> Payout:
            row = (await connection.execute(_BOTH.where(PAYOUTS.c.id == id))).one_or_none()
            if row is None:
                raise no_such_payout()
            return _payout(row)

        return await self._database.read(work)

    async def find(
        self, *, owner: AccountId | None = None, state: State | None = None, batch: str | None = None, limit: int = 1000
    ) -> Sequence[Payout]:
        wanted = {"owner": owner, "state": state, "batch": batch}
        given = [PAYOUTS.c[name] == value for name, value in wanted.items() if value is not None]
        return await self._rows(_BOTH.where(*given).order_by(PAYOUTS.c.asked_at.desc(), PAYOUTS.c.id).limit(limit))

    async def due(self, now: int, limit: int) -> Sequence[Payout]:
        order = (PAYOUT_OUTBOX.c.due, PAYOUTS.c.id)
        return await self._rows(_BOTH.where(PAYOUT_OUTBOX.c.due <= now).order_by(*order).limit(limit))

    async def unsettled(self, rail: str, limit: int) -> Sequence[Payout]:
        these = (PAYOUTS.c.state == State.SENT, PAYOUTS.c.rail == rail)
        return await self._rows(_BOTH.where(*these).order_by(PAYOUTS.c.sent_at, PAYOUTS.c.id).limit(limit))

    async def balance(self, owner: AccountId) -> Balance:
        return await self._ledger.balance(owner)

    async def destination(self, owner: AccountId, rail: str) -> str | None:
        this = (PAYOUT_DESTINATIONS.c.owner == owner) & (PAYOUT_DESTINATIONS.c.rail == rail)

        async def work(connection: AsyncConnection) -> str | None:
            return (await connection.execute(select(PAYOUT_DESTINATIONS.c.destination).where(this))).scalar()

        return await self._database.read(work)

    async def set_destination(self, owner: AccountId, rail: str, destination: str, at: int) -> None:
        this = (PAYOUT_DESTINATIONS.c.owner == owner) & (PAYOUT_DESTINATIONS.c.rail == rail)
        new = {"destination": destination, "changed_at": at}

        async def work(connection: AsyncConnection) -> None:
            if not (await connection.execute(update(PAYOUT_DESTINATIONS).where(this).values(new))).rowcount:
                await connection.execute(insert(PAYOUT_DESTINATIONS).values(owner=owner, rail=rail, **new))

        await self._database.write(work)

    async def seen(self, event: str) -> bool:
        async def work(connection: AsyncConnection) -> bool:
            found = select(func.count()).select_from(RAIL_EVENTS).where(RAIL_EVENTS.c.id == event)
            return bool((await connection.execute(found)).scalar_one())

        return await self._database.read(work)

    async def note_event(self, event: str, at: int) -> None:
        async def work(connection: AsyncConnection) -> None:
            this = RAIL_EVENTS.c.id == event
            if not (await connection.execute(update(RAIL_EVENTS).where(this).values(at=at))).rowcount:
                await connection.execute(insert(RAIL_EVENTS).values(id=event, at=at))

        await self._database.write(work)

    async def _rows(self, query: Any) -> Sequence[Payout]:
        async def work(connection: AsyncConnection) -> Sequence[Payout]:
            return [_payout(row) for row in await connection.execute(query)]

        return await self._database.read(work)


def _values(payout: Payout) -> dict[str, Any]:
    return {name: getattr(payout, name) for name in _COLUMNS}


def _payout(row: Row[Any]) -> Payout:
    values = {name: getattr(row, name) for name in _COLUMNS}
    values |= {"state": State(row.state), "amount": Nano(row.amount)}
    errand = None if row.due is None else Errand(**{name: getattr(row, name) for name in _ERRAND})
    return Payout(**values, errand=errand)
