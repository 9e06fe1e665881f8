"""Many rows at once, on SQLite and PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Insert, Table, insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

Upsert = postgresql.Insert | sqlite.Insert


async def insert_all(
    connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]], statement: Insert | None = None
) -> None:
    """Insert `rows`, if there are any, by `statement` or plainly."""
    if not rows:
        return
    statement = insert(table) if statement is None else statement
    if connection.dialect.name == "postgresql":
        # A statement that returns something is sent with many rows in its VALUES, others once for each row.
        statement = statement.returning(next(iter(table.primary_key)))
    await connection.execute(statement, rows)


def upsert(connection: AsyncConnection, table: Table) -> Upsert:
    """An insert to be given `on_conflict_do_update` or `on_conflict_do_nothing`, which both databases spell alike."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
