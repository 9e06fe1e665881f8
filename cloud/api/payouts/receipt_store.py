"""Receipts in the database, written in the transaction that settles; and in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.money import Nano
from cloud.api.ledger.posting import Posted
from cloud.api.payouts.chain import Adjusted, Head, Trusted, Written, extend, owners
from cloud.api.store.bulk import insert_all, upsert
from cloud.api.store.database import Database
from cloud.api.store.payout_tables import RECEIPT_HEADS, RECEIPT_KEYS, RECEIPTS
from shared.ids import AccountId
from shared.receipts import KeyName, Receipt, ReceiptKey, SignedReceipt

_decoder = msgspec.msgpack.Decoder(Receipt)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that signs receipts, or did `until` then."""

    name: KeyName
    public: bytes
    since: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """Some receipts of an owner, and where their chain ends at that same moment."""

    receipts: Sequence[SignedReceipt]
    head: Head


class ReceiptStore(Protocol):
    """Adapters pass the same tests."""

    async def write_all(self, transaction: Any, events: Sequence[Posted | Adjusted]) -> Sequence[Written]:
        """Receipts for all of these, in the transaction that posts them."""
        ...

    async def receipts(self, owner: AccountId, after: int, limit: int) -> Chain:
        """Those whose number is greater than `after`, in order."""
        ...

    async def enter_key(self, key: ReceiptKey, at: int) -> None:
        """Make its public half known, and in force."""
        ...

    async def end_key(self, name: KeyName, at: int) -> None:
        """It signs nothing more; what it has signed stays good."""
        ...

    async def keys(self) -> Sequence[PublicKey]:
        """Every one that has ever signed, oldest first."""
        ...


def _nobody(_: AccountId) -> bool:
    return False


class MemoryReceipts:
    """A `ReceiptStore`."""

    def __init__(self, key: ReceiptKey, trusted: Trusted = _nobody) -> None:
        self.key = key
        self._trusted = trusted
        self._heads: dict[AccountId, Head] = {}
        self.written: list[Written] = []
        self._keys: dict[KeyName, PublicKey] = {}

    async def write(self, connection: Any, posted: Sequence[Posted]) -> None:
        await self.write_all(connection, posted)

    async def write_all(self, transaction: Any, events: Sequence[Posted | Adjusted]) -> Sequence[Written]:
        written, self._heads = extend(self._heads, events, self.key, self._trusted)
        self.written += written
        return written

    async def receipts(self, owner: AccountId, after: int, limit: int) -> Chain:
        mine = [each.signed for each in self.written if each.signed.receipt.owner == owner]
        return Chain(mine[after : after + limit], self._heads.get(owner, Head()))

    async def enter_key(self, key: ReceiptKey, at: int) -> None:
        known = self._keys.get(key.name)
        self._keys[key.name] = PublicKey(key.name, key.public, known.since if known is not None else at)

    async def end_key(self, name: KeyName, at: int) -> None:
        if (known := self._keys.get(name)) is not None and known.until is None:
            self._keys[name] = replace(known, until=at)

    async def keys(self) -> Sequence[PublicKey]:
        return sorted(self._keys.values(), key=lambda each: (each.since, each.name))


class SqlReceipts:
    """A `ReceiptStore`. Whoever writes holds the heads of the owners concerned until its transaction ends."""

    def __init__(self, database: Database, key: ReceiptKey, trusted: Trusted = _nobody) -> None:
        self._database = database
        self.key = key
        self._trusted = trusted

    async def write(self, connection: AsyncConnection, posted: Sequence[Posted]) -> None:
        """The ledger's hook."""
        await self.write_all(connection, posted)

    async def write_all(self, transaction: AsyncConnection, events: Sequence[Posted | Adjusted]) -> Sequence[Written]:
        concerned = owners(events)
        if not concerned:
            return []
        heads = await _lock(transaction, concerned)
        written, ends = extend(heads, events, self.key, self._trusted)
        await insert_all(transaction, RECEIPTS, [_row(each) for each in written])
        moved = upsert(transaction, RECEIPT_HEADS)
        new = {name: moved.excluded[name] for name in ("sequence", "digest", "total")}
        moved = moved.on_conflict_do_update(index_elements=["owner"], set_=new)
        await insert_all(transaction, RECEIPT_HEADS, [_head(owner, ends[owner]) for owner in concerned], moved)
        return written

    async def receipts(self, owner: AccountId, after: int, limit: int) -> Chain:
        async def work(connection: AsyncConnection) -> Chain:
            mine = (RECEIPTS.c.owner == owner) & (RECEIPTS.c.sequence > after)
            columns = select(RECEIPTS.c.body, RECEIPTS.c.digest, RECEIPTS.c.signature).where(mine)
            head = (await connection.execute(select(RECEIPT_HEADS).where(RECEIPT_HEADS.c.owner == owner))).one_or_none()
            rows = (await connection.execute(columns.order_by(RECEIPTS.c.sequence).limit(limit))).all()
            # Read after the head, so that none is beyond it in the answer of a busy moment.
            end = Head() if head is None else Head(head.sequence, head.digest, Nano(head.total))
            found = [SignedReceipt(_decoder.decode(row.body), row.digest, row.signature) for row in rows]
            return Chain([each for each in found if each.receipt.sequence <= end.sequence], end)

        return await self._database.read(work)

    async def enter_key(self, key: ReceiptKey, at: int) -> None:
        async def work(connection: AsyncConnection) -> None:
            this = RECEIPT_KEYS.c.name == key.name
            if not (await connection.execute(update(RECEIPT_KEYS).where(this).values(until=None))).rowcount:
                await connection.execute(insert(RECEIPT_KEYS).values(name=key.name, public=key.public, since=at))

        await self._database.write(work)

    async def end_key(self, name: KeyName, at: int) -> None:
        in_force = (RECEIPT_KEYS.c.name == name) & RECEIPT_KEYS.c.until.is_(None)
        await self._database.write(lambda c: c.execute(update(RECEIPT_KEYS).where(in_force).values(until=at)))

    async def keys(self) -> Sequence[PublicKey]:
        async def work(connection: AsyncConnection) -> Sequence[PublicKey]:
            rows = await connection.execute(select(RECEIPT_KEYS).order_by(RECEIPT_KEYS.c.since, RECEIPT_KEYS.c.name))
            return [PublicKey(KeyName(row.name), row.public, row.since, row.until) for row in rows]

        return await self._database.read(work)


async def _lock(connection: AsyncConnection, wanted: Sequence[AccountId]) -> dict[AccountId, Head]:
    """The heads of these owners, which nobody else moves until the transaction ends. New owners get one first."""
    these = select(RECEIPT_HEADS).where(RECEIPT_HEADS.c.owner.in_(wanted)).order_by(RECEIPT_HEADS.c.owner)
    rows = (await connection.execute(these.with_for_update())).all()
    if len(rows) < len(wanted):
        known = {row.owner for row in rows}
        new = [_head(owner, Head()) for owner in wanted if owner not in known]
        await insert_all(connection, RECEIPT_HEADS, new, upsert(connection, RECEIPT_HEADS).on_conflict_do_nothing())
        rows = (await connection.execute(these.with_for_update())).all()
    return {AccountId(row.owner): Head(row.sequence, row.digest, Nano(row.total)) for row in rows}


def _head(owner: AccountId, head: Head) -> dict[str, Any]:
    return {"owner": owner, "sequence": head.sequence, "digest": head.digest, "total": head.total}


def _row(written: Written) -> dict[str, Any]:
    receipt = written.signed.receipt
    return {
        "id": receipt.id,
        "owner": receipt.owner,
        "sequence": receipt.sequence,
        "event_id": written.event_id,
        "request_id": receipt.request or None,
        "node": receipt.node or None,
        "node_class": written.node_class,
        "model": receipt.model or None,
        "at": receipt.at,
        "drafted": receipt.drafted,
        "accepted": receipt.accepted,
        "marginal": receipt.marginal,
        "amount": receipt.amount,
        "millijoules": written.millijoules,
        "body": receipt.canonical(),
        "digest": written.signed.digest,
        "signature": written.signed.signature,
    }
