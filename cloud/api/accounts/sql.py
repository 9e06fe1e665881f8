"""Keeps accounts in the database."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

from sqlalchemy import Row, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import SCOPES, ApiKey, KeyId, NewKey, Privacy, Terms
from cloud.api.accounts.money import Nano
from cloud.api.accounts.ports import Changes
from cloud.api.audit.entry import Entry
from cloud.api.audit.sql import append
from cloud.api.store.bulk import insert_all
from cloud.api.store.database import Database
from cloud.api.store.identity_tables import PEOPLE
from cloud.api.store.revisions import next_revision
from cloud.api.store.tables import API_KEYS, SPENDING, USAGE
from shared.errors import Forbidden, NotFound
from shared.ids import AccountId

_COUNTER = "api_keys"
_SHARED = [f.name for f in fields(Terms) if f.name != "scopes"]
"""Columns that hold a field of `Terms` as it is."""


class SqlAccounts:
    """An `AccountStore`. The database is opened and closed by whoever made it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, new: NewKey, entry: Entry | None = None) -> None:
        async def work(connection: AsyncConnection) -> None:
            if new.key.account is not None:
                await _check_holder(connection, new.key.account)
            revision = await next_revision(connection, _COUNTER)
            await connection.execute(insert(API_KEYS).values(**_values(new), revision=revision))
            await append(connection, entry)

        await self._database.write(work)

    async def revoke(self, key: KeyId, at: int, entry: Entry | None = None) -> ApiKey | None:
        async def work(connection: AsyncConnection) -> ApiKey | None:
            this = API_KEYS.c.id == key
            found = (await connection.execute(select(API_KEYS).where(this).with_for_update())).one_or_none()
            if found is None:
                return None
            if found.revoked_at is None:
                await append(connection, entry)
                revision = await next_revision(connection, _COUNTER)
                await connection.execute(update(API_KEYS).where(this).values(revoked_at=at, revision=revision))
                found = (await connection.execute(select(API_KEYS).where(this))).one()
            return _key(found)

        return await self._database.write(work)

    async def changes(self, since: int) -> Changes:
        async def work(connection: AsyncConnection) -> Changes:
            newer = select(API_KEYS).where(API_KEYS.c.revision > since).order_by(API_KEYS.c.revision)
            rows = (await connection.execute(newer)).all()
            return Changes(rows[-1].revision if rows else since, {row.digest: _key(row) for row in rows})

        return await self._database.read(work)

    async def record(self, charges: Sequence[Charge]) -> Mapping[tuple[KeyId, str], Nano]:
        return await self._database.write(lambda connection: write_charges(connection, charges))

    async def spending(self, month: str) -> Mapping[KeyId, Nano]:
        async def work(connection: AsyncConnection) -> Mapping[KeyId, Nano]:
            rows = await connection.execute(select(SPENDING.c.key_id, SPENDING.c.cost).where(SPENDING.c.month == month))
            return {KeyId(row.key_id): Nano(row.cost) for row in rows}

        return await self._database.read(work)

    async def charges(self, key: KeyId, limit: int) -> Sequence[Charge]:
        async def work(connection: AsyncConnection) -> Sequence[Charge]:
            mine = select(USAGE).where(USAGE.c.key_id == key)
            rows = await connection.execute(mine.order_by(USAGE.c.at.desc(), USAGE.c.request_id).limit(limit))
            return [Charge(**row._mapping) for row in rows]

        return await self._database.read(work)


async def _check_holder(connection: AsyncConnection, account: AccountId) -> None:
    """The row is held until the commit, so that no account is disabled while it gets a key."""
    mine = select(PEOPLE.c.state, PEOPLE.c.roles).where(PEOPLE.c.id == account).with_for_update(read=True)
    found = (await connection.execute(mine)).one_or_none()
    if found is None:
        raise NotFound(f"There is no account {account}.")
    if found.state != "active" or "developer" not in found.roles.split():
        raise Forbidden(f"The account {account} may have no API keys: it is disabled, or no developer's.")


async def revoke_of(connection: AsyncConnection, account: AccountId, at: int) -> list[KeyId]:
    """Revoke every key of an account in a transaction; gives those that were not revoked before."""
    this = (API_KEYS.c.account == account) & API_KEYS.c.revoked_at.is_(None)
    # The rows first: whoever revokes one key takes them in this order, too.
    keys = [
        KeyId(each)
        for each in (await connection.execute(select(API_KEYS.c.id).where(this).with_for_update())).scalars()
    ]
    if keys:
        revision = await next_revision(connection, _COUNTER)
        await connection.execute(update(API_KEYS).where(this).values(revoked_at=at, revision=revision))
    return keys


async def write_charges(connection: AsyncConnection, charges: Sequence[Charge]) -> Mapping[tuple[KeyId, str], Nano]:
    """As `AccountStore.record`, as a part of a transaction that does more."""
    told = {charge.request_id: charge for charge in charges}
    known = await connection.execute(select(USAGE.c.request_id).where(USAGE.c.request_id.in_(told)))
    for request_id in known.scalars():
        del told[request_id]
    await insert_all(connection, USAGE, [_row(told[request_id]) for request_id in sorted(told)])
    by_month: dict[tuple[KeyId, str], list[Charge]] = defaultdict(list)
    for charge in told.values():
        by_month[charge.key_id, charge.month].append(charge)
    for key, month in sorted(by_month):
        await _sum_up(connection, key, month, by_month[key, month])
    return {place: await _sum(connection, *place) for place in {(c.key_id, c.month) for c in charges}}


async def _sum_up(connection: AsyncConnection, key: KeyId, month: str, charges: Sequence[Charge]) -> None:
    more = {
        "requests": len(charges),
        "prompt_tokens": sum(c.prompt_tokens for c in charges),
        "completion_tokens": sum(c.completion_tokens for c in charges),
        "cost": sum(c.cost for c in charges),
    }
    this = (SPENDING.c.key_id == key) & (SPENDING.c.month == month)
    added = update(SPENDING).where(this).values({name: SPENDING.c[name] + value for name, value in more.items()})
    if not (await connection.execute(added)).rowcount:
        await connection.execute(insert(SPENDING).values(key_id=key, month=month, **more))


async def _sum(connection: AsyncConnection, key: KeyId, month: str) -> Nano:
    this = (SPENDING.c.key_id == key) & (SPENDING.c.month == month)
    return Nano((await connection.execute(select(SPENDING.c.cost).where(this))).scalar_one())


def _values(new: NewKey) -> dict[str, Any]:
    key, terms = new.key, new.key.terms
    return {
        "id": key.id,
        "digest": new.digest,
        "start": key.start,
        "scopes": " ".join(sorted(terms.scopes)),
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
        "account": key.account,
        **{name: getattr(terms, name) for name in _SHARED},
    }


def _key(row: Row[Any]) -> ApiKey:
    scopes = frozenset(scope for scope in SCOPES if scope in row.scopes.split())
    shared = {name: getattr(row, name) for name in _SHARED}
    if shared["privacy"] is not None and shared["privacy"] not in get_args(Privacy):
        shared["privacy"] = "verifier_only"  # of a newer version: the narrowest there is
    terms = Terms(scopes=scopes, **shared)
    return ApiKey(
        id=KeyId(row.id),
        start=row.start,
        terms=terms,
        created_at=row.created_at,
        revoked_at=row.revoked_at,
        account=None if row.account is None else AccountId(row.account),
    )


def _row(charge: Charge) -> dict[str, Any]:
    return {f.name: getattr(charge, f.name) for f in fields(Charge)}
