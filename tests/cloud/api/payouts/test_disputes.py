"""Disputes: decided once, set right by one adjustment in the ledger, and with a receipt for the owner."""

import pytest

from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.money import Nano
from cloud.api.audit.memory import MemoryAudit
from cloud.api.ledger.entries import adjustment
from cloud.api.ledger.memory import MemoryBooks
from cloud.api.ledger.places import ADJUSTMENTS, available, payable
from cloud.api.ledger.posting import NotCovered
from cloud.api.ledger.sql import SqlBooks
from cloud.api.payouts.books import LedgerBooks
from cloud.api.payouts.chain import statement
from cloud.api.payouts.dispute_store import MemoryDisputes, SqlDisputes
from cloud.api.payouts.disputes import State, new_dispute, resolve
from cloud.api.payouts.memory import MemoryPayouts
from cloud.api.payouts.payout import Approve, Fail, Pay, Send, advance, new_payout
from cloud.api.payouts.ports import Balance, InsufficientFunds
from cloud.api.payouts.sql import SqlPayouts
from shared.errors import Conflict, InvalidInput, NotFound
from shared.receipts import check, keyring

NOW = 1_796_000_000
DOLLAR = 10**9
OWNER = "acct_00000000000000aa"
CUSTOMER = "acct_00000000000000cc"


@pytest.fixture
async def books(database):
    """The real ledger, with 100 dollars payable to the owner."""
    books = MemoryBooks(MemoryAccounts(MemoryAudit())) if database is None else SqlBooks(database)
    await books.post(adjustment(payable(OWNER), Nano(100 * DOLLAR), "start", reason="for the test"))
    return books


@pytest.fixture
def money(books, database):
    return LedgerBooks(books, None if database is None else books)


@pytest.fixture
def disputes(database, money, receipts):
    return MemoryDisputes(money, receipts) if database is None else SqlDisputes(database, money, receipts)


async def opened(disputes, account=OWNER, side="owner", at=NOW):
    return await disputes.open(new_dispute(account, side, "too little", "alice", at, "req_1"))


async def test_an_owner_is_given_what_was_missing(disputes, receipts, books, key):
    """One event in the ledger, one receipt in the chain, and the dispute names both."""
    dispute = await opened(disputes)
    decided = await disputes.decide(dispute.id, lambda d: resolve(d, Nano(2 * DOLLAR), "miscounted", "bob", NOW + 1))
    assert (decided.state, decided.amount, decided.resolved_by) == (State.RESOLVED, 2 * DOLLAR, "bob")
    [event] = [each for each in await books.events(account=OWNER) if each.id == decided.event_id]
    assert event.entry.postings == {payable(OWNER): 2 * DOLLAR, ADJUSTMENTS: -2 * DOLLAR}
    assert event.entry.reason == f"{dispute.id}: miscounted" and event.entry.actor == "bob"
    chain = await receipts.receipts(OWNER, 0, 10)
    checked = check([*chain.receipts, statement(OWNER, chain.head, key, NOW)], keyring([key.public]))
    assert checked.total == 2 * DOLLAR and checked.findings == ()
    assert chain.receipts[0].receipt.reason == event.entry.reason
    assert (await books.audit()).problems() == []


async def test_decided_once(disputes, books):
    """A second decision is refused, whatever it says."""
    dispute = await opened(disputes)
    await disputes.decide(dispute.id, lambda d: resolve(d, Nano(DOLLAR), "yes", "bob", NOW))
    for amount in (0, DOLLAR):
        with pytest.raises(Conflict):
            await disputes.decide(dispute.id, lambda d, a=amount: resolve(d, Nano(a), "again", "bob", NOW))
    assert (await books.balances([OWNER]))[payable(OWNER)] == 101 * DOLLAR


async def test_rejected_moves_nothing(disputes, receipts, books):
    """Without an amount nothing is posted, and the reason is kept."""
    dispute = await opened(disputes)
    decided = await disputes.decide(dispute.id, lambda d: resolve(d, Nano(0), "it was right", "bob", NOW))
    assert decided.state is State.REJECTED and decided.event_id is None and decided.reason == "it was right"
    assert (await receipts.receipts(OWNER, 0, 10)).head.sequence == 0
    assert len(await books.events(account=OWNER)) == 1


async def test_no_more_is_taken_than_there_is(disputes, receipts, books):
    """What an owner was paid out already cannot be taken back here, and nothing of the decision is kept."""
    dispute = await opened(disputes)
    with pytest.raises(NotCovered):
        await disputes.decide(dispute.id, lambda d: resolve(d, Nano(-101 * DOLLAR), "fraud", "bob", NOW))
    assert [each.state for each in await disputes.find()] == [State.OPEN]
    assert (await receipts.receipts(OWNER, 0, 10)).head.sequence == 0
    decided = await disputes.decide(dispute.id, lambda d: resolve(d, Nano(-100 * DOLLAR), "fraud", "bob", NOW))
    assert decided.amount == -100 * DOLLAR


async def test_a_customer_is_refunded(disputes, receipts, books):
    """Into what they have prepaid; no receipt, since receipts are owners'."""
    dispute = await opened(disputes, CUSTOMER, "customer")
    await disputes.decide(dispute.id, lambda d: resolve(d, Nano(DOLLAR), "wrong answer", "bob", NOW))
    assert (await books.balances([CUSTOMER]))[available(CUSTOMER)] == DOLLAR
    assert (await receipts.receipts(CUSTOMER, 0, 10)).head.sequence == 0


async def test_lists_and_errors(disputes):
    """Newest first, by state; an unknown one and one's own are refused."""
    old, new = await opened(disputes), await opened(disputes, at=NOW + 1)
    assert [each.id for each in await disputes.find()] == [new.id, old.id]
    await disputes.decide(old.id, lambda d: resolve(d, Nano(0), "no", "bob", NOW))
    assert [each.id for each in await disputes.find(State.OPEN)] == [new.id]
    assert await disputes.find(State.OPEN) == [new]
    with pytest.raises(NotFound):
        await disputes.decide("dsp_none", lambda d: d)
    with pytest.raises(InvalidInput, match="own money"):
        await disputes.decide(new.id, lambda d: resolve(d, Nano(1), "mine", OWNER, NOW))


async def test_payouts_in_the_real_ledger(money, books, database):
    """Asked, sent, failed and refused, as the books have it; they reconcile at the end."""
    store = MemoryPayouts(money) if database is None else SqlPayouts(database, money)
    first, second = [await store.add(new_payout(OWNER, Nano(30 * DOLLAR), "manual", "there", NOW)) for _ in range(2)]
    with pytest.raises(InsufficientFunds, match=r"\$40"):
        await store.add(new_payout(OWNER, Nano(50 * DOLLAR), "manual", "there", NOW))
    assert await store.balance(OWNER) == Balance(*(Nano(n * DOLLAR) for n in (0, 40, 60, 0)))
    for payout, end in ((first, Pay()), (second, Fail("account closed"))):
        for event in (Approve("alice", False), Approve("bob", False), Send("ref"), end, end):
            await store.change(payout.id, lambda p, e=event: advance(p, e, NOW), NOW)
    assert await store.balance(OWNER) == Balance(*(Nano(n * DOLLAR) for n in (0, 70, 0, 30)))
    kinds = [each.entry.kind for each in await books.events(account=OWNER)]
    assert sorted(kinds) == ["adjustment", "payout_asked", "payout_asked", "payout_failed", "payout_sent"]
    assert (await books.audit()).problems() == []
