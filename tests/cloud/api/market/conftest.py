"""Market stores of every kind, recorded answers, and short ways to make things."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano
from cloud.api.market.memory import MemoryMarket
from cloud.api.market.ports import MarketStore
from cloud.api.market.sql import SqlMarket
from cloud.api.store.database import Database

NOW = 1_796_000_000
TRACES = Path(__file__).parents[4] / "bench/data/traces.jsonl"


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MarketStore]:
    """All adapters."""
    if request.param == "memory":
        yield MemoryMarket()
        return
    if request.param == "sqlite":
        address = request.getfixturevalue("sqlite_template").copy(tmp_path / "market.db")
    else:
        address = request.getfixturevalue("postgres_url")
    database = Database(address)
    await database.open()
    yield SqlMarket(database)
    await database.close()


@pytest.fixture(scope="session")
def traces() -> list[dict[str, Any]]:
    """Answers of a real target with what a real draft model guessed at each token (bench/traces.py)."""
    return [json.loads(line) for line in TRACES.read_text().splitlines()]


@pytest.fixture
def make_charge() -> Callable[..., Charge]:
    def make(completion: int = 100, cost: int = 50_000, **fields: Any) -> Charge:
        given = {
            "request_id": "req_1",
            "key_id": KeyId("key_a"),
            "at": NOW,
            "model": "big",
            "path": "/v1/completions",
            "streamed": False,
            "outcome": "answered",
            "prompt_tokens": 10,
            "cached_tokens": 0,
            "completion_tokens": completion,
            "cost": Nano(cost),
        }
        return Charge(**given | fields)

    return make
