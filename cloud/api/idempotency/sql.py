"""Keeps answers in the database."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.money import Nano
from cloud.api.idempotency.answers import Found, Kept, decide, taken_over
from cloud.api.store.database import Database
from cloud.api.store.tables import ANSWERS

_COLUMNS = [f.name for f in fields(Kept) if f.name != "headers"]
_PURGE_BATCH = 200


class SqlAnswers:
    """An `AnswerStore`. The database is opened and closed by whoever made it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, new: Kept, now: float) -> tuple[Found, Kept]:
        async def work(connection: AsyncConnection) -> tuple[Found, Kept]:
            row = (await connection.execute(select(ANSWERS).where(ANSWERS.c.claim == new.claim))).one_or_none()
            found = None if row is None else _kept(row)
            decision = decide(found, new, now)
            if decision in (Found.NEW, Found.TAKE_OVER):
                mine = new
                if found is not None:
                    await connection.execute(delete(ANSWERS).where(ANSWERS.c.id == found.id))
                    mine = taken_over(found, new) if decision is Found.TAKE_OVER else new
                await connection.execute(insert(ANSWERS).values(**_values(mine)))
                return decision, mine
            assert found is not None
            return decision, found

        return await self._database.write(work)

    async def keep(self, answers: Sequence[Kept]) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(delete(ANSWERS).where(ANSWERS.c.id.in_([answer.id for answer in answers])))
            await connection.execute(insert(ANSWERS), [_values(answer) for answer in answers])

        if answers:
            await self._database.write(work)

    async def drop(self, answer: str) -> None:
        await self._database.write(lambda connection: connection.execute(delete(ANSWERS).where(ANSWERS.c.id == answer)))

    async def match(self, fingerprint: bytes, since: float, retry: int) -> Kept | None:
        fitting = select(ANSWERS).where(
            ANSWERS.c.fingerprint == fingerprint,
            ANSWERS.c.claim.is_(None),
            ANSWERS.c.retries < retry,
            ANSWERS.c.ended_at >= since,
        )
        best = fitting.order_by(
            ANSWERS.c.retries.desc(), (ANSWERS.c.state == "done").desc(), ANSWERS.c.ended_at.desc(), ANSWERS.c.id.desc()
        ).limit(1)

        async def look(connection: AsyncConnection) -> bool:
            return bool((await connection.execute(select(fitting.exists()))).scalar_one())

        async def take(connection: AsyncConnection) -> Kept | None:
            row = (await connection.execute(best)).one_or_none()
            if row is None:
                return None
            this = ANSWERS.c.id == row.id
            if row.content is None:
                await connection.execute(delete(ANSWERS).where(this))
            else:
                await connection.execute(update(ANSWERS).where(this).values(retries=retry))
            return _kept(row)

        # A client may mark anything as a retry: only one that is about something takes the writers' turn.
        return await self._database.write(take) if await self._database.read(look) else None

    async def renew(self, answers: Sequence[str], lease_until: int) -> None:
        await self._lease(ANSWERS.c.id.in_(answers), lease_until)

    async def release(self, owner: str) -> None:
        await self._lease(ANSWERS.c.owner == owner, 0)

    async def purge(self, now: float, most_bytes: int) -> int:
        async def work(connection: AsyncConnection) -> int:
            unowned = (ANSWERS.c.state != "running") | (ANSWERS.c.lease_until <= now)
            await connection.execute(delete(ANSWERS).where((ANSWERS.c.expires_at <= now) & unowned))
            total = int((await connection.execute(select(func.coalesce(func.sum(ANSWERS.c.size), 0)))).scalar_one())
            while total > most_bytes:
                oldest = select(ANSWERS.c.id, ANSWERS.c.size).where(ANSWERS.c.size > 0)
                rows = (await connection.execute(oldest.order_by(ANSWERS.c.ended_at).limit(_PURGE_BATCH))).all()
                gone = []
                for row in rows:
                    if total > most_bytes:
                        gone.append(row.id)
                        total -= row.size
                if not gone:
                    break
                await connection.execute(delete(ANSWERS).where(ANSWERS.c.id.in_(gone)))
            return total

        return await self._database.write(work)

    async def _lease(self, which: ColumnElement[bool], until: int) -> None:
        leased = update(ANSWERS).where(which & (ANSWERS.c.state == "running")).values(lease_until=until)
        await self._database.write(lambda connection: connection.execute(leased))


def _values(answer: Kept) -> dict[str, Any]:
    headers = b"\n".join(name + b": " + value for name, value in answer.headers).decode("latin-1")
    return {**{name: getattr(answer, name) for name in _COLUMNS}, "headers": headers, "size": answer.size}


def _kept(row: Row[Any]) -> Kept:
    lines = [line.partition(b": ") for line in row.headers.encode("latin-1").split(b"\n") if line]
    columns = {name: getattr(row, name) for name in _COLUMNS}
    columns["billed"] = Nano(row.billed)
    return Kept(**columns, headers=tuple((name, value) for name, _, value in lines))
