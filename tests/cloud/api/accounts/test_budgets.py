"""Budgets hold, whatever comes in which order, and keys that were made are handed over."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.ledger import Maker
from support.ledger import key as make_api_key

from cloud.api.accounts.accounts import Accounts
from cloud.api.accounts.budgets import Budgets
from cloud.api.accounts.keys import KeyId, Terms
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.money import Nano
from shared.errors import InsufficientQuota, InvalidInput, NotFound, Unauthorized, Unavailable

MONTH_S = 31 * 86400


def key(budget=None, name="key_a"):
    return make_api_key(None, budget, name)


@pytest.fixture
async def budgets(store, clock):
    budgets = Budgets(store, clock=clock)
    await budgets.start()
    return budgets


@pytest.fixture
def write(store):
    """Tell the store what was settled, as the ledger does."""

    async def write(budgets, *charges):
        budgets.recorded(charges, await store.record(charges))

    return write


async def test_worst_cases_are_set_aside(budgets, make_charge):
    """Requests at work count at their worst, finished ones at what they cost."""
    limited = key(Nano(100))
    first, second = budgets.reserve(limited, Nano(60)), budgets.reserve(limited, Nano(40))
    with pytest.raises(InsufficientQuota, match="renewed"):
        budgets.reserve(limited, Nano(1))
    budgets.reserve(limited, Nano(0))
    budgets.settle(first, make_charge(cost=10))
    budgets.release(second)
    assert budgets.spent(limited.id) == 10
    with pytest.raises(InsufficientQuota, match=r"\$0.00000009 left, but this request could cost \$0.000000091"):
        budgets.reserve(limited, Nano(91))
    assert budgets.reserve(limited, Nano(90)).amount == 90
    budgets.reserve(key(None, "key_b"), Nano(10**30))


async def test_settled_once(budgets, make_charge, write):
    """A second settlement or release of the same request changes nothing."""
    limited = key(Nano(100))
    hold = budgets.reserve(limited, Nano(50))
    charge = make_charge(cost=20)
    budgets.settle(hold, charge)
    budgets.settle(hold, make_charge(cost=30))
    budgets.release(hold)
    assert budgets.spent(limited.id) == 20
    await write(budgets, charge)
    assert budgets.spent(limited.id) == 20
    budgets.reserve(limited, Nano(80))


async def test_spending_survives_a_restart(store, clock, make_charge):
    """New budgets on the same store know what the month has cost."""
    await store.record([make_charge(cost=70)])
    second = Budgets(store, clock=clock)
    await second.start()
    with pytest.raises(InsufficientQuota):
        second.reserve(key(Nano(100)), Nano(31))
    assert second.reserve(key(Nano(100)), Nano(30))


async def test_what_other_gateways_spend_is_learnt(store, budgets, make_charge, write):
    """The sum that comes back with a charge holds theirs too."""
    await store.record([make_charge(cost=70)])
    charge = make_charge(cost=1)
    budgets.settle(budgets.reserve(key(), Nano(0)), charge)
    await write(budgets, charge)
    assert budgets.spent(KeyId("key_a")) == 71


async def test_what_is_free_needs_no_budget(store, budgets, make_charge, write):
    """Also when two gateways, neither knowing of the other's request, have spent more than there was."""
    limited, charge = key(Nano(100)), make_charge(cost=80)
    budgets.settle(budgets.reserve(limited, Nano(80)), charge)
    await store.record([make_charge(cost=80)])
    await write(budgets, charge)
    assert budgets.spent(limited.id) == 160
    budgets.reserve(limited, Nano(0))
    with pytest.raises(InsufficientQuota, match=r"has \$0 left"):
        budgets.reserve(limited, Nano(1))


async def test_a_month_begins_at_nothing(budgets, clock, make_charge, write):
    """Late charges go to the month in which they ended; a clock set back does not bring the old month back."""
    limited = key(Nano(100))
    late = budgets.reserve(limited, Nano(40))
    first = make_charge(cost=60)
    budgets.settle(budgets.reserve(limited, Nano(0)), first)
    clock.now += MONTH_S
    assert budgets.spent(limited.id) == 0
    second = make_charge(cost=40, at=int(clock.now))
    budgets.settle(late, second)
    assert budgets.spent(limited.id) == 40
    await write(budgets, first, second)
    assert budgets.spent(limited.id) == 40
    clock.now -= MONTH_S
    assert budgets.spent(limited.id) == 40


async def test_a_key_that_was_made_is_handed_over(clock, monkeypatch):
    """Also when the store falls silent right after it: nobody could ever use it otherwise. So with a revocation."""
    store = MemoryAccounts()
    accounts = Accounts(store, clock=clock)

    async def silent(_):
        raise Unavailable("silent")

    with monkeypatch.context() as patch:
        patch.setattr(store, "changes", silent)
        new = await accounts.create(Terms(name="a"))
        gone = await accounts.create(Terms(name="b"))
        assert (await accounts.revoke(gone.key.id)).revoked_at is not None
    assert await accounts.ring.identify(new.secret.encode()) == new.key
    with pytest.raises(Unauthorized, match="revoked"):
        await accounts.ring.identify(gone.secret.encode())


async def test_a_fault_of_the_store_ends_nothing(clock, make_key, monkeypatch):
    """An error that nobody foresaw does not stop the watch on keys."""

    class Faulty(MemoryAccounts):
        faults = 3

        async def changes(self, since):
            if since and self.faults:
                self.faults -= 1
                raise RuntimeError("a fault")
            return await super().changes(since)

    async def pause(_):
        await pauses(0)

    pauses = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", pause)
    store = Faulty()
    new = make_key()
    await store.add(new)
    accounts = Accounts(store, clock=clock)
    await accounts.start()
    await store.revoke(new.key.id, 5)
    for _ in range(1000):
        await pauses(0)
    with pytest.raises(Unauthorized, match="revoked"):
        await accounts.ring.identify(new.secret.encode())
    assert store.faults == 0
    await accounts.stop()


async def test_create_list_revoke(store, clock):
    """A created key is known at once with what it has spent; a revoked one is refused at once."""
    accounts = Accounts(store, ["settings-key-1"], clock=clock)
    await accounts.start()
    new = await accounts.create(Terms(name="mine", monthly_budget=Nano(5)))
    assert await accounts.ring.identify(new.secret.encode()) == new.key
    fixed, mine = await accounts.statements()
    assert fixed.key.in_settings and (mine.key, mine.spent) == (new.key, 0)
    assert (await accounts.revoke(new.key.id)).revoked_at == int(clock.now)
    with pytest.raises(Exception, match="revoked"):
        await accounts.ring.identify(new.secret.encode())
    with pytest.raises(InvalidInput, match="settings"):
        await accounts.revoke(fixed.key.id)
    with pytest.raises(NotFound):
        await accounts.revoke(KeyId("key_none"))
    await accounts.stop()


class BudgetMachine(RuleBasedStateMachine):
    """Reserve, settle and release in any order: what is spent and what is set aside never exceed the budget."""

    BUDGET = 1000

    @initialize()
    def begin(self):
        self.store = MemoryAccounts()
        self.budgets = Budgets(self.store, clock=lambda: 0)
        self.make = Maker()
        self.open = []
        self.unwritten = []
        self.spent = 0

    @rule(worst=st.integers(0, 400))
    def reserve(self, worst):
        room = self.BUDGET - self.spent - sum(hold.amount for hold in self.open)
        try:
            self.open.append(self.budgets.reserve(key(Nano(self.BUDGET)), Nano(worst)))
            assert worst <= room
        except InsufficientQuota:
            assert worst > room

    @rule(data=st.data())
    def settle(self, data):
        if self.open:
            hold = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
            cost = data.draw(st.integers(0, hold.amount))
            charge = self.make.charge(cost, at=0)
            self.budgets.settle(hold, charge)
            self.unwritten.append(charge)
            self.spent += cost

    @rule(data=st.data())
    def release(self, data):
        if self.open:
            self.budgets.release(self.open.pop(data.draw(st.integers(0, len(self.open) - 1))))

    @rule()
    def write(self):
        self.budgets.recorded(self.unwritten, asyncio.run(self.store.record(self.unwritten)))
        self.unwritten = []

    @invariant()
    def within_budget(self):
        assert self.budgets.spent(KeyId("key_a")) == self.spent <= self.BUDGET


TestBudgets = BudgetMachine.TestCase
TestBudgets.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
