"""The database: migrations, transactions, and what happens when it cannot be used."""

import asyncio
import stat

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from cloud.api.store.database import Database, StoreFailed
from cloud.api.store.schema import METADATA
from cloud.api.store.tables import COUNTERS
from shared.errors import ConfigError


@pytest.fixture
async def database(tmp_path):
    """A new one in a file."""
    database = Database(str(tmp_path / "folder" / "nexus.db"))
    await database.open()
    yield database
    await database.close()


async def _add(connection, name="a", value=0):
    await connection.execute(insert(COUNTERS).values(name=name, value=value))


async def _value(connection, name="a"):
    return (await connection.execute(select(COUNTERS.c.value).where(COUNTERS.c.name == name))).scalar()


async def test_migrations_make_the_tables(database):
    """What alembic made is what the code expects, and the file is its owner's alone."""

    async def differences(connection):
        return await connection.run_sync(lambda c: compare_metadata(MigrationContext.configure(c), METADATA))

    assert await database.read(differences) == []
    path = database._file
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_pragmas(database):
    """Readers and a writer do not block each other, references are checked, other processes are waited for."""

    async def pragmas(connection):
        names = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        return [(await connection.execute(text(f"PRAGMA {name}"))).scalar() for name in names]

    assert await database.read(pragmas) == ["wal", 1, 5000, 2]


async def test_kept_and_opened_again(database):
    """A second opening finds what the first wrote; several processes may open it at once."""
    await database.write(lambda c: _add(c, value=7))
    others = [Database(str(database._file)) for _ in range(3)]
    await asyncio.gather(*(other.open() for other in others))
    assert [await other.read(_value) for other in others] == [7, 7, 7]
    for other in others:
        await other.close()


async def test_writers_take_turns(database):
    """Reading and then writing in one transaction loses nothing, in this process and between several."""
    await database.write(_add)
    other = Database(str(database._file))
    await other.open()

    async def count(connection):
        value = await _value(connection)
        await asyncio.sleep(0)
        await connection.execute(update(COUNTERS).values(value=value + 1))

    await asyncio.gather(*(db.write(count) for db in (database, other) for _ in range(20)))
    assert await database.read(_value) == 40
    await other.close()


async def test_failure_undoes_the_whole(database):
    """An exception leaves nothing of the transaction."""

    async def half(connection):
        await _add(connection)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await database.write(half)
    assert await database.read(_value) is None


async def test_cancelled_caller_tears_nothing(database):
    """The work of a caller who is cancelled in the middle ends by itself, whole."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(connection):
        await _add(connection, "first")
        begun.set()
        await go.wait()
        await _add(connection, "second", 2)

    task = asyncio.create_task(database.write(slow))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await database.write(lambda c: _add(c, "third"))
    assert await database.read(lambda c: _value(c, "second")) == 2


async def test_closed_database_is_unavailable(database):
    """After closing, work is refused with an error that a client may retry."""
    await database.close()
    with pytest.raises(StoreFailed):
        await database.read(_value)


@pytest.mark.parametrize("failure", [NoFreeConnection("QueuePool limit"), ConnectionRefusedError(111, "refused")])
async def test_database_that_does_not_answer(database, failure):
    """Nor is a full pool or a refused connection, which SQLAlchemy passes on as they are, an unforeseen failure."""

    async def fail(_):
        raise failure

    with pytest.raises(StoreFailed):
        await database.read(fail)


async def test_errors_do_not_repeat_what_is_written(database):
    """Their texts go into logs."""
    failures = []

    async def twice(connection):
        for _ in range(2):
            try:
                await _add(connection, "a-secret")
            except IntegrityError as error:
                failures.append(str(error))

    await database.write(twice)
    assert len(failures) == 1 and "a-secret" not in failures[0]


async def test_database_that_cannot_be_used(tmp_path):
    """Each reason is told in words: no place to write, no database at all, another version, no driver."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="Set `database` to a place"):
        await Database(str(tmp_path / "file" / "x.db")).open()
    (tmp_path / "text").write_text("no database, but long enough to be looked at" * 30)
    with pytest.raises(ConfigError, match="not a database"):
        await Database(str(tmp_path / "text")).open()
    newer = Database(str(tmp_path / "newer.db"))
    await newer.open()
    await newer.write(lambda c: c.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    await newer.close()
    with pytest.raises(ConfigError, match="another version"):
        await newer.open()
    with pytest.raises(ConfigError, match="no path and no URL"):
        Database("://x")
    with pytest.raises(ConfigError, match=":memory:"):
        Database("sqlite:///:memory:")
    with pytest.raises(ConfigError, match="asyncpg is not installed") as caught:
        await Database("postgresql+asyncpg://user:secret@db/nexus").open()
    assert "secret" not in str(caught.value)
