"""Books of every kind, with people who have money, and a clock that tests set."""

from dataclasses import dataclass, field

import pytest
from support.ledger import Clock, Maker

from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.ledger.memory import MemoryBooks
from cloud.api.ledger.sql import SqlBooks
from cloud.api.store.database import Database


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make():
    """Reservations, settlements and what they are about."""
    return Maker()


@dataclass
class Remembered:
    """A hook that remembers what it was told, and fails when it is asked to."""

    told: list = field(default_factory=list)
    fail: bool = False

    async def write(self, connection, posted):
        if self.fail:
            raise RuntimeError("the hook failed")
        self.told += [(each.settlement.charge.request_id, each.event_id, each.at) for each in posted]


@pytest.fixture
def hook():
    return Remembered()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def ledger(request, tmp_path, clock, hook):
    """Books and the store of accounts beside them, of every kind."""
    if request.param == "memory":
        accounts = MemoryAccounts()
        yield MemoryBooks(accounts, [hook], hold_days=7, clock=clock), accounts
        return
    if request.param == "sqlite":
        address = request.getfixturevalue("sqlite_template").copy(tmp_path / "ledger.db")
    else:
        address = request.getfixturevalue("postgres_url")
    database = Database(address)
    await database.open()
    yield SqlBooks(database, [hook], hold_days=7, clock=clock), SqlAccounts(database)
    await database.close()


@pytest.fixture
def books(ledger):
    return ledger[0]


@pytest.fixture
def accounts(ledger):
    return ledger[1]
