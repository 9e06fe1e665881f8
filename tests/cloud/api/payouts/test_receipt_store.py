"""Receipts as they are written: chained, signed, in the transaction that settles, and good for whoever checks them."""

import asyncio

import pytest
from sqlalchemy.exc import IntegrityError

from cloud.api.ledger.posting import Posted
from cloud.api.payouts.chain import Adjusted, statement
from shared.receipts import ReceiptKey, check, keyring

OWNER = "acct_00000000000000aa"
OTHER = "acct_00000000000000bb"
NOW = 1_796_000_000


async def whole(receipts, owner, key):
    """All receipts and the statement, as a file would have them, judged."""
    chain = await receipts.receipts(owner, 0, 10_000)
    return check([*chain.receipts, statement(owner, chain.head, key, NOW)], keyring([key.public]), owner)


async def test_chains_are_good(receipts, transact, settled, key):
    """One by one or many at once, each owner has a chain of their own that adds up and is complete."""
    await transact(lambda c: receipts.write(c, [Posted(settled(OWNER, OTHER, OWNER), "evt_1", NOW)]))
    more = [Posted(settled(OWNER), f"evt_{n}", NOW + n) for n in range(2, 6)]
    more.insert(2, Adjusted(OWNER, -2500, "dispute", "evt_9", NOW))
    await transact(lambda c: receipts.write_all(c, more))
    mine, theirs = await whole(receipts, OWNER, key), await whole(receipts, OTHER, key)
    assert mine.findings == () and mine.complete and mine.count == 7 and mine.total == 6 * 6000 - 2500
    assert theirs.findings == () and theirs.complete and theirs.count == 1 and theirs.total == 6000


async def test_receipts_say_what_was_settled(receipts, transact, settled):
    """Every field of the work, and what is kept beside them for questions."""
    settlement = settled(OWNER, OTHER, account=OWNER)
    own, other = await transact(lambda c: receipts.write_all(c, [Posted(settlement, "evt_1", NOW)]))
    receipt = own.signed.receipt
    assert (receipt.request, receipt.model, receipt.node) == (
        settlement.charge.request_id,
        "tiny",
        f"node-0-of-{OWNER}",
    )
    assert (receipt.first, receipt.last, receipt.drafted, receipt.accepted, receipt.marginal) == (100, 179, 80, 60, 50)
    assert (receipt.price, receipt.price_version, receipt.amount, receipt.at) == (120_000, "spot-1", 6000, NOW)
    assert (own.node_class, own.millijoules) == ("own", 1500) and other.node_class == "trusted"
    [open_] = await transact(lambda c: receipts.write_all(c, [Posted(settled(OWNER), "evt_2", NOW)]))
    assert open_.node_class == "any"


async def test_pages(receipts, transact, settled):
    """A part of the chain, with where all of it ends."""
    await transact(lambda c: receipts.write_all(c, [Posted(settled(OWNER), f"evt_{n}", NOW) for n in range(5)]))
    chain = await receipts.receipts(OWNER, 2, 2)
    assert [each.receipt.sequence for each in chain.receipts] == [3, 4] and chain.head.sequence == 5
    assert (await receipts.receipts("acct_nobody", 0, 10)).head.sequence == 0


async def test_nothing_without_nodes(receipts, transact, settled):
    """An answer that nobody drafted for has no receipts."""
    assert list(await transact(lambda c: receipts.write_all(c, [Posted(settled(), "evt_1", NOW)]))) == []


async def test_writers_at_once_make_one_chain(database, receipts, settled, key):
    """Settlements of one owner that come together follow each other, without a gap and without a fork."""
    if database is None:
        pytest.skip("one writer at a time by its nature")
    many = [settled(OWNER, OTHER) for _ in range(20)]
    await asyncio.gather(
        *(
            database.write(lambda c, s=s: receipts.write(c, [Posted(s, f"evt_{s.charge.request_id}", NOW)]))
            for s in many
        )
    )
    checked = await whole(receipts, OWNER, key)
    assert checked.findings == () and checked.count == 20


async def test_a_transaction_that_fails_leaves_nothing(database, receipts, settled, key):
    """Receipts are a part of the settlement: without it there are none, and the chain goes on from where it was."""
    if database is None:
        pytest.skip("no transactions")

    async def fail(connection):
        await receipts.write(connection, [Posted(settled(OWNER), "evt_1", NOW)])
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await database.write(fail)
    await database.write(lambda c: receipts.write(c, [Posted(settled(OWNER), "evt_2", NOW)]))
    checked = await whole(receipts, OWNER, key)
    assert checked.findings == () and checked.count == 1


async def test_the_same_work_is_not_receipted_twice(database, receipts, settled):
    """Whatever goes wrong above: the database refuses it."""
    if database is None:
        pytest.skip("no constraints")
    settlement = settled(OWNER)
    await database.write(lambda c: receipts.write(c, [Posted(settlement, "evt_1", NOW)]))
    with pytest.raises(IntegrityError):
        await database.write(lambda c: receipts.write(c, [Posted(settlement, "evt_2", NOW)]))


async def test_keys_are_known_for_good(receipts, key):
    """A key stays in the list when another takes its place; entering it twice changes nothing."""
    await receipts.enter_key(key, 5)
    await receipts.enter_key(key, 6)
    new = ReceiptKey.generate()
    await receipts.enter_key(new, 7)
    await receipts.end_key(key.name, 7)
    await receipts.end_key(key.name, 9)
    keys = await receipts.keys()
    assert [(each.name, each.public, each.since, each.until) for each in keys] == [
        (key.name, key.public, 5, 7),
        (new.name, new.public, 7, None),
    ]
