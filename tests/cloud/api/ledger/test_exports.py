"""The books as other programs read them: Beancount reckons every balance anew, and agrees."""

import csv
import io
from collections import Counter
from decimal import Decimal

import pytest
from beancount import loader
from beancount.core import data
from support.ledger import ALICE, BOB, DAY_S, OWNER, amounts

from cloud.api.accounts.money import Nano
from cloud.api.ledger import entries, export
from cloud.api.ledger.places import payable, pending
from cloud.api.ledger.ports import Batch


@pytest.fixture
async def full(books, make, clock):
    """Books with an event of every kind, over several days."""
    await books.post(entries.top_up(ALICE, Nano(2**60 + 1), "one"))
    held = [make.reservation(100) for _ in range(3)]
    await books.write(Batch(reservations=held, releases=held[:1]))
    await books.write(Batch(settlements=[make.settlement(33, name=held[1].request_id, shares=((OWNER, 10), (BOB, 1)))]))
    await books.write(Batch(settlements=[make.settlement(7, None, shares=((OWNER, 5),))]))
    clock.now += 9 * DAY_S
    await books.mature(10)
    await books.post(entries.payout_asked(OWNER, Nano(15), "pay_1"))
    await books.post(entries.payout_failed(OWNER, Nano(15), "pay_1", reason='no "such" account; ü\n'))
    await books.post(entries.payout_asked(OWNER, Nano(9), "pay_2"))
    await books.post(entries.payout_sent(OWNER, Nano(9), "pay_2"))
    await books.post(entries.adjustment(pending(BOB), Nano(4), "x", reason="a, b", actor="op"))
    await books.post(entries.refund(ALICE, Nano(5), "y", reason="r", actor="op"))
    return books


async def text(lines):
    return "".join([line async for line in lines])


def reckoned(entries_):
    """Sums of Beancount's own postings, by account."""
    sums = Counter()
    for entry in entries_:
        if isinstance(entry, data.Transaction):
            for posting in entry.postings:
                sums[posting.account] += posting.units.number
    return sums


async def test_beancount_agrees(full):
    """It finds no error, checks each balance that the books keep, and comes to the same sums by itself."""
    balances = await full.balances()
    written = await text(export.beancount_lines(full.all_events(), balances))
    parsed, errors, _ = loader.load_string(written)
    assert errors == []
    mine = {export.beancount_name(place): Decimal(-amount).scaleb(-9) for place, amount in balances.items() if amount}
    assert {account: amount for account, amount in reckoned(parsed).items() if amount} == mine
    assert {entry.account for entry in parsed if isinstance(entry, data.Balance)} >= set(mine)
    assert sum(isinstance(entry, data.Transaction) for entry in parsed) == len(await full.events(limit=1000))


async def test_beancount_finds_what_is_wrong(full):
    """A balance that is not the sum of its postings, by a nano-dollar, is an error there."""
    balances = dict(await full.balances())
    balances[payable(OWNER)] = Nano(balances[payable(OWNER)] + 1)
    _, errors, _ = loader.load_string(await text(export.beancount_lines(full.all_events(), balances)))
    assert len(errors) == 1 and "Balance failed" in errors[0].message


async def test_csv_holds_every_posting(full):
    """Exact amounts, and whatever text people gave."""
    rows = list(csv.DictReader(io.StringIO(await text(export.csv_lines(full.all_events())))))
    sums = Counter()
    for row in rows:
        sums[row["place"]] += int(row["nano_dollars"])
        assert Decimal(row["dollars"]).scaleb(9) == int(row["nano_dollars"])
    assert amounts(sums) == amounts(await full.balances())
    assert {row["reason"] for row in rows} == {"", 'no "such" account; ü\n', "a, b", "r"}
    assert rows[0]["key"] == "top_up:one" and rows[0]["at"] == "2026-11-30T06:13:20Z" and rows[-1]["actor"] == "op"


async def test_no_events_no_lines(books):
    """Empty books are right in both forms."""
    assert len((await text(export.csv_lines(books.all_events()))).splitlines()) == 1
    parsed, errors, _ = loader.load_string(await text(export.beancount_lines(books.all_events(), {})))
    assert (parsed, errors) == ([], [])
