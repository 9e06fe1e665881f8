"""Keeps the audit log in the database."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.audit.entry import Actor, Entry, Logged
from cloud.api.store.database import Database
from cloud.api.store.identity_tables import AUDIT


async def append(connection: AsyncConnection, *entries: Entry | None) -> None:
    """Write entries in the transaction of the change that they tell of."""
    for entry in entries:
        if entry is not None:
            detail = msgspec.json.encode(dict(entry.detail)).decode()
            row = {"at": entry.at, "actor": entry.actor, "action": entry.action, "subject": entry.subject}
            await connection.execute(insert(AUDIT).values(**row, detail=detail))


class SqlAudit:
    """An `AuditLog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, limit: int, before: int | None = None, subject: str | None = None) -> Sequence[Logged]:
        asked = select(AUDIT).order_by(AUDIT.c.seq.desc()).limit(limit)
        if before is not None:
            asked = asked.where(AUDIT.c.seq < before)
        if subject is not None:
            asked = asked.where(AUDIT.c.subject == subject)

        async def work(connection: AsyncConnection) -> Sequence[Logged]:
            return [
                Logged(
                    row.seq,
                    Entry(
                        at=row.at,
                        actor=Actor(row.actor),
                        action=row.action,
                        subject=row.subject,
                        detail=msgspec.json.decode(row.detail),
                    ),
                )
                for row in await connection.execute(asked)
            ]

        return await self._database.read(work)
