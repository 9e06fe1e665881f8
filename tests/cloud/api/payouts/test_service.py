"""Payouts from asking to arrival, over rails that fail in every way."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.played_rail import Crash, PlayedRail

from cloud.api.accounts.money import Nano
from cloud.api.payouts.memory import MemoryPayoutLedger, MemoryPayouts
from cloud.api.payouts.payout import Fail, Pay, State
from cloud.api.payouts.ports import Balance
from cloud.api.payouts.service import LONGEST_RETRY_S, RETRY_S, TRY_S, Payouts, PayoutSettings
from cloud.api.payouts.sql import SqlPayouts
from cloud.api.store.database import Database
from shared.errors import Conflict, Forbidden, InvalidInput, NotFound

NOW = 1_796_000_000
DOLLAR = 10**9
OWNER = "acct_00000000000000aa"
OTHER = "acct_00000000000000bb"


@pytest.fixture
def rail():
    return PlayedRail()


@pytest.fixture
async def by_hand(store, clock):
    await store.set_destination(OWNER, "manual", "there", NOW)
    return Payouts(store, {}, PayoutSettings(), clock=clock)


@pytest.fixture
async def payouts(store, rail, clock):
    """By a service."""
    await store.set_destination(OWNER, "played", "acct_1", NOW)
    return Payouts(store, {"played": rail}, PayoutSettings(rail="played"), clock=clock)


async def approved(payouts, dollars=20):
    payout = await payouts.ask(OWNER, Nano(dollars * DOLLAR))
    await payouts.approve("alice", payout.id)
    return await payouts.approve("bob", payout.id)


async def state(payouts, payout):
    return (await payouts.store.get(payout.id)).state


async def test_asking(by_hand, store):
    """For an amount or for everything in whole cents; not for too little, and not to nowhere."""
    payout = await by_hand.ask(OWNER, Nano(20 * DOLLAR))
    assert payout.destination == "there"
    assert (await by_hand.ask(OWNER)).amount == 80 * DOLLAR
    with pytest.raises(InvalidInput, match="at least"):
        await by_hand.ask(OWNER)
    with pytest.raises(InvalidInput, match="at least"):
        await by_hand.ask(OWNER, Nano(DOLLAR))
    with pytest.raises(Conflict, match="nowhere"):
        await by_hand.ask(OTHER, Nano(20 * DOLLAR))
    with pytest.raises(NotFound):
        await by_hand.withdraw(OTHER, payout.id)
    assert (await by_hand.withdraw(OWNER, payout.id)).state is State.CANCELLED
    assert (await store.balance(OWNER)).payable == 20 * DOLLAR


async def test_by_hand(by_hand, store):
    """A batch is made once and holds what was approved; the bank's results end it, twice as well as once."""
    first, second = await approved(by_hand), await approved(by_hand)
    waiting = await by_hand.ask(OWNER, Nano(20 * DOLLAR))
    batch = await by_hand.batch()
    assert {p.id for p in batch} == {first.id, second.id} and len({p.batch for p in batch}) == 1
    with pytest.raises(Conflict, match="No payout waits"):
        await by_hand.batch()
    results = {first.id: Pay("bank-1"), second.id: Fail("account closed")}
    for _ in range(2):
        await by_hand.settle_batch(results)
    assert [await state(by_hand, p) for p in (first, second, waiting)] == [State.PAID, State.FAILED, State.ASKED]
    assert await store.balance(OWNER) == Balance(Nano(0), Nano(60 * DOLLAR), Nano(20 * DOLLAR), Nano(20 * DOLLAR))
    with pytest.raises(Conflict):
        await by_hand.settle_batch({first.id: Fail("late")})


async def test_two_operators(by_hand):
    """The same one twice is refused, the owner always."""
    payout = await by_hand.ask(OWNER, Nano(20 * DOLLAR))
    with pytest.raises(Forbidden):
        await by_hand.approve(OWNER, payout.id)
    await by_hand.approve("alice", payout.id)
    with pytest.raises(Forbidden):
        await by_hand.approve("alice", payout.id)
    assert (await by_hand.approve("bob", payout.id)).state is State.APPROVED
    assert (await by_hand.cancel("alice", payout.id, "a mistake")).reason == "a mistake"


async def test_a_service_pays(payouts, rail):
    """At the next round, once, and it needs nothing more."""
    payout = await approved(payouts)
    assert await payouts.work() == 1
    assert await state(payouts, payout) is State.PAID and await payouts.work() == 0
    assert rail.calls == [(payout.id, f"{payout.id}-0", False)]


async def test_arrival_is_asked_for(payouts, rail):
    """Where the rail takes a payment and it arrives later, or comes back."""
    rail.arrives = False
    first, second = await approved(payouts), await approved(payouts)
    await payouts.work()
    assert await state(payouts, first) is State.SENT
    rail.gone_back.add((await payouts.store.get(second.id)).reference)
    rail.arrives = True
    await payouts.work()
    assert [await state(payouts, p) for p in (first, second)] == [State.PAID, State.FAILED]


@pytest.mark.parametrize(("step", "again"), [("silent", True), ("lose", True), ("delay", False)])
async def test_a_try_that_comes_to_nothing_is_repeated(payouts, rail, clock, step, again):
    """Later and later; it is looked for first when it may have paid, and it pays once."""
    rail.plan = [step] * 3
    payout = await approved(payouts)
    wait = RETRY_S
    await payouts.work()
    if step != "lose":
        for _ in range(2):
            clock.now += wait - 1
            assert await payouts.work() == 0
            clock.now += 1
            assert await payouts.work() == 1
            wait *= 2
    clock.now += wait
    await payouts.work()
    assert await state(payouts, payout) is State.PAID
    assert len(rail.paid[payout.id]) == 1 and rail.calls[-1][2] is again
    assert wait < LONGEST_RETRY_S


async def test_a_refusal_gives_the_money_back(payouts, rail, store):
    """The owner sees why, and may ask again."""
    rail.plan = ["refuse"]
    payout = await approved(payouts)
    await payouts.work()
    found = await store.get(payout.id)
    assert found.state is State.FAILED and found.reason == "account closed" and not rail.paid
    assert (await store.balance(OWNER)).payable == 100 * DOLLAR


async def test_a_rail_may_tell_by_itself(payouts, rail, store, clock):
    """Before its own answer is known, and twice; what comes back after it arrived is for people to settle."""
    rail.plan = ["lose"]
    payout = await approved(payouts)
    await payouts.work()
    for _ in range(2):
        assert (await payouts.arrived(payout.id, rail.paid[payout.id][0])).state is State.PAID
    clock.now += 10 * RETRY_S
    assert await payouts.work() == 0
    with pytest.raises(Conflict):
        await payouts.came_back(payout.id, "reversed")


async def test_two_gateways_try_once(payouts, rail, store, clock):
    """Only one of them gets the errand."""
    payout = await approved(payouts)
    other = Payouts(store, {"played": rail}, PayoutSettings(rail="played"), clock=clock)
    await asyncio.gather(payouts.work(), other.work())
    assert len(rail.calls) == 1 and await state(payouts, payout) is State.PAID


async def test_trouble_with_one_does_not_hold_up_others(payouts, rail, store):
    """Nor does a rail that is no longer set up."""
    stuck, good = await approved(payouts), await approved(payouts)
    without = Payouts(store, {}, PayoutSettings())
    assert await without.work() == 2 and not rail.calls

    async def send(payout, *, again, send=rail.send):
        if payout.id == stuck.id:
            raise RuntimeError
        return await send(payout, again=again)

    rail.send = send
    await payouts.work()
    assert await state(payouts, good) is State.PAID and await state(payouts, stuck) is State.APPROVED


class Crashing:
    """A store whose gateway dies at the nth write, before it or after it."""

    def __init__(self, store, at, after):
        self._store, self._left, self._after = store, at, after

    def __getattr__(self, name):
        method = getattr(self._store, name)
        if name not in ("add", "change", "change_all"):
            return method

        async def call(*arguments):
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Crash
            result = await method(*arguments)
            if self._left == 0:
                raise Crash
            return result

        return call


PLANS = st.lists(st.sampled_from(["pay", "lose", "silent", "refuse", "delay", "crash", "crash after"]), max_size=6)


async def _history(store, ledger, plan, at, after, owner=OWNER):
    """A payout from asking to its end, with the gateway dying once between any two steps."""
    clock = [NOW]
    rail = PlayedRail(plan=list(plan))
    await store.set_destination(owner, "played", "acct_1", NOW)
    start = await ledger.balance(owner)
    total = start.payable + start.paying + start.paid
    first = Crashing(store, at, after)
    for current in [first, *[store] * 12]:
        payouts = Payouts(current, {"played": rail}, PayoutSettings(rail="played"), clock=lambda: clock[0])
        try:
            mine = await store.find(owner=owner)
            payout = mine[0] if mine else await payouts.ask(owner, Nano(20 * DOLLAR))
            for by in ("alice", "bob"):
                now = await store.get(payout.id)
                if now.state is State.ASKED and now.reviewed_by != by:
                    await payouts.approve(by, payout.id)
            await payouts.work()
        except Crash:
            pass
        clock[0] += TRY_S + LONGEST_RETRY_S
        balance = await ledger.balance(owner)
        assert balance.payable + balance.paying + balance.paid == total and min(vars_of(balance)) >= 0
    [payout] = await store.find(owner=owner)
    balance = await ledger.balance(owner)
    went = rail.paid.get(payout.id, [])
    assert payout.state in (State.PAID, State.FAILED) and payout.errand is None
    assert len(went) == (payout.state is State.PAID)
    assert balance.paid - start.paid == len(went) * 20 * DOLLAR and balance.paying == 0


def vars_of(balance):
    return balance.pending, balance.payable, balance.paying, balance.paid


@settings(max_examples=150, deadline=None)
@given(PLANS, st.integers(0, 9), st.booleans())
def test_a_crash_anywhere_pays_once(plan, at, after):
    """Between any two writes, before the rail is called, and after it has paid: the owner is paid once or not at all,
    and the books say which.
    """

    async def run():
        ledger = MemoryPayoutLedger({OWNER: Nano(100 * DOLLAR)})
        await _history(MemoryPayouts(ledger), ledger, plan, at, after)

    asyncio.run(run())


def test_a_crash_anywhere_pays_once_on_disk(database_url):
    """The same with real transactions."""
    runner = asyncio.Runner()
    database = Database(database_url)
    runner.run(database.open())
    names = itertools.count()

    @settings(max_examples=20, deadline=None)
    @given(PLANS, st.integers(0, 9), st.booleans())
    def histories(plan, at, after):
        owner = f"acct_{next(names)}"
        ledger = MemoryPayoutLedger({owner: Nano(100 * DOLLAR)})
        runner.run(_history(SqlPayouts(database, ledger), ledger, plan, at, after, owner))

    try:
        histories()
    finally:
        runner.run(database.close())
        runner.close()
