"""Copies of an SQLite database, whole at one moment, while a gateway uses it; and back again.

By SQLite's own online backup (https://www.sqlite.org/backup.html). Servers have programs of their own for this.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from cloud.api.store.database import file_of
from shared.errors import ConfigError


def backup(address: str, target: Path) -> None:
    """Copy the database to a new file. Raises `ConfigError` in words."""
    source = file_of(address)
    if source is None:
        raise ConfigError(f"This database is a server's: use `pg_dump --format=custom --file={target} …`.")
    if not source.exists():
        raise ConfigError(f"There is no database at {source}.")
    if target.exists():
        raise ConfigError(f"{target} is there already: name a new file.")
    new = target.with_name(f"{target.name}.new")
    try:
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
        _copy(source, new)
        check(new)
        new.rename(target)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}.") from None
    finally:
        new.unlink(missing_ok=True)


def restore(address: str, source: Path) -> None:
    """Replace the database by a copy. Nobody may be using it. Raises `ConfigError` in words."""
    target = file_of(address)
    if target is None:
        raise ConfigError(f"This database is a server's: use `pg_restore --clean --dbname=… {source}`.")
    check(source)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = target.with_name(f"{target.name}.restored")
    try:
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
        _copy(source, new)
        check(new)
        for suffix in ("-wal", "-shm"):  # of the database that is replaced
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        new.rename(target)
    finally:
        new.unlink(missing_ok=True)


def check(path: Path) -> None:
    """Raises `ConfigError` when the file is no database, or a damaged one."""
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchone()[0]
            connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise ConfigError(f"{path} is no database of Nexus: {error}.") from None
    if found != "ok":
        raise ConfigError(f"{path} is damaged: {found}.")


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")  # one file, and nothing beside it
    with open(target, "rb+") as file:
        os.fsync(file.fileno())
