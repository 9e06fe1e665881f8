"""Payouts and receipts on every store there is, a clock that tests set, and settlements to write receipts for."""

import itertools
from dataclasses import dataclass

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano, Pico
from cloud.api.ledger.settlement import NodeShare, NodeWork, Settlement
from cloud.api.payouts.memory import MemoryPayoutLedger, MemoryPayouts
from cloud.api.payouts.receipt_store import MemoryReceipts, SqlReceipts
from cloud.api.payouts.sql import SqlPayouts
from cloud.api.store.database import Database
from shared.ids import AccountId, ModelName, NodeId
from shared.receipts import ReceiptKey

NOW = 1_796_000_000
"""2026-11-30, 06:13 UTC."""
OWNER = AccountId("acct_00000000000000aa")
OTHER = AccountId("acct_00000000000000bb")
ALICE = AccountId("acct_00000000000000a1")
BOB = AccountId("acct_00000000000000b1")
"""Operators."""
DOLLAR = 10**9


@dataclass
class Clock:
    """Seconds since 1970."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def database(request, tmp_path):
    """None is the store in memory."""
    if request.param == "memory":
        yield None
        return
    if request.param == "sqlite":
        address = request.getfixturevalue("sqlite_template").copy(tmp_path / "payouts.db")
    else:
        address = request.getfixturevalue("postgres_url")
    database = Database(address)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def ledger():
    """Two owners with 100 dollars each that are payable."""
    return MemoryPayoutLedger({OWNER: Nano(100 * DOLLAR), OTHER: Nano(100 * DOLLAR)})


@pytest.fixture
def store(database, ledger):
    return MemoryPayouts(ledger) if database is None else SqlPayouts(database, ledger)


@pytest.fixture
def key():
    return ReceiptKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


@pytest.fixture
def receipts(database, key):
    trusted = OTHER.__eq__
    return MemoryReceipts(key, trusted) if database is None else SqlReceipts(database, key, trusted)


@pytest.fixture
def transact(database):
    """Do work in a transaction of the store."""

    async def run(work):
        return await work(None) if database is None else await database.write(work)

    return run


@pytest.fixture
def settled():
    """A settlement of one request, with a share of these owners, 6,000 nano-dollars each."""
    numbers = itertools.count(1)

    def make(*owners, account=None, **work):
        number = next(numbers)
        charge = Charge(
            request_id=f"req_{number}",
            key_id=KeyId("key_a"),
            at=NOW + number,
            model="tiny",
            path="/v1/completions",
            streamed=False,
            outcome="answered",
            prompt_tokens=100,
            cached_tokens=0,
            completion_tokens=80,
            cost=Nano(40_000),
        )
        given = {"drafted": 80, "accepted": 60, "marginal": 50, "first": 100, "last": 179, "joules": 1.5} | work
        shares = tuple(
            NodeShare(
                work=NodeWork(node=NodeId(f"node-{place}-of-{owner}"), **given),
                owner=owner,
                price=Pico(120_000),
                price_version="spot-1",
                amount=Nano(6000),
            )
            for place, owner in enumerate(owners)
        )
        return Settlement(
            charge=charge, account=account, target=ModelName("tiny"), price_version="prices-1", shares=shares
        )

    return make
