"""A database whose connection breaks at a chosen statement, as when a process dies between two writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from cloud.api.store.database import Database


class Crash(Exception):
    """What a test makes happen."""


@contextmanager
def crash_at(database: Database, statement: int) -> Iterator[None]:
    """Raise `Crash` instead of executing the statement with this number, from 0; one beyond the last is none."""
    assert database._engine is not None
    engine = database._engine.sync_engine
    count = 0

    def before(*_: Any) -> None:
        nonlocal count
        count += 1
        if count > statement:
            raise Crash

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", before)
