"""Keeps the books in the database: every write is one transaction, and whoever writes locks balances in one order.

A transaction first locks the balances of all customers and owners that it concerns (`SELECT … FOR UPDATE` in the order
of their names; on SQLite it holds the whole database). Everything else that it reads afterwards belongs to one of them,
so that nobody else changes it meanwhile. The house's balances, which everybody shares, are added to at the very end.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Row, delete, literal_column, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.money import Nano
from cloud.api.accounts.sql import write_charges
from cloud.api.ledger import rows
from cloud.api.ledger.audit import Audit
from cloud.api.ledger.events import Entry, Event, EventIds, Kind
from cloud.api.ledger.places import HOUSE, Place, available, of_account, payable, pending, reserved
from cloud.api.ledger.ports import Batch, SettleHook, Written
from cloud.api.ledger.posting import DAY_S, Extract, Posting
from cloud.api.ledger.reservations import State
from cloud.api.ledger.sql_audit import audit
from cloud.api.store.bulk import insert_all, upsert
from cloud.api.store.database import Database, StoreFailed, Work
from cloud.api.store.ledger_tables import BALANCES, EVENTS, MATURING, POSTINGS, RESERVATIONS, SETTLEMENTS
from shared.ids import AccountId

ATTEMPTS: Final = 5
"""Times that a transaction is tried which lost to another one."""
PAGE: Final = 1000
"""Events that are read at once."""
_LOST = {"40001", "40P01"}
"""SQLSTATE of a serialization failure and of a deadlock."""
T = TypeVar("T")


class SqlBooks:
    """`Books`. The database is opened and closed by whoever made it."""

    def __init__(
        self,
        database: Database,
        hooks: Sequence[SettleHook[AsyncConnection]] = (),
        *,
        hold_days: int = 7,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._hooks = tuple(hooks)
        self._hold_days = hold_days
        self._clock = clock
        self._new_id = EventIds()

    async def write(self, batch: Batch) -> Written:
        async def work(connection: AsyncConnection) -> Written:
            customers = sorted(batch.customers)
            places = [place(account) for account in customers for place in (available, reserved)]
            places += [pending(owner) for owner in batch.owners]
            posting = self._posting(await extract(connection, places, batch.requests, batch.keys))
            refused = {each.request_id for each in batch.reservations if not posting.reserve(each)}
            for release in batch.releases:
                posting.release(release.request_id)
            for settlement in batch.settlements:
                posting.settle(settlement)
            await store(connection, posting)
            spending = await write_charges(connection, [each.charge for each in batch.settlements])
            for hook in self._hooks:
                await hook.write(connection, posting.posted)
            await add(connection, posting)
            left = {account: Nano(posting.balance(available(account))) for account in customers}
            return Written(frozenset(refused), left, spending)

        return await self._write(work)

    async def post(self, entry: Entry) -> Event:
        return await self._write(lambda connection: self.post_on(connection, entry))

    async def post_on(self, connection: AsyncConnection, entry: Entry) -> Event:
        """As `post`, as a part of a transaction that does more. Post entries in the order of their accounts there."""
        places = [place for place in entry.postings if not place.startswith(HOUSE)]
        posting = self._posting(await extract(connection, places, (), {entry.key}))
        event = posting.post(entry)
        if event is None:
            return (await rows.events(connection, EVENTS.c.key == entry.key, limit=1))[0].told_again(entry)
        await store(connection, posting)
        await add(connection, posting)
        return event

    async def renew(self, requests: Sequence[str], until: int) -> None:
        mine = (RESERVATIONS.c.state == State.HELD) & RESERVATIONS.c.request_id.in_(requests)
        await self._write(lambda c: c.execute(update(RESERVATIONS).where(mine).values(expires_at=until)))

    async def expire(self, limit: int) -> int:
        due = (RESERVATIONS.c.state == State.HELD) & (RESERVATIONS.c.expires_at <= int(self._clock()))

        async def find(connection: AsyncConnection) -> list[Row[Any]]:
            found = select(RESERVATIONS).where(due).order_by(RESERVATIONS.c.expires_at).limit(limit)
            return list((await connection.execute(found)).all())

        found = [rows.reservation(row) for row in await self._database.read(find)]

        async def release(connection: AsyncConnection) -> int:
            accounts = {each.account for each in found}
            places = [place(account) for account in accounts for place in (available, reserved)]
            names = {each.request_id for each in found}
            posting = self._posting(await extract(connection, places, names, ()))
            # Looked at again: its gateway may have renewed or ended it meanwhile.
            still = select(RESERVATIONS.c.request_id).where(due & RESERVATIONS.c.request_id.in_(names))
            count = sum(map(posting.release, sorted((await connection.execute(still)).scalars())))
            await store(connection, posting)
            await add(connection, posting)
            return count

        return await self._write(release) if found else 0

    async def mature(self, limit: int) -> int:
        due = select(MATURING).where(MATURING.c.day <= int(self._clock()) // DAY_S)

        async def find(connection: AsyncConnection) -> list[str]:
            return [row.owner for row in await connection.execute(due.order_by(MATURING.c.day).limit(limit))]

        owners = sorted({AccountId(owner) for owner in await self._database.read(find)})

        async def move(connection: AsyncConnection) -> int:
            places = [place(owner) for owner in owners for place in (pending, payable)]
            posting = self._posting(await extract(connection, places, (), ()))
            ripe = (await connection.execute(due.where(MATURING.c.owner.in_(owners)))).all()
            for row in sorted(ripe):
                posting.mature(AccountId(row.owner), row.amount)
                this = (MATURING.c.owner == row.owner) & (MATURING.c.day == row.day)
                await connection.execute(delete(MATURING).where(this))
            await store(connection, posting)
            await add(connection, posting)
            return len(ripe)

        return await self._write(move) if owners else 0

    async def balances(self, accounts: Sequence[AccountId] | None = None) -> Mapping[Place, Nano]:
        async def work(connection: AsyncConnection) -> Mapping[Place, Nano]:
            wanted = select(BALANCES)
            if accounts is not None:
                wanted = wanted.where(BALANCES.c.place.in_([p for account in accounts for p in of_account(account)]))
            return {Place(row.place): Nano(row.amount) for row in await connection.execute(wanted)}

        return await self._database.read(work)

    async def events(
        self, *, account: AccountId | None = None, kind: Kind | None = None, limit: int = 100
    ) -> Sequence[Event]:
        where = literal_column("1") == 1
        if account is not None:
            mine = select(POSTINGS.c.event_id).where(POSTINGS.c.place.in_(of_account(account)))
            where &= EVENTS.c.id.in_(mine)
        if kind is not None:
            where &= EVENTS.c.kind == kind
        return await self._database.read(lambda c: rows.events(c, where, limit=limit, newest_first=True))

    async def all_events(self) -> AsyncIterator[Event]:
        last = ""
        while page := await self._page(last):
            for event in page:
                yield event
            last = page[-1].id

    async def audit(self) -> Audit:
        return await self._database.read(lambda connection: audit(connection, int(self._clock())))

    async def _page(self, after: str) -> list[Event]:
        return await self._database.read(lambda c: rows.events(c, EVENTS.c.id > after, limit=PAGE))

    async def _write(self, work: Work[T]) -> T:
        """Several gateways may get into each other's way: who loses begins again."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._database.write(work)
            except IntegrityError:
                if attempt == ATTEMPTS:
                    raise
                # The same was told at the same time: the next attempt finds it.
            except StoreFailed as error:
                cause = error.__cause__
                lost = isinstance(cause, DBAPIError) and getattr(cause.orig, "sqlstate", None) in _LOST
                if not lost or attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _posting(self, held: Extract) -> Posting:
        return Posting(held, at=int(self._clock()), new_id=self._new_id, hold_days=self._hold_days)


async def extract(
    connection: AsyncConnection, places: Collection[Place], requests: Collection[str], keys: Collection[str]
) -> Extract:
    """Locks the balances, and reads what belongs to them."""
    found = Extract()
    if places:
        wanted = select(BALANCES).where(BALANCES.c.place.in_(sorted(places))).order_by(BALANCES.c.place)
        found.balances = await _locked(connection, wanted)
        if missing := sorted(set(places) - found.balances.keys()):
            added = upsert(connection, BALANCES).on_conflict_do_nothing()
            await insert_all(connection, BALANCES, [{"place": place, "amount": 0} for place in missing], added)
            found.balances = await _locked(connection, wanted)
    if requests:
        wanted = select(RESERVATIONS).where(RESERVATIONS.c.request_id.in_(sorted(requests)))
        held = [rows.reservation(row) for row in await connection.execute(wanted)]
        found.reservations = {each.request_id: each for each in held}
    if keys:
        used = select(EVENTS.c.key).where(EVENTS.c.key.in_(sorted(keys)))
        found.known = set((await connection.execute(used)).scalars())
    return found


async def _locked(connection: AsyncConnection, wanted: Any) -> Counter[Place]:
    locked = await connection.execute(wanted.with_for_update())
    return Counter({Place(row.place): row.amount for row in locked})


async def store(connection: AsyncConnection, posting: Posting) -> None:
    """Write what a posting came to, but for the balances."""
    await insert_all(connection, EVENTS, [rows.event_row(event) for event in posting.events])
    await insert_all(connection, POSTINGS, [row for event in posting.events for row in rows.posting_rows(event)])
    await insert_all(connection, RESERVATIONS, [rows.reservation_row(each) for each in posting.new_reservations])
    for state in (State.RELEASED, State.SETTLED):
        if changed := [each.request_id for each in posting.old_reservations if each.state is state]:
            these = RESERVATIONS.c.request_id.in_(changed)
            await connection.execute(update(RESERVATIONS).where(these).values(state=state.value))
    settlements = [rows.settlement_row(each) for each in posting.settled if each.event is not None]
    await insert_all(connection, SETTLEMENTS, settlements)
    more = upsert(connection, MATURING)
    more = more.on_conflict_do_update(
        index_elements=["owner", "day"], set_={"amount": MATURING.c.amount + more.excluded.amount}
    )
    due = sorted(posting.maturing.items())
    earnings = [{"owner": owner, "day": day, "amount": amount} for (owner, day), amount in due]
    await insert_all(connection, MATURING, earnings, more)


async def add(connection: AsyncConnection, posting: Posting) -> None:
    """Bring the balances up to date: the last that a transaction does, as everybody waits for the house's."""
    more = upsert(connection, BALANCES)
    sums = {"amount": BALANCES.c.amount + more.excluded.amount}
    more = more.on_conflict_do_update(index_elements=["place"], set_=sums)
    await insert_all(connection, BALANCES, rows.balance_rows(posting.moves), more)
