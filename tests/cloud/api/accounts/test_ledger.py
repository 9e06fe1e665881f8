"""Budgets hold, and every charge is written down once."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cloud.api.accounts import ledger as ledger_module
from cloud.api.accounts.accounts import Accounts
from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import ApiKey, KeyId, Terms
from cloud.api.accounts.ledger import BACKLOG_LIMIT, Ledger
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.money import Nano
from shared.errors import InsufficientQuota, InvalidInput, NotFound, Unauthorized, Unavailable

MONTH_S = 31 * 86400


def key(budget=None, name="key_a"):
    terms = Terms(name="a", monthly_budget=budget)
    return ApiKey(id=KeyId(name), start="nx_", terms=terms, created_at=0)


@pytest.fixture
async def ledger(store, clock):
    ledger = Ledger(store, clock=clock)
    await ledger.start()
    return ledger


async def test_worst_cases_are_set_aside(ledger, make_charge):
    """Requests at work count at their worst, finished ones at what they cost."""
    limited = key(Nano(100))
    first, second = ledger.reserve(limited, Nano(60)), ledger.reserve(limited, Nano(40))
    with pytest.raises(InsufficientQuota, match="renewed"):
        ledger.reserve(limited, Nano(1))
    ledger.reserve(limited, Nano(0))
    ledger.settle(first, make_charge(cost=10))
    ledger.release(second)
    assert ledger.spent(limited.id) == 10
    with pytest.raises(InsufficientQuota, match=r"\$0.00000009 left, but this request could cost \$0.000000091"):
        ledger.reserve(limited, Nano(91))
    assert ledger.reserve(limited, Nano(90)).amount == 90
    ledger.reserve(key(None, "key_b"), Nano(10**30))


async def test_settled_once(ledger, store, make_charge):
    """A second settlement or release of the same request changes nothing."""
    limited = key(Nano(100))
    hold = ledger.reserve(limited, Nano(50))
    charge = make_charge(cost=20)
    ledger.settle(hold, charge)
    ledger.settle(hold, make_charge(cost=30))
    ledger.release(hold)
    await ledger.close()
    assert ledger.spent(limited.id) == 20 and list(await store.charges(limited.id, 9)) == [charge]
    ledger.reserve(limited, Nano(80))


async def test_spending_survives_a_restart(store, clock, make_charge):
    """A new ledger on the same store knows what the month has cost."""
    first = Ledger(store, clock=clock)
    await first.start()
    first.settle(first.reserve(key(), Nano(0)), make_charge(cost=70))
    await first.close()
    second = Ledger(store, clock=clock)
    await second.start()
    with pytest.raises(InsufficientQuota):
        second.reserve(key(Nano(100)), Nano(31))
    assert second.reserve(key(Nano(100)), Nano(30))


async def test_what_other_gateways_spend_is_learnt(store, ledger, clock, make_charge):
    """The sum that comes back with a charge holds theirs too."""
    other = Ledger(store, clock=clock)
    await other.start()
    other.settle(other.reserve(key(), Nano(0)), make_charge(cost=70))
    await other.close()
    ledger.settle(ledger.reserve(key(), Nano(0)), make_charge(cost=1))
    await ledger.close()
    assert ledger.spent(KeyId("key_a")) == 71


async def test_what_is_free_needs_no_budget(store, ledger, clock, make_charge):
    """Also when two gateways, neither knowing of the other's request, have spent more than there was."""
    limited, other = key(Nano(100)), Ledger(store, clock=clock)
    await other.start()
    for each in (ledger, other):
        each.settle(each.reserve(limited, Nano(80)), make_charge(cost=80))
        await each.close()
    assert other.spent(limited.id) == 160
    other.reserve(limited, Nano(0))
    with pytest.raises(InsufficientQuota, match=r"has \$0 left"):
        other.reserve(limited, Nano(1))


async def test_a_month_begins_at_nothing(ledger, clock, make_charge):
    """Late charges go to the month in which they ended; a clock set back does not bring the old month back."""
    limited = key(Nano(100))
    late = ledger.reserve(limited, Nano(40))
    ledger.settle(ledger.reserve(limited, Nano(0)), make_charge(cost=60))
    clock.now += MONTH_S
    assert ledger.spent(limited.id) == 0
    ledger.settle(late, make_charge(cost=40, at=int(clock.now)))
    assert ledger.spent(limited.id) == 40
    await ledger.close()
    assert ledger.spent(limited.id) == 40
    clock.now -= MONTH_S
    assert ledger.spent(limited.id) == 40


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


class Failing(MemoryAccounts):
    """A store that is silent for a time."""

    silent = True

    async def record(self, charges):
        if self.silent:
            raise Unavailable("silent")
        return await super().record(charges)


async def test_a_silent_store_loses_no_charge(clock, make_charge, monkeypatch):
    """Charges wait for it; when too many wait, no new work is begun."""
    store = Failing()
    ledger = Ledger(store, clock=clock)
    await ledger.start()
    asked = asyncio.Event()

    async def pause(_):
        asked.set()
        await asyncio.Event().wait() if store.silent else None

    monkeypatch.setattr(ledger_module.asyncio, "sleep", pause)
    task = asyncio.create_task(ledger.run())
    for _ in range(BACKLOG_LIMIT):
        ledger.settle(ledger.reserve(key(), Nano(0)), make_charge(cost=1))
    with pytest.raises(Unavailable, match="cannot be recorded"):
        ledger.reserve(key(), Nano(0))
    await asked.wait()
    task.cancel()
    store.silent = False
    await ledger.close()
    assert ledger.waiting == 0 and await store.spending("2026-11") == {"key_a": BACKLOG_LIMIT}
    assert ledger.reserve(key(), Nano(0))


async def test_a_fault_of_the_store_ends_nothing(clock, make_charge, make_key, monkeypatch):
    """An error that nobody foresaw stops neither the writing of charges nor the watch on keys."""

    class Faulty(MemoryAccounts):
        faults = 3

        def fail(self):
            if self.faults:
                self.faults -= 1
                raise RuntimeError("a fault")

        async def record(self, charges):
            self.fail()
            return await super().record(charges)

        async def changes(self, since):
            self.fail() if since else None
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
    charge = make_charge()
    accounts.ledger.settle(accounts.ledger.reserve(key(), Nano(0)), charge)
    await store.revoke(new.key.id, 5)
    for _ in range(1000):
        await pauses(0)
    with pytest.raises(Unauthorized, match="revoked"):
        await accounts.ring.identify(new.secret.encode())
    assert list(await store.charges(charge.key_id, 9)) == [charge] and store.faults == 0
    await accounts.stop()


async def test_running_ledger_writes_by_itself(store, clock, make_charge):
    """No stop is needed for a charge to reach the store, and stopping writes the rest."""
    accounts = Accounts(store, clock=clock)
    await accounts.start()
    charge = make_charge()
    accounts.ledger.settle(accounts.ledger.reserve(key(), Nano(0)), charge)
    for _ in range(10_000):
        if await store.charges(charge.key_id, 1):
            break
    accounts.ledger.settle(accounts.ledger.reserve(key(), Nano(0)), make_charge())
    await accounts.stop()
    assert len(await store.charges(charge.key_id, 9)) == 2 and accounts.ledger.waiting == 0


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


class LedgerMachine(RuleBasedStateMachine):
    """Reserve, settle and release in any order: what is spent and what is set aside never exceed the budget."""

    BUDGET = 1000

    @initialize()
    def begin(self):
        self.ledger = Ledger(MemoryAccounts(), clock=lambda: 0)
        self.open = []
        self.spent = 0
        self.count = 0

    @rule(worst=st.integers(0, 400))
    def reserve(self, worst):
        room = self.BUDGET - self.spent - sum(hold.amount for hold in self.open)
        try:
            self.open.append(self.ledger.reserve(key(Nano(self.BUDGET)), Nano(worst)))
            assert worst <= room
        except InsufficientQuota:
            assert worst > room

    @rule(data=st.data())
    def settle(self, data):
        if self.open:
            hold = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
            cost = data.draw(st.integers(0, hold.amount))
            self.count += 1
            self.ledger.settle(hold, _charge(f"req_{self.count}", cost))
            self.spent += cost

    @rule(data=st.data())
    def release(self, data):
        if self.open:
            self.ledger.release(self.open.pop(data.draw(st.integers(0, len(self.open) - 1))))

    @rule()
    def write(self):
        asyncio.run(self.ledger.close())

    @invariant()
    def within_budget(self):
        assert self.ledger.spent(KeyId("key_a")) == self.spent <= self.BUDGET


def _charge(name, cost):
    return Charge(
        request_id=name,
        key_id=KeyId("key_a"),
        at=0,
        model="m",
        path="/",
        streamed=False,
        outcome="answered",
        prompt_tokens=0,
        cached_tokens=0,
        completion_tokens=0,
        cost=Nano(cost),
    )


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
