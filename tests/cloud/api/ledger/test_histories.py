"""Random histories with crashes, on books of every kind: compared with a model at each step, and reconciled."""

import asyncio
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.faults import Crash, crash_at
from support.ledger import ALICE, BOB, DAY_S, NOW, OWNER, Clock, Maker, amounts, check

from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.money import Nano
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.ledger import entries
from cloud.api.ledger.memory import MemoryBooks
from cloud.api.ledger.places import available, paid, payable, paying, pending, reserved
from cloud.api.ledger.ports import Batch
from cloud.api.ledger.posting import NotCovered
from cloud.api.ledger.sql import SqlBooks
from cloud.api.store.database import Database

PEOPLE = st.sampled_from([ALICE, BOB])
AMOUNTS = st.integers(1, 100)
REQUESTS = st.integers(0, 9)
FAULTS = st.one_of(st.none(), st.integers(0, 14), st.just("after"))
"""None; the number of the statement at which the process dies; or after the commit, before it is heard of."""
LEASE_S = 60
HOLD_DAYS = 2


class Histories(RuleBasedStateMachine):
    """What is told to the books, and a model of what they must hold then."""

    def open_books(self):
        raise NotImplementedError

    def close_books(self):
        """Whatever is left to do when the database is closed."""

    @initialize()
    def begin(self):
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.database = None
        self.books, self.accounts = self.runner.run(self.open_books())
        self.make = Maker()
        self.sums = Counter()
        self.requests = {}
        """Request → account, amount set aside, state, when it expires, settlement."""
        self.days = Counter()
        """What becomes payable on which day."""
        self.used = {}
        """Keys of entries, with their entry."""
        self.payouts = {}

    def teardown(self):
        if hasattr(self, "runner"):
            if self.database is not None:
                self.runner.run(self.database.close())
                self.close_books()
            self.runner.close()

    def tell(self, work, fault):
        """Do something with the books, which may die; whoever told it tells it again, unless it was heard of. Gives
        its result.
        """

        async def once():
            if isinstance(fault, int) and self.database is not None:
                with crash_at(self.database, fault):
                    return await work()
            result = await work()
            if fault == "after":
                raise Crash
            return result

        try:
            return self.runner.run(once())
        except Crash:
            return self.runner.run(work())

    def move(self, amount, source, target):
        self.sums[source] -= amount
        self.sums[target] += amount

    def name(self, number, account):
        return f"req_{number}_{account}"

    def post(self, entry, place, fault, amount):
        """Post an entry that takes `amount` from `place`; whether it counted now."""
        covered = place is None or self.sums[place] >= amount
        known = self.used.get(entry.key)
        if known is not None and known != entry:
            return False
        try:
            self.tell(lambda: self.books.post(entry), fault)
        except NotCovered:
            assert known is None and not covered
            return False
        assert known is not None or covered
        self.used[entry.key] = entry
        return known is None

    @rule(account=PEOPLE, amount=AMOUNTS, reference=st.integers(0, 30), fault=FAULTS)
    def top_up(self, account, amount, reference, fault):
        if self.post(entries.top_up(account, Nano(amount), str(reference)), None, fault, amount):
            self.move(amount, "house:cash", available(account))

    @rule(account=PEOPLE, amount=AMOUNTS, reference=st.integers(0, 30), fault=FAULTS)
    def refund(self, account, amount, reference, fault):
        entry = entries.refund(account, Nano(amount), str(reference), reason="r")
        if self.post(entry, available(account), fault, amount):
            self.move(amount, available(account), "house:cash")

    @rule(account=PEOPLE, number=REQUESTS, amount=AMOUNTS, fault=FAULTS)
    def reserve(self, account, number, amount, fault):
        name = self.name(number, account)
        expires = int(self.clock.now) + LEASE_S
        wanted = self.make.reservation(amount, account, name, expires)
        written = self.tell(lambda: self.books.write(Batch(reservations=[wanted])), fault)
        known = self.requests.get(name)
        if known is None and self.sums[available(account)] >= amount:
            self.requests[name] = [account, amount, "held", expires, None]
            self.move(amount, available(account), reserved(account))
            assert not written.refused
        elif known is None or known[2] != "held":
            assert written.refused == {name}
        assert written.available == {account: self.sums[available(account)]}

    @rule(
        account=PEOPLE,
        number=REQUESTS,
        cost=AMOUNTS,
        share=st.integers(0, 100),
        version=st.integers(1, 3),
        fault=FAULTS,
    )
    def settle(self, account, number, cost, share, version, fault):
        name = self.name(number, account)
        known = self.requests.get(name, [account, 0, "unknown", 0, None])
        share = min(share, cost)
        settlement = known[4] or self.make.settlement(cost, account, name, ((OWNER, share),) if share else ())
        if known[4] is None:  # prices change all the time
            settlement = replace(settlement, price_version=f"v{cost}")
        self.tell(lambda: self.books.write(Batch(settlements=[settlement, settlement])), fault)
        if known[4] is None:
            if known[2] == "held":
                self.move(known[1], reserved(account), available(account))
            self.move(cost, available(account), "house:revenue")
            if share:
                self.move(share, "house:revenue", pending(OWNER))
                self.days[int(self.clock.now) // DAY_S + HOLD_DAYS + 1] += share
            self.requests[name] = [account, known[1], "settled", known[3], settlement]

    @rule(cost=AMOUNTS, share=st.integers(0, 100), fault=FAULTS)
    def settle_for_the_house(self, cost, share, fault):
        share = min(share, cost)
        settlement = self.make.settlement(cost, None, shares=((OWNER, share),) if share else ())
        self.tell(lambda: self.books.write(Batch(settlements=[settlement])), fault)
        self.requests[settlement.charge.request_id] = [None, 0, "settled", 0, settlement]
        self.move(cost, "house:use", "house:revenue")
        if share:
            self.move(share, "house:revenue", pending(OWNER))
            self.days[int(self.clock.now) // DAY_S + HOLD_DAYS + 1] += share

    @rule(account=PEOPLE, number=REQUESTS, fault=FAULTS)
    def release(self, account, number, fault):
        name = self.name(number, account)
        self.tell(lambda: self.books.write(Batch(releases=[self.make.reservation(1, account, name)])), fault)
        self.released(name)

    def released(self, name):
        known = self.requests.get(name)
        if known is not None and known[2] == "held":
            known[2] = "released"
            self.move(known[1], reserved(known[0]), available(known[0]))

    @rule(passed=st.sampled_from([0, 20, 70, DAY_S]), fault=FAULTS)
    def time_passes(self, passed, fault):
        self.clock.now += passed
        self.tell(lambda: self.books.expire(100), fault)
        for name, known in self.requests.items():
            if known[2] == "held" and known[3] <= self.clock.now:
                self.released(name)

    @rule(fault=FAULTS)
    def mature(self, fault):
        self.tell(lambda: self.books.mature(100), fault)
        for day in sorted(day for day in self.days if day <= self.clock.now // DAY_S):
            self.move(min(self.days.pop(day), self.sums[pending(OWNER)]), pending(OWNER), payable(OWNER))

    @rule(amount=AMOUNTS, number=st.integers(0, 20), fault=FAULTS)
    def take_back(self, amount, number, fault):
        entry = entries.adjustment(pending(OWNER), Nano(-amount), f"back_{number}", reason="r")
        if self.post(entry, pending(OWNER), fault, amount):
            self.move(amount, pending(OWNER), "house:adjustments")

    @rule(amount=AMOUNTS, fault=FAULTS)
    def ask_for_a_payout(self, amount, fault):
        payout = f"pay_{len(self.payouts)}"
        if self.post(entries.payout_asked(OWNER, Nano(amount), payout), payable(OWNER), fault, amount):
            self.payouts[payout] = amount
            self.move(amount, payable(OWNER), paying(OWNER))

    @rule(data=st.data(), arrives=st.booleans(), fault=FAULTS)
    def end_a_payout(self, data, arrives, fault):
        if not self.payouts:
            return
        payout = data.draw(st.sampled_from(sorted(self.payouts)))
        amount = self.payouts.pop(payout)
        if arrives:
            assert self.post(entries.payout_sent(OWNER, Nano(amount), payout), paying(OWNER), fault, amount)
            self.move(amount, paying(OWNER), paid(OWNER))
        else:
            assert self.post(entries.payout_failed(OWNER, Nano(amount), payout), paying(OWNER), fault, amount)
            self.move(amount, paying(OWNER), payable(OWNER))

    @invariant()
    def the_books_hold_what_was_told(self):
        if not hasattr(self, "runner"):
            return
        assert amounts(self.runner.run(self.books.balances())) == amounts(self.sums)
        check(self.runner.run(self.books.audit()))
        charges = self.runner.run(self.accounts.charges(KeyId("key_a"), 10_000))
        settled = [known[4].charge for known in self.requests.values() if known[4] is not None]
        assert sorted(c.request_id for c in charges) == sorted(c.request_id for c in settled)


class InMemory(Histories):
    """Books of a gateway without a database."""

    async def open_books(self):
        accounts = MemoryAccounts()
        return MemoryBooks(accounts, hold_days=HOLD_DAYS, clock=self.clock), accounts


def sql_machine(copy, drop=lambda _: None):
    """A machine over new databases: `copy` gives the address of one, `drop` takes it away."""

    class InSql(Histories):
        async def open_books(self):
            self.address = copy()
            self.database = Database(self.address)
            await self.database.open()
            return SqlBooks(self.database, hold_days=HOLD_DAYS, clock=self.clock), SqlAccounts(self.database)

        def close_books(self):
            drop(self.address)

    return InSql


FEW = settings(max_examples=8, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))


def test_histories_in_memory():
    """The first-class adapter of a gateway without a database."""
    run_state_machine_as_test(InMemory, settings=settings(FEW, max_examples=40, stateful_step_count=40))


def test_histories_on_sqlite(sqlite_template):
    """With crashes between any two statements."""
    with tempfile.TemporaryDirectory() as folder:
        names = (Path(folder) / f"{number}.db" for number in range(100_000))
        run_state_machine_as_test(sql_machine(lambda: sqlite_template.copy(next(names))), settings=FEW)


def test_histories_on_postgresql(postgres_template):
    """With crashes between any two statements."""
    run_state_machine_as_test(sql_machine(postgres_template.copy, postgres_template.drop), settings=FEW)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_many_histories(kind, sqlite_template, postgres_template):
    """More of them, and longer."""
    many = settings(FEW, max_examples=100, stateful_step_count=60)
    if kind == "postgresql":
        run_state_machine_as_test(sql_machine(postgres_template.copy, postgres_template.drop), settings=many)
        return
    with tempfile.TemporaryDirectory() as folder:
        names = (Path(folder) / f"{number}.db" for number in range(100_000))
        run_state_machine_as_test(sql_machine(lambda: sqlite_template.copy(next(names))), settings=many)


async def test_a_crash_at_any_statement_undoes_the_whole(database_url):
    """Of a batch with everything in it: after each crash the books are as before, and told again it counts once."""
    database, make, clock = Database(database_url), Maker(), Clock()
    await database.open()
    books, accounts = SqlBooks(database, clock=clock), SqlAccounts(database)
    await books.post(entries.top_up(ALICE, Nano(1000), "one"))
    held = [make.reservation(100) for _ in range(3)]
    await books.write(Batch(reservations=held[:2]))
    batch = Batch(
        reservations=held[2:],
        releases=held[:1],
        settlements=[make.settlement(30, name=held[1].request_id, shares=((OWNER, 9),)), make.settlement(5, None)],
    )
    before = await books.balances(), await books.audit()
    statement = 0
    while True:
        try:
            with crash_at(database, statement):
                await books.write(batch)
            break
        except Crash:
            assert (await books.balances(), await books.audit()) == before
            assert await accounts.charges(KeyId("key_a"), 9) == []
            statement += 1
    assert statement > 8
    await books.write(batch)
    left = {"customer:acct_alice:available": 870, "customer:acct_alice:reserved": 100}
    assert amounts(await books.balances([ALICE])) == left and len(await books.events()) == 7
    check(await books.audit())
    await database.close()


WORK = st.lists(
    st.tuples(st.sampled_from(["reserve", "settle", "release", "post", "expire"]), PEOPLE, REQUESTS), max_size=25
)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(WORK, min_size=3, max_size=3))
def test_several_gateways_at_once(database_url, works):
    """Each over its own connections, telling of the same requests: each settlement counts once, nothing is lost."""

    async def tell():
        databases = [Database(database_url) for _ in works]
        for database in databases:
            await database.open()
        clock = Clock(NOW + 10**6 * next(rounds))
        allbooks = [SqlBooks(database, clock=clock) for database in databases]
        run = str(clock.now)
        make = Maker()
        for person in (ALICE, BOB):
            await allbooks[0].post(entries.top_up(person, Nano(500), f"{person}{run}"))

        async def work(books, steps):
            for what, account, number in steps:
                name = f"r{number}{account}{run}"
                match what:
                    case "reserve":
                        wanted = make.reservation(70, account, name, int(clock.now) + number - 5)
                        await books.write(Batch(reservations=[wanted]))
                    case "settle":
                        other = BOB if account == ALICE else ALICE
                        settlement = make.settlement(40, account, name, ((other, 20), (account, 3)))
                        await books.write(Batch(settlements=[settlement]))
                    case "release":
                        await books.write(Batch(releases=[make.reservation(70, account, name)]))
                    case "post":
                        await books.post(entries.top_up(account, Nano(10), f"t{number}{account}{run}"))
                    case "expire":
                        await books.expire(100)

        await asyncio.gather(*map(work, allbooks, works))
        steps = [step for steps in works for step in steps]
        settled = {(account, number) for what, account, number in steps if what == "settle"}
        count = Counter(event.entry.kind for event in await allbooks[0].events(limit=10_000) if event.at == clock.now)
        assert count["settle"] == len(settled)
        assert count["top_up"] == 2 + len({step[1:] for step in steps if step[0] == "post"})
        check(await allbooks[0].audit())
        for database in databases:
            await database.close()

    asyncio.run(tell())


rounds = iter(range(10**6))
"""Databases are used again by each example: a time of its own tells them apart."""
