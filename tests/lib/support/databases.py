"""Databases of both kinds with the present tables, made fast: each is a copy of one that was migrated once."""

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.postgres import Postgres

from cloud.api.store.database import Database

KINDS = ("sqlite", "postgresql")


def migrate(address: str) -> str:
    """Bring a database up to date; gives its address."""

    async def work() -> None:
        database = Database(address)
        await database.open()
        await database.close()

    with ThreadPoolExecutor(1) as other:  # a fixture may be asked for while a loop runs
        other.submit(lambda: asyncio.run(work())).result()
    return address


class SqliteTemplate:
    """A migrated file, and copies of it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "template.db"
        migrate(str(self._file))

    def copy(self, target: Path) -> str:
        shutil.copy(self._file, target)
        return str(target)


class PostgresTemplate:
    """A migrated database of a server, and copies of it."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self._name = server.new()
        migrate(server.url(self._name))

    def copy(self) -> str:
        return self.server.url(self.server.new(self._name))

    def drop(self, address: str) -> None:
        """It is 7 MB of files."""
        self.server.drop(address.rpartition("/")[2])
