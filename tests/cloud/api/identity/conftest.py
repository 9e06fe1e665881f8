"""Identity on every store there is, and clocks that tests set."""

import pytest
from support.identity import CHEAP, Clock, Stores, make_identity, memory_stores

from cloud.api.accounts.sql import SqlAccounts
from cloud.api.audit.sql import SqlAudit
from cloud.api.identity.passwords import Passwords
from cloud.api.identity.sql import SqlIdentity
from cloud.api.store.database import Database


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def stores(request, tmp_path):
    """All adapters."""
    if request.param == "memory":
        yield memory_stores()
        return
    if request.param == "sqlite":
        address = request.getfixturevalue("sqlite_template").copy(tmp_path / "nexus.db")
    else:
        address = request.getfixturevalue("postgres_url")
    database = Database(address)
    await database.open()
    yield Stores(SqlAccounts(database), SqlIdentity(database), SqlAudit(database))
    await database.close()


@pytest.fixture
def memory():
    return memory_stores()


@pytest.fixture
async def identity(memory, clock):
    """In memory, by the test's clock; anybody may sign up."""
    made = make_identity(memory, clock, sign_up=True)
    yield made
    await made.stop()


@pytest.fixture
def passwords():
    made = Passwords(CHEAP)
    yield made
    made.close()
