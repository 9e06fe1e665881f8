"""Ties owners' money together: receipts, payouts over their rails, disputes and reports, over one store."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cloud.api.accounts.accounts import Accounts
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.ledger.ports import Books
from cloud.api.ledger.sql import SqlBooks
from cloud.api.payouts.books import LedgerBooks
from cloud.api.payouts.dispute_store import DisputeStore, MemoryDisputes, SqlDisputes
from cloud.api.payouts.memory import MemoryPayouts
from cloud.api.payouts.receipt_store import MemoryReceipts, SqlReceipts
from cloud.api.payouts.service import Payouts, PayoutSettings
from cloud.api.payouts.signing import key_path, load_key
from cloud.api.payouts.sql import SqlPayouts
from cloud.api.payouts.stripe_rail import StripeRail, StripeSettings
from cloud.api.reports.memory import MemoryReports
from cloud.api.reports.ports import Reports
from cloud.api.reports.sql import SqlReports
from cloud.api.store.database import Database
from shared.receipts import ReceiptKey


@dataclass(frozen=True, slots=True)
class Treasury:
    """What the routes about money need."""

    receipts: MemoryReceipts | SqlReceipts
    payouts: Payouts
    disputes: DisputeStore
    reports: Reports
    stripe: StripeRail | None
    clock: Callable[[], float]

    @property
    def key(self) -> ReceiptKey:
        return self.receipts.key

    async def start(self) -> None:
        """Make the key known that signs receipts from now on, and begin to call rails. Raises `Unavailable`."""
        await self.receipts.enter_key(self.key, int(self.clock()))
        await self.payouts.start()

    async def stop(self) -> None:
        """May be called twice."""
        await self.payouts.stop()


def receipts_for(database: Database | None, address: str, key_file: Path | None) -> MemoryReceipts | SqlReceipts:
    """The hook of the books, made before them. Raises `ConfigError` when the key cannot be read or made."""
    key = load_key(key_path(address, key_file))
    return MemoryReceipts(key) if database is None else SqlReceipts(database, key)


def make_treasury(
    receipts: MemoryReceipts | SqlReceipts,
    database: Database | None,
    books: Books,
    accounts: Accounts,
    charges: object,
    settings: PayoutSettings,
    stripe: StripeSettings | None,
    clock: Callable[[], float] = time.time,
) -> Treasury:
    """`charges` is the store of accounts: reports read it where nothing is on disk."""
    money = LedgerBooks(books, books if isinstance(books, SqlBooks) else None)
    rail = None if stripe is None else StripeRail(stripe, clock=clock)
    reports: Reports
    disputes: DisputeStore
    if database is None:
        store: MemoryPayouts | SqlPayouts = MemoryPayouts(money)
        disputes = MemoryDisputes(money, receipts)
        assert isinstance(receipts, MemoryReceipts) and isinstance(charges, MemoryAccounts)
        reports = MemoryReports(receipts, charges, lambda account: [key.id for key in accounts.keys_of(account)])
    else:
        store = SqlPayouts(database, money)
        disputes = SqlDisputes(database, money, receipts)
        reports = SqlReports(database)
    payouts = Payouts(store, {} if rail is None else {rail.name: rail}, settings, clock=clock)
    return Treasury(receipts, payouts, disputes, reports, rail, clock)
