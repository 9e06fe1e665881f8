"""What all books do, whatever they are kept in."""

import asyncio
from dataclasses import replace

import pytest
from support.ledger import ALICE, BOB, DAY_S, NOW, OWNER, amounts, check

from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano
from cloud.api.ledger import entries
from cloud.api.ledger.events import WrongEntry
from cloud.api.ledger.places import available, payable, pending
from cloud.api.ledger.ports import Batch
from cloud.api.ledger.posting import NotCovered
from shared.errors import Conflict


async def pay_in(books, amount, account=ALICE, reference="one"):
    return await books.post(entries.top_up(account, Nano(amount), reference))


async def of(books, *accounts):
    return amounts(await books.balances(accounts or None))


async def test_a_request_from_reservation_to_settlement(books, accounts, make, hook):
    """The worst case moves aside, the cost becomes revenue, the nodes' part the owners', and the rest is free again."""
    await pay_in(books, 1000)
    held = make.reservation(400)
    written = await books.write(Batch(reservations=[held]))
    assert written.refused == set() and written.available == {ALICE: 600}
    assert await of(books, ALICE) == {"customer:acct_alice:available": 600, "customer:acct_alice:reserved": 400}
    settlement = make.settlement(300, name=held.request_id, shares=((OWNER, 100), (OWNER, 20), (BOB, 30)))
    written = await books.write(Batch(settlements=[settlement]))
    assert written.available == {ALICE: 700} and written.spending == {("key_a", "2026-11"): 300}
    assert await of(books) == {
        "customer:acct_alice:available": 700,
        "owner:acct_owner:pending": 120,
        "owner:acct_bob:pending": 30,
        "house:revenue": 150,
        "house:cash": -1000,
    }
    [(request, event, at)] = hook.told
    [settled] = await books.events(kind="settle")
    assert (request, event, at) == (held.request_id, settled.id, NOW)
    assert list(await accounts.charges(KeyId("key_a"), 9)) == [settlement.charge]
    check(await books.audit())


async def test_told_twice_counts_once(books, accounts, make, hook):
    """Reservations, settlements, releases and entries; in one batch, in two, and in any order."""
    first = await pay_in(books, 1000)
    assert (await pay_in(books, 1000)).id == first.id
    held, other = make.reservation(100), make.reservation(50)
    await books.write(Batch(reservations=[held, held, other]))
    await books.write(Batch(reservations=[held]))
    settlement = make.settlement(60, name=held.request_id)
    await books.write(Batch(settlements=[settlement, settlement], releases=[other, other]))
    await books.write(Batch(settlements=[settlement], releases=[held, other], reservations=[held, other]))
    assert (await of(books, ALICE)) == {"customer:acct_alice:available": 940}
    assert await accounts.spending("2026-11") == {"key_a": 60} and len(hook.told) == 1
    kinds = [event.entry.kind for event in reversed(await books.events())]
    assert kinds == ["top_up", "reserve", "reserve", "release", "settle"]
    check(await books.audit())


async def test_a_key_used_for_something_else(books):
    """409, and nothing is moved."""
    await pay_in(books, 1000)
    with pytest.raises(Conflict):
        await pay_in(books, 1001)
    with pytest.raises(Conflict):
        await pay_in(books, 1000, BOB)
    assert await of(books, ALICE, BOB) == {"customer:acct_alice:available": 1000}


async def test_too_little_is_refused(books, make):
    """In the order of the batch: what fits is set aside, what does not is not; an unknown account has nothing."""
    await pay_in(books, 100)
    one, two, three = make.reservation(60), make.reservation(60), make.reservation(40)
    stranger = make.reservation(1, BOB)
    written = await books.write(Batch(reservations=[one, two, three, stranger]))
    assert written.refused == {two.request_id, stranger.request_id}
    assert written.available == {ALICE: 0, BOB: 0}
    check(await books.audit())


async def test_settled_without_a_reservation(books, make):
    """A request that went ahead of the books is settled all the same: then, and only then, below zero."""
    await pay_in(books, 100)
    await books.write(Batch(settlements=[make.settlement(130)]))
    assert await of(books, ALICE) == {"customer:acct_alice:available": -30}
    refused = make.reservation(1)
    assert (await books.write(Batch(reservations=[refused]))).refused == {refused.request_id}
    with pytest.raises(NotCovered):
        await books.post(entries.refund(ALICE, Nano(1), "back", reason="test"))
    audit = await books.audit()
    check(audit)
    assert audit.owed == 30


async def test_a_late_reservation_of_a_settled_request(books, make):
    """It is not made."""
    await pay_in(books, 100)
    held = make.reservation(50)
    await books.write(Batch(settlements=[make.settlement(10, name=held.request_id)]))
    assert (await books.write(Batch(reservations=[held]))).refused == {held.request_id}
    assert await of(books, ALICE) == {"customer:acct_alice:available": 90}


async def test_expiry(books, make, clock):
    """What nobody renewed is released at its time, by whoever comes first; what is renewed stays."""
    await pay_in(books, 100)
    dead, living = make.reservation(30), make.reservation(40)
    await books.write(Batch(reservations=[dead, living]))
    assert await books.expire(10) == 0
    await books.renew([living.request_id, "req_unknown"], NOW + 120)
    clock.now += 60
    assert (await books.audit()).overdue == 1
    assert sum(await asyncio.gather(books.expire(10), books.expire(10))) >= 1
    assert await books.expire(10) == 0 and (await books.audit()).overdue == 0
    assert await of(books, ALICE) == {"customer:acct_alice:available": 60, "customer:acct_alice:reserved": 40}
    check(await books.audit())


async def test_settled_after_its_expiry(books, make, clock):
    """The work was done: what it cost is taken, from what is available."""
    await pay_in(books, 100)
    held = make.reservation(80)
    await books.write(Batch(reservations=[held]))
    clock.now += 60
    await books.expire(10)
    await books.write(Batch(settlements=[make.settlement(70, name=held.request_id)]))
    assert await of(books, ALICE) == {"customer:acct_alice:available": 30}
    check(await books.audit())


async def test_keys_without_an_account(books, make, accounts):
    """They are charged and never asked for money; what is free is recorded without an event."""
    paid, free = make.settlement(50, None, shares=((OWNER, 20),)), make.settlement(0, None)
    await books.write(Batch(settlements=[paid, free]))
    assert await of(books) == {"house:use": -50, "house:revenue": 30, "owner:acct_owner:pending": 20}
    assert len(await books.events()) == 1 and len(await accounts.charges(KeyId("key_a"), 9)) == 2
    check(await books.audit())


async def test_earnings_mature(books, make, clock):
    """After the hold, day by day, once; what was taken back meanwhile is taken from what would mature last."""
    await books.write(Batch(settlements=[make.settlement(500, None, shares=((OWNER, 100), (BOB, 7)))]))
    clock.now += DAY_S
    await books.write(Batch(settlements=[make.settlement(500, None, shares=((OWNER, 50),))]))
    await books.post(entries.adjustment(pending(OWNER), Nano(-20), "fraud", reason="replayed drafts"))
    clock.now += 6 * DAY_S
    assert await books.mature(10) == 0
    clock.now += DAY_S
    assert await books.mature(10) == 2 and await books.mature(10) == 0
    assert await of(books, OWNER) == {"owner:acct_owner:pending": 30, "owner:acct_owner:payable": 100}
    check(await books.audit())
    clock.now += DAY_S
    assert await books.mature(10) == 1
    assert await of(books, OWNER, BOB) == {"owner:acct_owner:payable": 130, "owner:acct_bob:payable": 7}
    check(await books.audit())


async def test_payouts(books, make, clock):
    """Asked, failed, asked again and sent: at each moment the money is in exactly one place."""
    await books.post(entries.adjustment(payable(OWNER), Nano(90), "bonus", reason="welcome"))
    await books.post(entries.payout_asked(OWNER, Nano(90), "pay_1", actor="acct_op"))
    with pytest.raises(NotCovered):
        await books.post(entries.payout_asked(OWNER, Nano(1), "pay_2"))
    await books.post(entries.payout_failed(OWNER, Nano(90), "pay_1", reason="no such account"))
    await books.post(entries.payout_asked(OWNER, Nano(60), "pay_3"))
    assert await of(books, OWNER) == {"owner:acct_owner:payable": 30, "owner:acct_owner:paying": 60}
    for _ in range(2):
        await books.post(entries.payout_sent(OWNER, Nano(60), "pay_3"))
    assert await of(books, OWNER) == {"owner:acct_owner:payable": 30, "owner:acct_owner:paid": 60}
    check(await books.audit())


async def test_adjustments_and_refunds(books):
    """Never more than there is, never without a reason, and signed by who made them."""
    await pay_in(books, 100)
    await books.post(entries.adjustment(available(ALICE), Nano(5), "gift", reason="goodwill", actor="op"))
    event = await books.post(entries.refund(ALICE, Nano(105), "back", reason="closed", actor="op"))
    assert (event.entry.reason, event.entry.actor) == ("closed", "op")
    assert await of(books) == {"house:adjustments": -5, "house:cash": 5}
    with pytest.raises(NotCovered):
        await books.post(entries.adjustment(available(ALICE), Nano(-1), "more", reason="test"))
    check(await books.audit())


async def test_events_can_be_looked_at(books, make):
    """Newest first, by account and by kind, as they were written; all of them in order."""
    await pay_in(books, 100)
    await pay_in(books, 50, BOB, "two")
    adjusted = entries.adjustment(available(BOB), Nano(-5), "x", reason='"why", he asked; ü', actor="op")
    event = await books.post(adjusted)
    assert event.entry == adjusted and (await books.events(limit=1))[0] == event
    assert [e.entry.key for e in await books.events(account=BOB)] == ["adjustment:x", "top_up:two"]
    assert [e.entry.key for e in await books.events(kind="top_up")] == ["top_up:two", "top_up:one"]
    assert [e.entry.key async for e in books.all_events()] == ["top_up:one", "top_up:two", "adjustment:x"]


async def test_a_hook_that_fails_undoes_the_whole(books, make, hook, accounts):
    """Neither the settlement nor its charge is there; told again, both are."""
    await pay_in(books, 100)
    held = make.reservation(50)
    await books.write(Batch(reservations=[held]))
    batch = Batch(settlements=[make.settlement(40, name=held.request_id)])
    hook.fail = True
    with pytest.raises(RuntimeError):
        await books.write(batch)
    assert await accounts.charges(KeyId("key_a"), 9) == [] and len(await books.events()) == 2
    hook.fail = False
    await books.write(batch)
    assert await of(books, ALICE) == {"customer:acct_alice:available": 60} and len(hook.told) == 1
    check(await books.audit())


async def test_amounts_are_exact(books, make):
    """Sums beyond 2⁵³ lose nothing."""
    big = 2**60 + 1
    await pay_in(books, big)
    await books.write(Batch(settlements=[make.settlement(1)]))
    assert await of(books, ALICE) == {"customer:acct_alice:available": big - 1}
    check(await books.audit())


async def test_a_batch_of_hundreds(books, make):
    """As many as a busy gateway tells at once, of many accounts."""
    people = [f"acct_{n:016x}" for n in range(40)]
    for person in people:
        await pay_in(books, 10_000, person, person)
    held = [make.reservation(100, people[n % 40]) for n in range(200)]
    assert not (await books.write(Batch(reservations=held))).refused
    done = [make.settlement(40, r.account, r.request_id, ((people[39 - n % 40], 10),)) for n, r in enumerate(held)]
    await books.write(Batch(settlements=done[:150], releases=held[150:]))
    balances = await of(books)
    assert balances["house:revenue"] == 150 * 30 and not any("reserved" in place for place in balances)
    check(await books.audit())


async def test_look_at(books):
    """Balances can be asked for without telling anything."""
    await pay_in(books, 70)
    assert (await books.write(Batch(look_at=[ALICE, BOB]))).available == {ALICE: 70, BOB: 0}


async def test_several_at_once(books, make):
    """Concurrent writers of the same accounts lose nothing."""
    await pay_in(books, 10**6)
    await pay_in(books, 10**6, BOB, "two")

    async def work(number):
        account, other = (ALICE, BOB) if number % 2 else (BOB, ALICE)
        held = make.reservation(100, account)
        await books.write(Batch(reservations=[held]))
        settlement = make.settlement(30, account, held.request_id, ((other, 10),))
        await books.write(Batch(settlements=[settlement]))
        await books.post(entries.adjustment(available(other), Nano(1), f"a{number}", reason="test"))
        await books.expire(5)

    await asyncio.gather(*(work(number) for number in range(20)))
    balances = await of(books)
    assert balances["customer:acct_alice:available"] == balances["customer:acct_bob:available"] == 10**6 - 290
    assert balances["house:revenue"] == 400
    check(await books.audit())


async def test_an_account_of_another_person(books, make):
    """A settlement of a reservation that somebody else made is a fault of ours, and moves nothing."""
    await pay_in(books, 100)
    held = make.reservation(50)
    await books.write(Batch(reservations=[held]))
    with pytest.raises(WrongEntry):
        await books.write(Batch(settlements=[replace(make.settlement(10, name=held.request_id), account=BOB)]))
    assert (await of(books, ALICE, BOB))["customer:acct_alice:reserved"] == 50
