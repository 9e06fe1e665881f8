"""Accounts on every store there is, and a clock that tests set."""

import itertools
from dataclasses import dataclass

import pytest

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import KeyId, Terms, new_key
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.money import Nano
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.store.database import Database

NOW = 1_796_000_000
"""2026-11-30, 06:13 UTC."""


@dataclass
class Clock:
    """Seconds since 1970."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def store(request, tmp_path):
    """All adapters."""
    if request.param == "memory":
        yield MemoryAccounts()
        return
    if request.param == "sqlite":
        address = request.getfixturevalue("sqlite_template").copy(tmp_path / "accounts.db")
    else:
        address = request.getfixturevalue("postgres_url")
    database = Database(address)
    await database.open()
    yield SqlAccounts(database)
    await database.close()


@pytest.fixture
def make_key():
    """A new key with these terms."""

    def make(**terms):
        return new_key(Terms(**{"name": "test"} | terms), NOW)

    return make


@pytest.fixture
def make_charge():
    """A charge with these fields."""
    numbers = itertools.count()

    def make(key="key_a", cost=5, **fields):
        given = {
            "request_id": f"req_{next(numbers)}",
            "key_id": KeyId(key),
            "at": NOW,
            "model": "tiny",
            "path": "/v1/completions",
            "streamed": False,
            "outcome": "answered",
            "prompt_tokens": 3,
            "cached_tokens": 1,
            "completion_tokens": 2,
            "cost": Nano(cost),
        }
        return Charge(**given | fields)

    return make
