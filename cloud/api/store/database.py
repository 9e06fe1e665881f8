"""Opens the database, brings it up to date, and runs transactions that a cancelled caller cannot tear."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import alembic.command
import alembic.config
import alembic.util
from sqlalchemy import Connection, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from shared.errors import ConfigError, Unavailable

BUSY_MS = 5000
"""How long a transaction waits for another process's to end."""
MEMORY = ":memory:"
"""The setting that keeps everything in this process and nothing on disk."""
_MIGRATIONS = Path(__file__).parent / "migrations"
_IMMEDIATE = "nexus_immediate"
T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]


class StoreFailed(Unavailable):
    """The database did not answer, or refused to."""


class Database:
    """`address` is a path of an SQLite file, or an SQLAlchemy URL (`sqlite+aiosqlite:///…`, `postgresql+psycopg://…`).

    Work runs in a task of its own: a caller who is cancelled leaves it to end by itself, whole. Writes of one process
    wait for each other here, those of several in the database.
    """

    def __init__(self, address: str) -> None:
        self._url, self._file = _url(address)
        self._engine: AsyncEngine | None = None
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Connect and migrate. Raises `ConfigError` when the database cannot be used."""
        logging.getLogger("alembic").setLevel(logging.WARNING)
        engine: AsyncEngine | None = None
        try:
            if self._file is not None:
                _make_private(self._file)
            # What is written never comes into an error's text, and so into no log: answers, digests of keys.
            engine = create_async_engine(self._url, hide_parameters=True)
            if engine.dialect.name == "sqlite":
                event.listen(engine.sync_engine, "connect", _prepare_sqlite)
                event.listen(engine.sync_engine, "begin", _begin_sqlite)
            async with engine.execution_options(**{_IMMEDIATE: True}).begin() as connection:
                await connection.run_sync(_migrate)
        except (OSError, SQLAlchemyError, ImportError, alembic.util.CommandError) as error:
            if engine is not None:
                await engine.dispose()
            raise ConfigError(f"The database {self._name()} cannot be used: {_reason(error)}") from None
        self._engine = engine

    async def close(self) -> None:
        """Waits for running work. May be called twice."""
        while self._running:
            await asyncio.wait(set(self._running))
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.dispose()

    async def read(self, work: Work[T]) -> T:
        """Run `work` in a transaction that only reads. Raises `StoreFailed`."""
        return await self._whole(self._run(work, immediate=False))

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction that is committed when it returns. Raises `StoreFailed`, `IntegrityError`."""
        return await self._whole(self._write(work))

    async def _write(self, work: Work[T]) -> T:
        async with self._turn:
            return await self._run(work, immediate=True)

    async def _run(self, work: Work[T], *, immediate: bool) -> T:
        if self._engine is None:
            raise StoreFailed("The gateway's database is not open.")
        try:
            async with self._engine.execution_options(**{_IMMEDIATE: immediate}).begin() as connection:
                return await work(connection)
        except IntegrityError:
            raise
        except (DBAPIError, NoFreeConnection, OSError) as error:
            raise StoreFailed("The gateway cannot reach its records at the moment. Try again shortly.") from error

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # asked for, so that a caller who has gone leaves no warning

    def _name(self) -> str:
        return str(self._file) if self._file is not None else self._url.rpartition("@")[2]


def file_of(address: str) -> Path | None:
    """The file of an SQLite database; none for another kind. Raises `ConfigError`."""
    return _url(address)[1]


def _url(address: str) -> tuple[str, Path | None]:
    """The URL, and the file if it is one of SQLite."""
    if "://" not in address:
        path = Path(address).expanduser().absolute()
        return f"sqlite+aiosqlite:///{path}", path
    try:
        url = make_url(address)
    except ArgumentError:
        raise ConfigError("`database` is no path and no URL of a database: see docs/settings.md.") from None
    if url.get_backend_name() != "sqlite":
        return address, None
    if not url.database or url.database == MEMORY:
        raise ConfigError(f"For a database in memory, set `database` to {MEMORY}.")
    return url.set(drivername="sqlite+aiosqlite").render_as_string(hide_password=False), Path(url.database)


def _make_private(path: Path) -> None:
    """The file holds digests of keys and, for a time, answers: only its owner may read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # we begin transactions ourselves
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", f"busy_timeout = {BUSY_MS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """A transaction that will write takes the lock at once: later it could find its reading out of date and fail."""
    immediate = connection.get_execution_options().get(_IMMEDIATE)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def _migrate(connection: Connection) -> None:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")


def _reason(error: Exception) -> str:
    if isinstance(error, alembic.util.CommandError):
        return "it was made by another version of Nexus. Use that version, or another database."
    if isinstance(error, ImportError):
        return f"the module {error.name} is not installed."
    if isinstance(error, OSError):
        return f"{error.strerror}. Set `database` to a place that this user can write."
    cause = error.orig if isinstance(error, DBAPIError) else error
    return f"{str(cause).splitlines()[0]}."
