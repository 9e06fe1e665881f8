"""The ledger as payouts and disputes need it: entries posted in a transaction that does more."""

from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.money import NOTHING, Nano
from cloud.api.ledger import entries, places
from cloud.api.ledger.events import Entry, Event
from cloud.api.ledger.ports import Books
from cloud.api.ledger.posting import NotCovered
from cloud.api.payouts.memory import not_enough
from cloud.api.payouts.payout import Move, Payout
from cloud.api.payouts.ports import Balance, Transaction
from shared.ids import AccountId


class PostsInTransactions(Protocol):
    """Books in a database; those in memory have no transactions."""

    async def post_on(self, connection: AsyncConnection, entry: Entry) -> Event: ...


class LedgerBooks:
    """A `PayoutLedger`, and how adjustments are posted. `in_database` are the same books, where they are in one."""

    def __init__(self, books: Books, in_database: PostsInTransactions | None = None) -> None:
        self._books = books
        self._in_database = in_database

    async def move(self, transaction: Transaction, move: Move, payout: Payout, at: int) -> None:
        try:
            await self.post(transaction, _entry(move, payout))
        except NotCovered:
            if move is not Move.ASKED:
                raise
            raise not_enough((await self.balance(payout.owner)).payable) from None

    async def post(self, transaction: Transaction, entry: Entry) -> Event:
        """Raises `NotCovered`."""
        if self._in_database is not None and transaction is not None:
            return await self._in_database.post_on(transaction, entry)
        return await self._books.post(entry)

    async def balance(self, owner: AccountId) -> Balance:
        found = await self._books.balances([owner])

        def held(place: places.Place) -> Nano:
            return found.get(place, NOTHING)

        return Balance(
            held(places.pending(owner)),
            held(places.payable(owner)),
            held(places.paying(owner)),
            held(places.paid(owner)),
        )


def _entry(move: Move, payout: Payout) -> Entry:
    match move:
        case Move.ASKED:
            return entries.payout_asked(payout.owner, payout.amount, payout.id, actor=payout.owner)
        case Move.SENT:
            return entries.payout_sent(payout.owner, payout.amount, payout.id, actor=payout.approved_by or "")
        case Move.FAILED:
            reason = (payout.reason or "")[:500]
            return entries.payout_failed(payout.owner, payout.amount, payout.id, reason=reason)
