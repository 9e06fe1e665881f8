"""Stores of payouts: whole changes, money moved with the state, and questions answered alike."""

import asyncio
from dataclasses import replace

import pytest

from cloud.api.accounts.money import Nano
from cloud.api.payouts.payout import Approve, Cancel, Errand, Fail, Pay, Send, State, advance, new_payout
from cloud.api.payouts.ports import Balance, InsufficientFunds
from shared.errors import Conflict, NotFound

NOW = 1_796_000_000
DOLLAR = 10**9
OWNER = "acct_00000000000000aa"
OTHER = "acct_00000000000000bb"


def asked(dollars=30, owner=OWNER, at=NOW, rail="manual"):
    return new_payout(owner, Nano(dollars * DOLLAR), rail, "there", at)


async def approve(store, payout, *, service=False, at=NOW):
    for by in ("alice", "bob"):
        payout = await store.change(payout.id, lambda p, by=by: advance(p, Approve(by, service), at), at)
    return payout


def balance(payable, paying, paid):
    return Balance(Nano(0), Nano(payable * DOLLAR), Nano(paying * DOLLAR), Nano(paid * DOLLAR))


async def test_money_moves_with_the_state(store):
    """Payable, paying, paid; back to payable when it failed or was cancelled."""
    first, second, third = [await store.add(asked()) for _ in range(3)]
    assert await store.balance(OWNER) == balance(10, 90, 0)
    await approve(store, first)
    await store.change(first.id, lambda p: advance(p, Send("ref"), NOW), NOW)
    assert await store.balance(OWNER) == balance(10, 90, 0)
    await store.change(first.id, lambda p: advance(p, Pay(), NOW), NOW)
    assert await store.balance(OWNER) == balance(10, 60, 30)
    await approve(store, second)
    await store.change(second.id, lambda p: advance(p, Fail("closed"), NOW), NOW)
    await store.change(third.id, lambda p: advance(p, Cancel("alice", "why"), NOW), NOW)
    assert await store.balance(OWNER) == balance(70, 0, 30)


async def test_more_than_is_payable_is_refused(store):
    """And nothing of it is kept."""
    await store.add(asked(80))
    with pytest.raises(InsufficientFunds):
        await store.add(asked(30))
    assert len(await store.find(owner=OWNER)) == 1
    assert await store.balance(OWNER) == balance(20, 80, 0)


async def test_everything_is_kept(store):
    """Each field, the errand too, is read as it was written."""
    payout = await store.add(asked())
    assert await store.get(payout.id) == payout
    errand = Errand(due=NOW + 5, tries=2, refusals=1, in_doubt=True, trouble="no answer")
    full = replace(
        payout,
        state=State.APPROVED,
        reviewed_by="alice",
        approved_by="bob",
        approved_at=NOW,
        sent_at=NOW + 1,
        ended_at=NOW + 2,
        batch="batch_1",
        reference="ref",
        reason="why",
        errand=errand,
    )
    assert await store.change(payout.id, lambda _: full, NOW) == full
    assert await store.get(payout.id) == full
    bare = replace(full, errand=None)
    await store.change(payout.id, lambda _: bare, NOW)
    assert await store.get(payout.id) == bare
    with pytest.raises(NotFound):
        await store.get("pay_none")
    with pytest.raises(NotFound):
        await store.change("pay_none", lambda p: p, NOW)


async def test_questions(store):
    """By owner, by state, by batch, by what is due, by what is not known to have arrived."""
    old, new = await store.add(asked(10, at=NOW)), await store.add(asked(10, at=NOW + 9))
    other = await store.add(asked(10, owner=OTHER, at=NOW + 5, rail="stripe"))
    assert [p.id for p in await store.find()] == [new.id, other.id, old.id]
    assert [p.id for p in await store.find(owner=OWNER)] == [new.id, old.id]
    assert [p.id for p in await store.find(owner=OWNER, limit=1)] == [new.id]
    await approve(store, old, service=True, at=NOW + 20)
    await approve(store, other, service=True, at=NOW + 10)
    assert [p.id for p in await store.find(state=State.APPROVED)] == [other.id, old.id]
    assert [p.id for p in await store.due(NOW + 15, 10)] == [other.id]
    assert [p.id for p in await store.due(NOW + 20, 10)] == [other.id, old.id]
    assert [p.id for p in await store.due(NOW + 20, 1)] == [other.id]
    await store.change(other.id, lambda p: advance(p, Send("ref", "batch_1"), NOW + 30), NOW + 30)
    assert [p.id for p in await store.find(batch="batch_1")] == [other.id]
    assert [p.id for p in await store.due(NOW + 99, 10)] == [old.id]
    assert [p.id for p in await store.unsettled("stripe", 10)] == [other.id]
    assert list(await store.unsettled("manual", 10)) == []


async def test_all_or_none(store):
    """A change of several that fails for one leaves the others as they were."""
    one, two = await store.add(asked(10)), await store.add(asked(10))
    await approve(store, one)
    with pytest.raises(Conflict):
        await store.change_all([one.id, two.id], lambda p: advance(p, Send("ref"), NOW), NOW)
    assert (await store.get(one.id)).state is State.APPROVED
    await approve(store, two)
    changed = await store.change_all([two.id, one.id], lambda p: advance(p, Send("ref"), NOW), NOW)
    assert [p.id for p in changed] == [two.id, one.id]


async def test_changes_at_once_follow_each_other(store):
    """Of two people who approve at the same moment the second finds the first one's approval."""
    payout = await store.add(asked())

    def by(name):
        return store.change(payout.id, lambda p: advance(p, Approve(name, False), NOW), NOW)

    await asyncio.gather(by("alice"), by("bob"))
    assert (await store.get(payout.id)).state is State.APPROVED


async def test_destinations_and_events(store):
    """One destination for each rail, the last one set; an event is seen once it has been noted."""
    assert await store.destination(OWNER, "manual") is None
    for text in ("here", "there"):
        await store.set_destination(OWNER, "manual", text, NOW)
    await store.set_destination(OWNER, "stripe", "acct_1", NOW)
    assert await store.destination(OWNER, "manual") == "there"
    assert await store.destination(OTHER, "manual") is None
    assert not await store.seen("evt_1")
    for _ in range(2):
        await store.note_event("evt_1", NOW)
    assert await store.seen("evt_1") and not await store.seen("evt_2")
