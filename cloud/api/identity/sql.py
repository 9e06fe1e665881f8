"""Keeps identity in the database."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.sql import revoke_of
from cloud.api.audit.entry import Entry
from cloud.api.audit.sql import append
from cloud.api.identity.account import ROLES, Account, AccountChange, AccountState, ordered
from cloud.api.identity.grant import Grant, GrantState, NewGrant
from cloud.api.identity.node import Node, NodeState
from cloud.api.identity.ports import GrantChange, GrantView, NodeChange, NodeChanges
from cloud.api.identity.rules import (
    KEEP_GRANTS_S,
    KEEP_SESSIONS_S,
    check_sign_in,
    email_taken,
    ended_with,
    no_account,
    no_node,
    too_many_codes,
)
from cloud.api.identity.session import NewSession, Session, SessionState
from cloud.api.store.database import Database
from cloud.api.store.identity_tables import GRANTS, NODES, PEOPLE, SESSIONS
from cloud.api.store.revisions import next_revision
from shared.ids import AccountId, NodeId

_COUNTER = "nodes"


class SqlIdentity:
    """An `IdentityStore`. The database is opened and closed by whoever made it.

    Rows are locked in one order everywhere: grant, account, session or key or node, counter.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- accounts --------------------------------------------------------------------------------

    async def add_account(self, account: Account, entry: Entry) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(insert(PEOPLE).values(**_account_row(account)))
            await append(connection, entry)

        try:
            await self._database.write(work)
        except IntegrityError:
            raise email_taken() from None

    async def account(self, account: AccountId) -> Account | None:
        return await self._database.read(lambda connection: _account(connection, account))

    async def account_of(self, email: str) -> Account | None:
        async def work(connection: AsyncConnection) -> Account | None:
            found = (await connection.execute(select(PEOPLE).where(PEOPLE.c.email == email))).one_or_none()
            return None if found is None else _account_of(found)

        return await self._database.read(work)

    async def accounts(self, limit: int, after: AccountId | None = None) -> Sequence[Account]:
        place = (PEOPLE.c.created_at, PEOPLE.c.id)
        asked = select(PEOPLE).order_by(*place).limit(limit)
        if after is not None:
            behind = select(*place).where(PEOPLE.c.id == after).subquery()
            asked = asked.join(behind, tuple_(*place) > tuple_(behind.c.created_at, behind.c.id))

        async def work(connection: AsyncConnection) -> Sequence[Account]:
            return [_account_of(row) for row in await connection.execute(asked)]

        return await self._database.read(work)

    async def change_account(self, account: AccountId, decide: Callable[[Account], AccountChange], at: int) -> Account:
        async def work(connection: AsyncConnection) -> Account:
            found = await _account(connection, account, lock=True)
            if found is None:
                raise no_account()
            change = decide(found)
            this = PEOPLE.c.id == account
            await connection.execute(update(PEOPLE).where(this).values(**_account_row(change.account)))
            await append(connection, change.entry)
            await _end(connection, change, at)
            return change.account

        return await self._database.write(work)

    async def renew_password(self, account: AccountId, old: str, new: str) -> None:
        this = (PEOPLE.c.id == account) & (PEOPLE.c.password == old)
        await self._database.write(
            lambda connection: connection.execute(update(PEOPLE).where(this).values(password=new))
        )

    # --- sessions --------------------------------------------------------------------------------

    async def add_session(self, new: NewSession, most: int, entry: Entry) -> None:
        session = new.session
        now = session.created_at

        async def work(connection: AsyncConnection) -> None:
            check_sign_in(await _account(connection, session.account, lock=True))
            await connection.execute(delete(SESSIONS).where(SESSIONS.c.expires_at <= now - KEEP_SESSIONS_S))
            old = select(SESSIONS.c.id).where(_active(session.account, now))
            kept = old.order_by(SESSIONS.c.created_at.desc(), SESSIONS.c.id.desc()).limit(most - 1)
            surplus = _active(session.account, now) & SESSIONS.c.id.not_in(kept)
            await connection.execute(update(SESSIONS).where(surplus).values(ended_at=now))
            row = {each.name: getattr(session, each.name) for each in fields(Session)}
            await connection.execute(insert(SESSIONS).values(**row, digest=new.digest))
            await append(connection, entry)

        await self._database.write(work)

    async def session(self, digest: bytes) -> tuple[Session, Account] | None:
        async def work(connection: AsyncConnection) -> tuple[Session, Account] | None:
            row = (await connection.execute(select(SESSIONS).where(SESSIONS.c.digest == digest))).one_or_none()
            if row is None:
                return None
            session = _session_of(row)
            account = await _account(connection, session.account)
            return None if account is None else (session, account)

        return await self._database.read(work)

    async def sessions(self, account: AccountId, now: float) -> Sequence[Session]:
        newest = (SESSIONS.c.created_at.desc(), SESSIONS.c.id.desc())
        asked = select(SESSIONS).where(_active(account, now)).order_by(*newest)

        async def work(connection: AsyncConnection) -> Sequence[Session]:
            return [_session_of(row) for row in await connection.execute(asked)]

        return await self._database.read(work)

    async def end_session(self, account: AccountId, session: str, at: int, entry: Entry) -> Session | None:
        this = (SESSIONS.c.id == session) & (SESSIONS.c.account == account)

        async def work(connection: AsyncConnection) -> Session | None:
            row = (await connection.execute(select(SESSIONS).where(this).with_for_update())).one_or_none()
            if row is None:
                return None
            found = _session_of(row)
            if found.state(at) is SessionState.ACTIVE:
                found = found.end(at)
                await connection.execute(update(SESSIONS).where(this).values(ended_at=found.ended_at))
                await append(connection, entry)
            return found

        return await self._database.write(work)

    # --- device codes ----------------------------------------------------------------------------

    async def add_grant(self, new: NewGrant, most: int) -> bool:
        grant = new.grant
        now = grant.created_at

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(delete(GRANTS).where(GRANTS.c.expires_at <= now - KEEP_GRANTS_S))
            pending = (GRANTS.c.state == str(GrantState.PENDING)) & (GRANTS.c.expires_at > now)
            counted = await connection.execute(select(func.count()).select_from(GRANTS).where(pending))
            if counted.scalar_one() >= most:
                raise too_many_codes()
            await connection.execute(insert(GRANTS).values(**_grant_row(grant), digest=new.digest))

        try:
            await self._database.write(work)
        except IntegrityError:
            return False
        return True

    async def grant(self, user_code: str) -> Grant | None:
        async def work(connection: AsyncConnection) -> Grant | None:
            row = (await connection.execute(select(GRANTS).where(GRANTS.c.user_code == user_code))).one_or_none()
            return None if row is None else _grant_of(row)

        return await self._database.read(work)

    async def change_grant(self, key: bytes | str, decide: Callable[[GrantView], GrantChange]) -> Grant | None:
        this = GRANTS.c.digest == key if isinstance(key, bytes) else GRANTS.c.user_code == key

        async def work(connection: AsyncConnection) -> Grant | None:
            row = (await connection.execute(select(GRANTS).where(this).with_for_update())).one_or_none()
            if row is None:
                return None
            grant = _grant_of(row)
            account = None
            if grant.account is not None:
                account = await _account(connection, grant.account, lock=True)
            node = await _node(connection, grant.node)
            change = decide(GrantView(grant, account, node))
            await connection.execute(update(GRANTS).where(this).values(**_grant_row(change.grant)))
            if change.node is not None and change.node != node:
                await _put(connection, change.node, known=node is not None)
            await append(connection, change.entry)
            return change.grant

        return await self._database.write(work)

    # --- nodes -----------------------------------------------------------------------------------

    async def nodes(self, limit: int, after: NodeId | None = None, owner: AccountId | None = None) -> Sequence[Node]:
        asked = select(NODES).order_by(NODES.c.id).limit(limit)
        if after is not None:
            asked = asked.where(NODES.c.id > after)
        if owner is not None:
            asked = asked.where(NODES.c.owner == owner)

        async def work(connection: AsyncConnection) -> Sequence[Node]:
            return [_node_of(row) for row in await connection.execute(asked)]

        return await self._database.read(work)

    async def change_node(self, node: NodeId, decide: Callable[[Node], NodeChange]) -> Node:
        async def work(connection: AsyncConnection) -> Node:
            found = await _node(connection, node)
            if found is None:
                raise no_node()
            change = decide(found)
            await _put(connection, change.node, known=True)
            await append(connection, change.entry)
            return change.node

        return await self._database.write(work)

    async def node_changes(self, since: int) -> NodeChanges:
        newer = select(NODES).where(NODES.c.revision > since).order_by(NODES.c.revision)

        async def work(connection: AsyncConnection) -> NodeChanges:
            rows = (await connection.execute(newer)).all()
            nodes = {node.id: node for node in map(_node_of, rows)}
            return NodeChanges(rows[-1].revision if rows else since, nodes)

        return await self._database.read(work)


async def _end(connection: AsyncConnection, change: AccountChange, at: int) -> None:
    """Sessions, keys and nodes that end with the change of an account."""
    account = change.account.id
    by = change.entry.actor if change.entry else None
    if "sessions" in change.ends:
        ending = (SESSIONS.c.account == account) & SESSIONS.c.ended_at.is_(None)
        if change.keep is not None:
            ending &= SESSIONS.c.id != change.keep
        await connection.execute(update(SESSIONS).where(ending).values(ended_at=at))
    if "keys" in change.ends:
        for key in await revoke_of(connection, account, at):
            await append(connection, ended_with(account, "key.revoked", key, by, at))
    if "nodes" in change.ends:
        paired = (NODES.c.owner == account) & (NODES.c.state == str(NodeState.PAIRED))
        found = (await connection.execute(select(NODES.c.id).where(paired).with_for_update())).scalars().all()
        if found:
            revision = await next_revision(connection, _COUNTER)
            values = {"state": str(NodeState.REVOKED), "revoked_at": at, "revision": revision}
            await connection.execute(update(NODES).where(paired).values(**values))
        for node in found:
            await append(connection, ended_with(account, "node.revoked", node, by, at))


async def _account(connection: AsyncConnection, account: AccountId, *, lock: bool = False) -> Account | None:
    asked = select(PEOPLE).where(PEOPLE.c.id == account)
    row = (await connection.execute(asked.with_for_update() if lock else asked)).one_or_none()
    return None if row is None else _account_of(row)


async def _node(connection: AsyncConnection, node: NodeId) -> Node | None:
    row = (await connection.execute(select(NODES).where(NODES.c.id == node).with_for_update())).one_or_none()
    return None if row is None else _node_of(row)


async def _put(connection: AsyncConnection, node: Node, *, known: bool) -> None:
    row = {each.name: getattr(node, each.name) for each in fields(Node)} | {"state": str(node.state)}
    row["revision"] = await next_revision(connection, _COUNTER)
    if known:
        await connection.execute(update(NODES).where(NODES.c.id == node.id).values(**row))
    else:
        await connection.execute(insert(NODES).values(**row))


def _active(account: AccountId, now: float) -> Any:
    return (SESSIONS.c.account == account) & SESSIONS.c.ended_at.is_(None) & (SESSIONS.c.expires_at > now)


def _account_row(account: Account) -> dict[str, Any]:
    row = {each.name: getattr(account, each.name) for each in fields(Account)}
    return row | {"roles": " ".join(ordered(account.roles)), "state": str(account.state)}


def _account_of(row: Row[Any]) -> Account:
    given = row.roles.split()
    values = {each.name: getattr(row, each.name) for each in fields(Account)}
    values |= {"roles": frozenset(role for role in ROLES if role in given), "state": AccountState(row.state)}
    return Account(**values)


def _session_of(row: Row[Any]) -> Session:
    return Session(**{each.name: getattr(row, each.name) for each in fields(Session)})


def _grant_row(grant: Grant) -> dict[str, Any]:
    return {each.name: getattr(grant, each.name) for each in fields(Grant)} | {"state": str(grant.state)}


def _grant_of(row: Row[Any]) -> Grant:
    return replace(Grant(**{each.name: getattr(row, each.name) for each in fields(Grant)}), state=GrantState(row.state))


def _node_of(row: Row[Any]) -> Node:
    values = {each.name: getattr(row, each.name) for each in fields(Node)}
    return Node(**values | {"state": NodeState(row.state)})
