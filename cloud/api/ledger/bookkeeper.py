"""A gateway's side of the books: money is set aside before the work and settled after it, and neither waits for a slow
database as long as the account has plenty.

One task writes batches. In front of it stand reservations (a request whose account is near its limit waits for its own,
others have gone ahead), releases, and settlements, which lie in the spool until they are posted. What is over before
its reservation was written needs none.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import structlog

from cloud.api.accounts.budgets import BudgetHold, Budgets
from cloud.api.accounts.keys import ApiKey
from cloud.api.accounts.money import Nano, dollars
from cloud.api.ledger.ports import Batch, Books, Written
from cloud.api.ledger.purse import REFRESH_S, Purse
from cloud.api.ledger.reservations import Reservation
from cloud.api.ledger.settlement import Settlement
from cloud.api.ledger.spool import Spool
from shared.errors import InsufficientQuota, NexusError, Unavailable
from shared.ids import AccountId, GatewayId

BATCH = 200
"""Settlements in one transaction, and as many reservations and releases."""
GATHER_S = 0.1
"""How long they are gathered for one when nobody waits: a transaction costs as much as the rest of a short request."""
SYNC_S = 0.02
"""How long settlements are gathered before the spool is put on the disk."""
BACKLOG_LIMIT = 10_000
"""What may wait for silent books; with more, no new work is taken on."""
RESERVE_S = 5.0
"""Longest wait of a request for its reservation."""
RETRY_S = 1.0
LAST_TRIES = 3
"""Times that the rest is offered to the books when the gateway ends."""

log = structlog.get_logger(__name__)


class _Order:
    """A reservation on its way to the books."""

    __slots__ = ("dropped", "made", "purse", "reservation", "told", "written")

    def __init__(self, reservation: Reservation, purse: Purse) -> None:
        self.reservation = reservation
        self.purse = purse
        self.told = False
        """Offered to the books at least once, so that they may have it."""
        self.written = False
        """They have answered."""
        self.made = False
        self.dropped = False
        """The request has ended without work while the books were being told."""


class Hold:
    """Money set aside for one request, until `Bookkeeper.settle` or `Bookkeeper.release`; either may come once more."""

    __slots__ = ("budget", "open", "order")

    def __init__(self, budget: BudgetHold) -> None:
        self.budget = budget
        self.order: _Order | None = None
        self.open = True

    @property
    def amount(self) -> Nano:
        return self.budget.amount


@dataclass(frozen=True, slots=True)
class _Item:
    """A settlement on its way to the books."""

    settlement: Settlement
    spooled: bool
    counted: bool
    """Whether the budgets of this process know of it."""
    purse: Purse | None = None
    outstanding: int = 0
    """What it counts for in the purse until it is posted."""


class Bookkeeper:
    """Use on one event loop. Everything but `start`, `reserve`, `run` and `close` is synchronous, so that no
    cancellation can come between. Without a spool, settlements wait in this process only.
    """

    def __init__(
        self,
        books: Books,
        budgets: Budgets,
        *,
        gateway: GatewayId,
        spool: Spool | None = None,
        lease_s: int = 60,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._books = books
        self._budgets = budgets
        self._gateway = gateway
        self._spool = spool
        self._lease_s = lease_s
        self._clock = clock
        self._monotonic = monotonic
        self._purses: dict[AccountId, Purse] = {}
        self._orders: dict[str, _Order] = {}
        """Reservations to be written, by request."""
        self._held: dict[str, Reservation] = {}
        """Of requests at work, those that the books may have."""
        self._answers: dict[str, asyncio.Future[bool]] = {}
        self._releases: deque[Reservation] = deque()
        self._items: deque[_Item] = deque()
        self._more = asyncio.Event()
        self._hurry = asyncio.Event()
        self._unsynced = asyncio.Event()
        self._turn = asyncio.Lock()
        self._careful = False
        """Since a batch failed for a reason that nobody foresaw: settlements go one by one, to find the one."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def waiting(self) -> int:
        """Settlements that the books have not been told."""
        return len(self._items)

    def held(self) -> Collection[str]:
        """Requests at work whose reservation the books may have."""
        return self._held.keys()

    async def reserve(self, key: ApiKey, request_id: str, worst: Nano) -> Hold:
        """Set the worst case aside, of the key's budget and of its account's money.

        Raises `InsufficientQuota` when one of them does not hold it, and `Unavailable` when that cannot be known, or
        settlements cannot be written down at present.
        """
        if len(self._items) + len(self._orders) >= BACKLOG_LIMIT:
            raise Unavailable("Usage cannot be recorded at the moment, so no new work is begun. Try again shortly.")
        hold = Hold(self._budgets.reserve(key, worst))
        if key.account is None or not worst:
            return hold
        now = self._monotonic()
        purse = self._purses.setdefault(key.account, Purse())
        purse.used_at = now
        reservation = Reservation(
            request_id=request_id,
            account=key.account,
            amount=worst,
            gateway=self._gateway,
            expires_at=int(self._clock()) + self._lease_s,
        )
        ahead = purse.covers(worst, now)
        hold.order = self._orders[request_id] = _Order(reservation, purse)
        purse.outstanding += worst
        self._more.set()
        if not ahead:
            try:
                await self._made(hold.order)
            except BaseException:
                self.release(hold)
                raise
        return hold

    def release(self, hold: Hold) -> None:
        """Give back what was set aside: nothing was done."""
        self._budgets.release(hold.budget)
        if not hold.open:
            return
        hold.open = False
        if (order := hold.order) is None:
            return
        reservation = order.reservation
        self._held.pop(reservation.request_id, None)
        if self._orders.pop(reservation.request_id, None) is not None:
            order.purse.outstanding -= reservation.amount
        elif not order.written:
            order.dropped = True
            return
        if order.told and (order.made or not order.written):
            self._release(reservation)

    def settle(self, hold: Hold, settlement: Settlement) -> None:
        """The work is over, in whatever way. A second call changes nothing."""
        if not hold.open:
            return
        hold.open = False
        self._budgets.settle(hold.budget, settlement.charge)
        purse, outstanding = None, 0
        if (order := hold.order) is not None:
            self._held.pop(order.reservation.request_id, None)
            if self._orders.pop(order.reservation.request_id, None) is not None:
                order.purse.outstanding -= order.reservation.amount
            if not order.made:
                purse, outstanding = order.purse, int(settlement.charge.cost)
                purse.outstanding += outstanding
        self._items.append(self._spooled(settlement, counted=True, purse=purse, outstanding=outstanding))
        self._more.set()

    def take_over(self) -> None:
        """Settle what dead processes have left in their spools."""
        if self._spool is not None:
            for settlement in self._spool.take_over():
                item = self._spooled(settlement, counted=False)
                self._items.append(item)
                self._more.set()
                if not item.spooled:  # the old file stays until there is room for a new one
                    break

    async def start(self) -> None:
        """Take over what an earlier process has left, and begin to write. Raises `ConfigError`."""
        if self._spool is not None:
            self._spool.open()
        self.take_over()
        self._tasks = [asyncio.create_task(work()) for work in (self.run, self._sync, self._refresh)]

    async def run(self) -> None:
        """Write until cancelled. `close` writes the rest."""
        while True:
            await self._more.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_S):
                    await self._hurry.wait()
            self._more.clear()
            self._hurry.clear()
            while self._orders or self._items or self._releases or self._stale():
                if not await self._write():
                    await asyncio.sleep(RETRY_S)

    async def flush(self) -> bool:
        """Write what waits, now; whether the books took all of it."""
        while self._orders or self._items or self._releases:
            if not await self._write():
                return False
        return True

    async def close(self) -> None:
        """Write what is left. What cannot be written stays in the spool, or is logged, without anything private."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(LAST_TRIES):
            if await self.flush():
                break
        if self._items:
            lost = [item for item in self._items if not item.spooled]
            log.error("settlements could not be posted", spooled=len(self._items) - len(lost), lost=len(lost))
        if self._spool is not None:
            self._spool.sync()
            self._spool.close()

    # --- writing ---

    async def _write(self) -> bool:
        """One batch; whether the books took it."""
        async with self._turn:
            orders, releases, items = self._take()
            batch = Batch(
                reservations=[order.reservation for order in orders],
                releases=releases,
                settlements=[item.settlement for item in items],
                look_at=self._stale(),
            )
            try:
                written = await self._books.write(batch)
            except Exception as error:  # whatever it is, nothing is lost, and it is tried again
                foreseen = isinstance(error, NexusError)
                waiting = len(self._items)
                log.warning("the books cannot be written yet", waiting=waiting, exc_info=None if foreseen else error)
                self._put_back(orders, releases)
                self._suspect(items, foreseen=isinstance(error, Unavailable))
                return False
            self._note(written, orders, items)
            return True

    def _take(self) -> tuple[list[_Order], list[Reservation], list[_Item]]:
        """What goes into the next batch. Settlements stay in their queue until they are posted."""
        orders = [self._orders.pop(name) for name in list(self._orders)[:BATCH]]
        for order in orders:
            order.told = True
            self._held[order.reservation.request_id] = order.reservation
        releases = [self._releases.popleft() for _ in range(min(BATCH, len(self._releases)))]
        most = BATCH if not self._careful else 0 if orders or releases else 1
        return orders, releases, [self._items[i] for i in range(min(most, len(self._items)))]

    def _put_back(self, orders: Sequence[_Order], releases: Sequence[Reservation]) -> None:
        self._releases.extendleft(reversed(releases))
        waiting = dict(self._orders)
        self._orders.clear()
        for order in orders:
            reservation = order.reservation
            if order.dropped or reservation.request_id not in self._held:  # over meanwhile
                order.written = True
                order.purse.outstanding -= reservation.amount
                if order.dropped:
                    self._release(reservation)  # who knows whether they have it
            else:
                self._orders[reservation.request_id] = order
        self._orders |= waiting

    def _suspect(self, items: Sequence[_Item], *, foreseen: bool) -> None:
        """One settlement that the books cannot take keeps no other waiting: it goes to the end."""
        if foreseen:
            return
        if self._careful and len(items) == 1:
            log.error("a settlement cannot be posted", request=items[0].settlement.charge.request_id)
            item = self._items.popleft()
            again = self._spooled(item.settlement, counted=item.counted, purse=item.purse, outstanding=item.outstanding)
            self._posted([item])
            self._items.append(again)
        self._careful = True

    def _note(self, written: Written, orders: Sequence[_Order], items: Sequence[_Item]) -> None:
        now = self._monotonic()
        for order in orders:
            name = order.reservation.request_id
            order.written = True
            order.made = name not in written.refused
            order.purse.outstanding -= order.reservation.amount
            if not order.made:
                self._held.pop(name, None)
            elif order.dropped:
                self._release(order.reservation)
            answer = self._answers.pop(name, None)
            if answer is not None and not answer.done():
                answer.set_result(order.made)
            elif not order.made and not order.dropped:
                log.warning("a request went ahead of the books, and its account has too little", request=name)
        for item in items:
            self._items.popleft()
            if item.purse is not None:
                item.purse.outstanding -= item.outstanding
        self._posted(items)
        self._budgets.recorded([item.settlement.charge for item in items if item.counted], written.spending)
        for account, amount in written.available.items():
            if account in self._purses:
                self._purses[account].learn(amount, now)
        self._careful = self._careful and bool(self._items)

    def _posted(self, items: Sequence[_Item]) -> None:
        if self._spool is not None:
            self._spool.posted(sum(item.spooled for item in items))

    def _release(self, reservation: Reservation) -> None:
        self._releases.append(reservation)
        self._more.set()

    def _spooled(
        self, settlement: Settlement, *, counted: bool, purse: Purse | None = None, outstanding: int = 0
    ) -> _Item:
        spooled = False
        if self._spool is not None:
            try:
                self._spool.append(settlement)
                spooled = True
                self._unsynced.set()
            except OSError as error:
                log.error("a settlement cannot be spooled; it waits in memory", error=str(error))
        return _Item(settlement, spooled, counted, purse, outstanding)

    # --- waiting and looking ---

    async def _made(self, order: _Order) -> None:
        """Wait until the books have the reservation. Raises `InsufficientQuota` and `Unavailable`."""
        request_id, account = order.reservation.request_id, order.reservation.account
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        self._hurry.set()
        try:
            async with asyncio.timeout(RESERVE_S):
                made = await answer
        except TimeoutError:
            raise Unavailable("Money cannot be set aside at the moment. Try again shortly.") from None
        finally:
            self._answers.pop(request_id, None)
        if not made:
            left = max(self._purses[account].known, 0)
            raise InsufficientQuota(_refusal(left, order.reservation.amount))

    def _stale(self) -> list[AccountId]:
        """Accounts in use whose balance is to be asked for again."""
        now = self._monotonic()
        return [account for account, purse in self._purses.items() if purse.stale(now)]

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            now = self._monotonic()
            self._purses = {account: purse for account, purse in self._purses.items() if purse.active(now)}
            if self._stale():
                self._more.set()

    async def _sync(self) -> None:
        while self._spool is not None:
            await self._unsynced.wait()
            await asyncio.sleep(SYNC_S)
            self._unsynced.clear()
            await asyncio.to_thread(self._spool.sync)


def _refusal(left: int, worst: int) -> str:
    text = f"This account has ${dollars(left)} left, but this request could cost ${dollars(worst)}"
    return f"{text}. Add money to the account, or ask for fewer output tokens (`max_tokens`)."
