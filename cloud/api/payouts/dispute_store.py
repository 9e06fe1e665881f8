"""Disputes in the database and in memory; a decision, its adjustment and its receipt are one transaction."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Final, Protocol

from sqlalchemy import Row, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.money import Nano
from cloud.api.payouts.books import LedgerBooks
from cloud.api.payouts.chain import Adjusted
from cloud.api.payouts.disputes import Dispute, DisputeId, State, entry
from cloud.api.payouts.ports import Transaction
from cloud.api.payouts.receipt_store import ReceiptStore
from cloud.api.store.database import Database
from cloud.api.store.payout_tables import DISPUTES
from shared.errors import NotFound

_COLUMNS: Final = [each.name for each in fields(Dispute)]
Decide = Callable[[Dispute], Dispute]


class DisputeStore(Protocol):
    """Adapters pass the same tests."""

    async def open(self, dispute: Dispute) -> Dispute: ...

    async def decide(self, id: DisputeId, decide: Decide) -> Dispute:
        """One at a time. Raises `NotFound`, `NotCovered` when an owner's money does not hold what is taken, and
        whatever `decide` does.
        """
        ...

    async def find(self, state: State | None = None, limit: int = 100) -> Sequence[Dispute]:
        """Newest first."""
        ...


class MemoryDisputes:
    """A `DisputeStore`."""

    def __init__(self, books: LedgerBooks, receipts: ReceiptStore) -> None:
        self._books = books
        self._receipts = receipts
        self._disputes: dict[DisputeId, Dispute] = {}

    async def open(self, dispute: Dispute) -> Dispute:
        self._disputes[dispute.id] = dispute
        return dispute

    async def decide(self, id: DisputeId, decide: Decide) -> Dispute:
        if (found := self._disputes.get(id)) is None:
            raise _no_such_dispute()
        decided = await _settle(None, decide(found), self._books, self._receipts)
        self._disputes[id] = decided
        return decided

    async def find(self, state: State | None = None, limit: int = 100) -> Sequence[Dispute]:
        found = [each for each in self._disputes.values() if state in (None, each.state)]
        return sorted(found, key=lambda each: (-each.opened_at, each.id))[:limit]


class SqlDisputes:
    """A `DisputeStore`."""

    def __init__(self, database: Database, books: LedgerBooks, receipts: ReceiptStore) -> None:
        self._database = database
        self._books = books
        self._receipts = receipts

    async def open(self, dispute: Dispute) -> Dispute:
        await self._database.write(lambda c: c.execute(insert(DISPUTES).values(_values(dispute))))
        return dispute

    async def decide(self, id: DisputeId, decide: Decide) -> Dispute:
        async def work(connection: AsyncConnection) -> Dispute:
            this = DISPUTES.c.id == id
            row = (await connection.execute(select(DISPUTES).where(this).with_for_update())).one_or_none()
            if row is None:
                raise _no_such_dispute()
            decided = await _settle(connection, decide(_dispute(row)), self._books, self._receipts)
            await connection.execute(update(DISPUTES).where(this).values(_values(decided)))
            return decided

        return await self._database.write(work)

    async def find(self, state: State | None = None, limit: int = 100) -> Sequence[Dispute]:
        wanted = select(DISPUTES).order_by(DISPUTES.c.opened_at.desc(), DISPUTES.c.id).limit(limit)
        if state is not None:
            wanted = wanted.where(DISPUTES.c.state == state)

        async def work(connection: AsyncConnection) -> Sequence[Dispute]:
            return [_dispute(row) for row in await connection.execute(wanted)]

        return await self._database.read(work)


async def _settle(transaction: Transaction, decided: Dispute, books: LedgerBooks, receipts: ReceiptStore) -> Dispute:
    """Post the adjustment, and give an owner the receipt for it."""
    adjusting = entry(decided)
    if adjusting is None:
        return decided
    event = await books.post(transaction, adjusting)
    if decided.side == "owner" and decided.amount is not None:
        adjusted = Adjusted(decided.account, decided.amount, adjusting.reason, event.id, event.at)
        await receipts.write_all(transaction, [adjusted])
    return replace(decided, event_id=event.id)


def _no_such_dispute() -> NotFound:
    return NotFound("There is no dispute with this id.")


def _values(dispute: Dispute) -> dict[str, Any]:
    return {name: getattr(dispute, name) for name in _COLUMNS}


def _dispute(row: Row[Any]) -> Dispute:
    values = {name: getattr(row, name) for name in _COLUMNS}
    amount = None if row.amount is None else Nano(row.amount)
    return Dispute(**values | {"state": State(row.state), "amount": amount})
