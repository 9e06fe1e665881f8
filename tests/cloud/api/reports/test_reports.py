"""What people are shown, from records in memory, SQLite and PostgreSQL alike."""

import pytest
from sqlalchemy import insert

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import Terms, new_key
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.money import Nano, Pico
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.ledger.posting import Posted
from cloud.api.ledger.settlement import NodeShare, NodeWork, Settlement
from cloud.api.payouts.chain import Adjusted
from cloud.api.payouts.receipt_store import MemoryReceipts, SqlReceipts
from cloud.api.reports.memory import MemoryReports
from cloud.api.reports.ports import DAY_S, Earned
from cloud.api.reports.sql import SqlReports
from cloud.api.store.database import Database
from cloud.api.store.identity_tables import PEOPLE
from shared.receipts import ReceiptKey

MIDNIGHT = 20_787 * DAY_S
"""2026-11-30."""
ME = "acct_00000000000000aa"
OTHER = "acct_00000000000000bb"
FAR = 10 * MIDNIGHT


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def database(request, tmp_path):
    if request.param == "memory":
        yield None
        return
    if request.param == "sqlite":
        address = request.getfixturevalue("sqlite_template").copy(tmp_path / "reports.db")
    else:
        address = request.getfixturevalue("postgres_url")
    database = Database(address)
    await database.open()
    for account in (ME, OTHER):
        row = {"id": account, "email": f"{account}@x.test", "name": "x", "roles": "developer owner", "state": "active"}
        await database.write(lambda c, row=row: c.execute(insert(PEOPLE).values(**row, created_at=1)))
    yield database
    await database.close()


@pytest.fixture
def accounts(database):
    if database is not None:
        return SqlAccounts(database)
    accounts = MemoryAccounts()
    accounts.check_holder = lambda account: None
    return accounts


@pytest.fixture
def receipts(database):
    key = ReceiptKey.generate()
    return MemoryReceipts(key, OTHER.__eq__) if database is None else SqlReceipts(database, key, OTHER.__eq__)


@pytest.fixture
async def keys(accounts):
    """A key of mine, another one, and one of somebody else."""
    made = [new_key(Terms(name="k"), MIDNIGHT, account) for account in (ME, ME, OTHER)]
    for each in made:
        await accounts.add(each)
    return [each.key.id for each in made]


@pytest.fixture
def reports(database, receipts, accounts, keys):
    if database is not None:
        return SqlReports(database)
    return MemoryReports(receipts, accounts, lambda account: {ME: keys[:2], OTHER: keys[2:]}.get(account, []))


def charge(name, key, at, cost=10, model="tiny"):
    return Charge(
        request_id=name,
        key_id=key,
        at=at,
        model=model,
        path="/v1/completions",
        streamed=False,
        outcome="answered",
        prompt_tokens=7,
        cached_tokens=3,
        completion_tokens=5,
        cost=Nano(cost),
    )


def settlement(charge, *owners, account=None, joules=2.0):
    shares = tuple(
        NodeShare(
            work=NodeWork(node=f"node-{place}", drafted=9, accepted=4, marginal=3, first=7, last=11, joules=joules),
            owner=owner,
            price=Pico(10**6),
            price_version="spot",
            amount=Nano(3000),
        )
        for place, owner in enumerate(owners)
    )
    return Settlement(charge=charge, account=account, target="tiny", price_version="p", shares=shares)


@pytest.fixture
def settle(database, receipts, accounts):
    async def run(settlement, at):
        async def work(connection):
            await receipts.write_all(connection, [Posted(settlement, f"evt_{settlement.charge.request_id}", at)])

        await accounts.record([settlement.charge])
        await (work(None) if database is None else database.write(work))

    return run


async def test_earnings_by_day_and_node(reports, receipts, settle, keys, database):
    """Sums of an owner's receipts; adjustments belong to a day and to no node."""
    await settle(settlement(charge("req_1", keys[2], 1), ME, OTHER), MIDNIGHT)
    await settle(settlement(charge("req_2", keys[2], 1), ME), MIDNIGHT + DAY_S - 1)
    await settle(settlement(charge("req_3", keys[2], 1), ME, joules=None), MIDNIGHT + DAY_S)

    async def adjust(connection):
        await receipts.write_all(connection, [Adjusted(ME, -500, "why", "evt_x", MIDNIGHT + DAY_S)])

    await (adjust(None) if database is None else database.write(adjust))
    days = await reports.earned_by_day(ME, MIDNIGHT, FAR)
    assert days == {
        MIDNIGHT: Earned(amount=6000, receipts=2, drafted=18, accepted=8, marginal=6, millijoules=4000),
        MIDNIGHT + DAY_S: Earned(amount=2500, receipts=2, drafted=9, accepted=4, marginal=3, millijoules=None),
    }
    assert list(await reports.earned_by_day(ME, MIDNIGHT + 1, MIDNIGHT + DAY_S)) == [MIDNIGHT]
    assert await reports.earned_by_day("acct_none", 0, FAR) == {}
    nodes = await reports.earned_by_node(0, FAR)
    assert {node: (each.amount, each.receipts) for node, each in nodes.items()} == {
        "node-0": (9000, 3),
        "node-1": (3000, 1),
    }
    assert list(await reports.earned_by_node(0, FAR, OTHER)) == ["node-1"]


async def test_usage_by_day_key_and_model(reports, accounts, keys):
    """Of all keys of the account and of no other."""
    first, second, other = keys
    await accounts.record(
        [
            charge("req_1", first, MIDNIGHT),
            charge("req_2", first, MIDNIGHT + DAY_S - 1, 30),
            charge("req_3", first, MIDNIGHT, model="big"),
            charge("req_4", second, MIDNIGHT + DAY_S),
            charge("req_5", other, MIDNIGHT),
        ]
    )
    used = await reports.used(ME, MIDNIGHT, FAR)
    found = {(each.day, each.key, each.model): (each.requests, each.cost) for each in used}
    assert found == {
        (MIDNIGHT, first, "big"): (1, 10),
        (MIDNIGHT, first, "tiny"): (2, 40),
        (MIDNIGHT + DAY_S, second, "tiny"): (1, 10),
    }
    assert [each.day for each in used] == sorted(each.day for each in used)
    tiny = next(each for each in used if each.model == "tiny")
    assert (tiny.prompt_tokens, tiny.cached_tokens, tiny.completion_tokens) == (14, 6, 10)
    assert len(await reports.used(ME, MIDNIGHT + 1, MIDNIGHT + DAY_S)) == 1


async def test_who_saw_a_prompt(reports, accounts, settle, keys):
    """Classes of nodes and how many, never whose; nothing of other people's requests."""
    await settle(settlement(charge("req_1", keys[0], MIDNIGHT), ME, OTHER, OTHER, "acct_x", account=ME), MIDNIGHT)
    await accounts.record([charge("req_2", keys[1], MIDNIGHT + 5), charge("req_3", keys[2], MIDNIGHT + 6)])
    newest, older = await reports.seen(ME, 10)
    assert (newest.request_id, newest.nodes, newest.accepted) == ("req_2", {}, 0)
    assert (older.request_id, older.nodes, older.accepted) == ("req_1", {"own": 1, "trusted": 2, "any": 1}, 16)
    assert older.model == "tiny" and older.cost == 10 and older.completion_tokens == 5
    assert [each.request_id for each in await reports.seen(ME, 1)] == ["req_2"]
    assert [each.request_id for each in await reports.seen(ME, 10, before=MIDNIGHT + 5)] == ["req_1"]
    assert await reports.seen_one(ME, "req_1") == older
    assert await reports.seen_one(ME, "req_3") is None and await reports.seen_one(OTHER, "req_1") is None


async def test_tariffs(reports):
    """The last one that the owner has set."""
    assert await reports.tariff(ME) is None
    for tariff in (1, 2):
        await reports.set_tariff(ME, Nano(tariff))
    assert await reports.tariff(ME) == 2 and await reports.tariff(OTHER) is None
