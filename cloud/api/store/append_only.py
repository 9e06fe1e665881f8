"""Triggers that refuse to change or delete rows of a table, for migrations: SQLite and PostgreSQL."""

from alembic import op


def protect(table: str) -> None:
    """From now on, UPDATE and DELETE on `table` fail."""
    words = f"rows of {table} are never changed"
    if op.get_bind().dialect.name == "sqlite":
        for event in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER keep_{table}_{event.lower()} BEFORE {event} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{words}'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION keep_{table}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{words}' USING ERRCODE = 'restrict_violation'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER keep_{table} BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION keep_{table}()"
    )


def unprotect(table: str) -> None:
    """Undo `protect`."""
    if op.get_bind().dialect.name == "sqlite":
        for event in ("update", "delete"):
            op.execute(f"DROP TRIGGER keep_{table}_{event}")
        return
    op.execute(f"DROP TRIGGER keep_{table} ON {table}")
    op.execute(f"DROP FUNCTION keep_{table}()")
