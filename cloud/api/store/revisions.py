"""Revisions: numbers that only grow, by which a reader asks for what has changed since it last looked."""

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.store.tables import COUNTERS


async def next_revision(connection: AsyncConnection, name: str) -> int:
    """The next one of the counter `name`, which a migration has made. Whoever takes one holds the counter's row until
    the commit, so that revisions appear in order.
    """
    mine = COUNTERS.c.name == name
    await connection.execute(update(COUNTERS).where(mine).values(value=COUNTERS.c.value + 1))
    return int((await connection.execute(select(COUNTERS.c.value).where(mine))).scalar_one())
