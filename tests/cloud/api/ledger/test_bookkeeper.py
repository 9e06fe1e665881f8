"""A gateway's side of the books: who waits, who goes ahead, and that nothing is lost or doubled."""

import asyncio
from dataclasses import dataclass, field

import pytest
from support.ledger import ALICE, NOW, OWNER, Clock, amounts, check, key
from support.waiting import until

from cloud.api.accounts.budgets import Budgets
from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.money import Nano
from cloud.api.ledger import bookkeeper as module
from cloud.api.ledger import entries
from cloud.api.ledger.bookkeeper import BACKLOG_LIMIT, Bookkeeper
from cloud.api.ledger.memory import MemoryBooks
from cloud.api.ledger.purse import FRESH_S, SHARE
from cloud.api.ledger.reservations import State
from cloud.api.ledger.spool import Spool
from cloud.api.ledger.upkeep import Upkeep
from shared.errors import InsufficientQuota, Unavailable
from shared.ids import GatewayId


class SlowBooks(MemoryBooks):
    """Writes wait for a gate, fail when they are told to, or are done and never heard of."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures = []
        """What comes of the next writes: an error before them, or behind them (`after`)."""
        self.after = False
        self.batches = []

    async def write(self, batch):
        await self.gate.wait()
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and not self.after:
            raise failure
        self.batches.append(batch)
        written = await super().write(batch)
        if failure is not None:
            raise failure
        return written


@dataclass
class Scene:
    """A gateway's bookkeeper over slow books; Alice has prepaid."""

    clock: Clock = field(default_factory=Clock)
    prepaid: int = 1000
    spool: Spool | None = None

    async def __aenter__(self):
        self.accounts = MemoryAccounts()
        self.books = SlowBooks(self.accounts, clock=self.clock)
        if self.prepaid:
            await self.books.post(entries.top_up(ALICE, Nano(self.prepaid), "one"))
        self.budgets = Budgets(self.accounts, clock=self.clock)
        await self.budgets.start()
        self.keeper = self.another(self.spool)
        return self

    def another(self, spool=None):
        gateway = GatewayId("gw_1")
        options = {"spool": spool, "clock": self.clock, "monotonic": self.clock}
        return Bookkeeper(self.books, self.budgets, gateway=gateway, **options)

    async def __aexit__(self, *_):
        await self.keeper.close()

    async def known(self):
        """Let the gateway learn what Alice has."""
        asking = asyncio.create_task(self.keeper.reserve(key(), "req_first", Nano(1)))
        await until(lambda: self.keeper._answers or asking.done())
        await self.keeper.flush()
        self.keeper.release(await asking)
        await self.keeper.flush()

    async def alice(self):
        return amounts(await self.books.balances([ALICE]))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Nothing is gathered."""
    monkeypatch.setattr(module, "GATHER_S", 0)
    monkeypatch.setattr(module, "RETRY_S", 0)
    monkeypatch.setattr(module, "SYNC_S", 0)


async def test_the_first_request_waits_for_its_reservation(make):
    """The gateway does not know the account yet; the books have the reservation when the request goes on."""
    async with Scene() as scene:
        await scene.keeper.start()
        hold = await scene.keeper.reserve(key(), "req_1", Nano(400))
        assert await scene.alice() == {"customer:acct_alice:available": 600, "customer:acct_alice:reserved": 400}
        scene.keeper.settle(hold, make.settlement(150, name="req_1"))
        scene.keeper.settle(hold, make.settlement(999, name="req_1"))
        scene.keeper.release(hold)
        await scene.keeper.flush()
        assert await scene.alice() == {"customer:acct_alice:available": 850}
        assert scene.budgets.spent(KeyId("key_a")) == 150


async def test_who_has_plenty_goes_ahead_of_slow_books(make):
    """No request waits for them, until what was let in ahead is a quarter of what the account had."""
    async with Scene() as scene:
        await scene.keeper.start()
        await scene.known()
        scene.books.gate.clear()
        ahead = [await scene.keeper.reserve(key(), f"req_{n}", Nano(50)) for n in range(1000 // SHARE // 50)]
        near = asyncio.create_task(scene.keeper.reserve(key(), "req_near", Nano(50)))
        await until(lambda: "req_near" in scene.keeper._answers)
        assert not near.done() and (await scene.alice()) == {"customer:acct_alice:available": 1000}
        scene.books.gate.set()
        await near
        assert (await scene.alice())["customer:acct_alice:reserved"] == 50 * (len(ahead) + 1)


async def test_old_knowledge_is_not_enough(make):
    """An account that was not heard of for a time waits again."""
    async with Scene() as scene:
        await scene.keeper.start()
        await scene.known()
        scene.books.gate.clear()
        scene.clock.now += FRESH_S + 1
        waiting = asyncio.create_task(scene.keeper.reserve(key(), "req_1", Nano(1)))
        await until(lambda: "req_1" in scene.keeper._answers)
        scene.books.gate.set()
        await waiting


async def test_402_when_there_is_too_little(make):
    """In words, with nothing left behind: a smaller request fits, and a key without an account is never asked."""
    async with Scene() as scene:
        await scene.keeper.start()
        with pytest.raises(InsufficientQuota, match=r"\$0.000001 left, but this request could cost \$0.000001001"):
            await scene.keeper.reserve(key(), "req_1", Nano(1001))
        await scene.keeper.reserve(key(), "req_2", Nano(1000))
        with pytest.raises(InsufficientQuota, match=r"\$0 left"):
            await scene.keeper.reserve(key(), "req_3", Nano(1))
        await scene.keeper.reserve(key(), "req_4", Nano(0))
        await scene.keeper.reserve(key(None), "req_5", Nano(10**15))
        assert scene.budgets._held == {"key_a": 1000 + 10**15}


async def test_money_that_comes_in_is_heard_of(make):
    """A top-up elsewhere lets the next request in."""
    async with Scene(prepaid=0) as scene:
        await scene.keeper.start()
        with pytest.raises(InsufficientQuota):
            await scene.keeper.reserve(key(), "req_1", Nano(10))
        await scene.books.post(entries.top_up(ALICE, Nano(10), "late"))
        await scene.keeper.reserve(key(), "req_2", Nano(10))


async def test_what_is_over_in_time_needs_no_reservation(make):
    """A request that ended before its reservation was written is settled alone; one that was not let in is not told."""
    async with Scene() as scene:
        await scene.keeper.start()
        await scene.known()
        scene.books.gate.clear()
        first = await scene.keeper.reserve(key(), "req_1", Nano(10))
        await until(lambda: scene.keeper._held)  # in the batch that waits at the gate
        short, dropped = [await scene.keeper.reserve(key(), f"req_{n}", Nano(10)) for n in (2, 3)]
        scene.keeper.settle(short, make.settlement(4, name="req_2"))
        scene.keeper.release(dropped)
        scene.keeper.release(first)
        scene.books.gate.set()
        await scene.keeper.flush()
        await scene.keeper.flush()
        keys = [event.entry.key for event in await scene.books.events()]
        assert keys[:3] == ["settle:req_2", "release:req_1", "reserve:req_1"] and len(keys) <= 6
        assert await scene.alice() == {"customer:acct_alice:available": 996}
        assert all(purse.outstanding == 0 for purse in scene.keeper._purses.values())


@pytest.mark.parametrize("after", [False, True])
async def test_books_that_fail_lose_and_double_nothing(make, after, monkeypatch):
    """Whether a batch that failed was written or not, also with requests that end meanwhile."""
    async with Scene() as scene:
        await scene.known()
        scene.books.after = after
        holds = {n: await scene.keeper.reserve(key(), f"req_{n}", Nano(20)) for n in range(6)}
        scene.books.gate.clear()
        scene.books.failures = [Unavailable("silent"), RuntimeError("a fault"), Unavailable("silent")]
        writing = asyncio.create_task(scene.keeper.flush())
        await until(lambda: len(scene.keeper._held) == 6)
        scene.keeper.settle(holds[0], make.settlement(5, name="req_0"))
        scene.keeper.release(holds[1])
        scene.books.gate.set()
        assert not await writing
        scene.keeper.settle(holds[2], make.settlement(6, name="req_2"))
        scene.keeper.release(holds[3])
        assert not await scene.keeper.flush() and not await scene.keeper.flush()
        assert await scene.keeper.flush()
        scene.keeper.settle(holds[4], make.settlement(7, name="req_4"))
        assert await scene.keeper.flush()
        left = {"customer:acct_alice:available": 1000 - 18 - 20, "customer:acct_alice:reserved": 20}
        assert await scene.alice() == left and set(scene.keeper.held()) == {"req_5"}
        assert all(purse.outstanding == 0 for purse in scene.keeper._purses.values())
        assert scene.budgets.spent(KeyId("key_a")) == 18
        check(await scene.books.audit())


async def test_silent_books_refuse_who_must_wait(make, monkeypatch):
    """503 in time, and what may have been set aside is given back."""
    monkeypatch.setattr(module, "RESERVE_S", 0)
    async with Scene() as scene:
        await scene.keeper.start()
        scene.books.gate.clear()
        with pytest.raises(Unavailable, match="set aside"):
            await scene.keeper.reserve(key(), "req_1", Nano(100))
        scene.books.gate.set()
        await scene.keeper.flush()
        assert await scene.alice() == {"customer:acct_alice:available": 1000} and not scene.budgets._held


async def test_gone_while_waiting(make):
    """A caller who leaves before the reservation is made leaves nothing behind."""
    async with Scene() as scene:
        await scene.keeper.start()
        scene.books.gate.clear()
        waiting = asyncio.create_task(scene.keeper.reserve(key(), "req_1", Nano(100)))
        await until(lambda: scene.keeper._held)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        scene.books.gate.set()
        await scene.keeper.flush()
        assert await scene.alice() == {"customer:acct_alice:available": 1000} and not scene.budgets._held


async def test_a_backlog_stops_new_work(make):
    """503 while too many settlements wait; then all of them are written."""
    async with Scene() as scene:
        for n in range(BACKLOG_LIMIT):
            scene.keeper.settle(await scene.keeper.reserve(key(None), f"r{n}", Nano(0)), make.settlement(1, None))
        with pytest.raises(Unavailable, match="cannot be recorded"):
            await scene.keeper.reserve(key(None), "more", Nano(0))
        assert await scene.keeper.flush() and scene.keeper.waiting == 0
        assert await scene.accounts.spending("2026-11") == {"key_a": BACKLOG_LIMIT}


async def test_one_bad_settlement_keeps_no_other_waiting(make, tmp_path):
    """It stays in the spool and is tried again and again, behind the others."""
    async with Scene(spool=Spool(tmp_path)) as scene:
        bad, good = make.reservation(10, name="req_bad"), ["req_1", "req_2", "req_3"]
        await scene.books.write(module.Batch(reservations=[bad]))
        for name in (bad.request_id, *good):
            hold = await scene.keeper.reserve(key(None), name, Nano(0))
            scene.keeper.settle(hold, make.settlement(5, None, name=name))
        while scene.keeper.waiting > 1:
            await scene.keeper.flush()
        settled = [event.entry.key for event in await scene.books.events(kind="settle")]
        assert sorted(settled) == [f"settle:{name}" for name in good]
    assert "req_bad" in {settlement.charge.request_id for settlement in Spool(tmp_path).take_over()}


async def test_a_killed_gateway_loses_no_settlement(make, tmp_path):
    """What it had not posted, its successor does, once."""
    async with Scene(spool=Spool(tmp_path)) as scene:
        await scene.keeper.start()
        holds = [await scene.keeper.reserve(key(), f"req_{n}", Nano(10)) for n in range(3)]
        await scene.keeper.flush()
        scene.keeper.settle(holds[0], make.settlement(5, name="req_0", shares=((OWNER, 2),)))
        await scene.keeper.flush()
        scene.keeper.settle(holds[1], make.settlement(7, name="req_1", shares=((OWNER, 3),)))
        for task in scene.keeper._tasks:  # as a kill does: nothing more is done, and its files are free
            task.cancel()
        scene.keeper._spool.close()
        scene.keeper = scene.another(Spool(tmp_path))
        await scene.keeper.start()
        await scene.keeper.flush()
        scene.clock.now += 61
        await Upkeep(scene.books, scene.keeper, lease_s=60, clock=scene.clock).round()
        assert await scene.alice() == {"customer:acct_alice:available": 988}
        assert scene.books._reservations["req_2"].state is State.RELEASED
        check(await scene.books.audit())
    assert not list(tmp_path.iterdir())


async def test_a_living_gateway_renews(make):
    """What it has at work is never released, however long it takes; what it does not know is."""
    async with Scene() as scene:
        await scene.keeper.start()
        upkeep = Upkeep(scene.books, scene.keeper, lease_s=60, clock=scene.clock)
        hold = await scene.keeper.reserve(key(), "req_1", Nano(10))
        await scene.books.write(module.Batch(reservations=[make.reservation(10, expires_at=NOW + 60)]))
        for _ in range(10):
            scene.clock.now += 20
            await upkeep.round()
        assert (await scene.alice())["customer:acct_alice:reserved"] == 10
        scene.keeper.settle(hold, make.settlement(1, name="req_1"))
        await scene.keeper.flush()
        assert await scene.alice() == {"customer:acct_alice:available": 999}


async def test_two_gateways_settle_the_same_usage_once(make):
    """As when one died after it had posted, and the other takes its spool over."""
    async with Scene() as scene:
        other = scene.another()
        settlement = make.settlement(30, name="req_1")
        for keeper in (scene.keeper, other):
            keeper.settle(await keeper.reserve(key(None), "req_1", Nano(0)), settlement)
        await asyncio.gather(scene.keeper.flush(), other.flush())
        assert await scene.alice() == {"customer:acct_alice:available": 970}
        assert await scene.accounts.spending("2026-11") == {"key_a": 30}


async def test_an_account_that_others_have_emptied(make):
    """A request that went ahead is finished and settled; the next one is refused."""
    async with Scene() as scene:
        await scene.keeper.start()
        await scene.known()
        await scene.books.post(entries.refund(ALICE, Nano(1000), "all", reason="closed"))
        hold = await scene.keeper.reserve(key(), "req_1", Nano(100))
        await scene.keeper.flush()
        with pytest.raises(InsufficientQuota):
            await scene.keeper.reserve(key(), "req_2", Nano(1))
        scene.keeper.settle(hold, make.settlement(40, name="req_1"))
        await scene.keeper.flush()
        assert await scene.alice() == {"customer:acct_alice:available": -40}
        check(await scene.books.audit())


async def test_it_runs_by_itself(make, monkeypatch):
    """No flush is needed, faults of the books end nothing, and closing writes the rest."""
    async with Scene() as scene:
        scene.books.failures = [RuntimeError("a fault"), Unavailable("silent")]
        await scene.keeper.start()
        scene.keeper.settle(await scene.keeper.reserve(key(), "req_1", Nano(9)), make.settlement(4, name="req_1"))
        await until(lambda: not scene.keeper.waiting)
        scene.keeper.settle(await scene.keeper.reserve(key(), "req_2", Nano(9)), make.settlement(4, name="req_2"))
        await scene.keeper.close()
        assert await scene.alice() == {"customer:acct_alice:available": 992}
