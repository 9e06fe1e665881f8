"""Stores of answers of every kind, and rows for them."""

import itertools

import pytest

from cloud.api.idempotency.answers import Kept
from cloud.api.idempotency.memory import MemoryAnswers
from cloud.api.idempotency.sql import SqlAnswers
from cloud.api.store.database import Database


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def store(request, tmp_path):
    """All adapters."""
    if request.param == "memory":
        yield MemoryAnswers()
        return
    if request.param == "sqlite":
        address = request.getfixturevalue("sqlite_template").copy(tmp_path / "answers.db")
    else:
        address = request.getfixturevalue("postgres_url")
    database = Database(address)
    await database.open()
    yield SqlAnswers(database)
    await database.close()


@pytest.fixture
def make():
    """A row with these fields."""
    numbers = itertools.count()

    def row(**fields):
        given = {
            "id": f"ans_{next(numbers)}",
            "fingerprint": b"f" * 32,
            "claim": None,
            "state": "done",
            "owner": "me",
            "lease_until": 0,
            "ended_at": 100,
            "expires_at": 1000,
            "seed": 7,
            "headers": ((b"content-type", b"application/json"), (b"x-nexus-cost", b"0: 1")),
            "content": b'{"a": 1}\n\n\x00\xff',
        }
        return Kept(**given | fields)

    return row
