"""INSERT with ON CONFLICT, which SQLite and PostgreSQL spell alike, but SQLAlchemy does not."""

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

Upsert = postgresql.Insert | sqlite.Insert


def upsert(connection: AsyncConnection, table: Table) -> Upsert:
    """An insert of the connection's dialect, to be given `on_conflict_do_update` or `on_conflict_do_nothing`."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
