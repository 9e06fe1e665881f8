"""Keeps budgets and writes charges down: reserved before work, settled once after it, stored in the background."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

import structlog

from cloud.api.accounts.charges import Charge, month_of
from cloud.api.accounts.keys import ApiKey, KeyId
from cloud.api.accounts.money import Nano, dollars
from cloud.api.accounts.ports import AccountStore
from shared.errors import InsufficientQuota, NexusError, Unavailable

BATCH = 200
"""Charges in one transaction."""
GATHER_S = 0.1
"""How long charges are gathered for one: a transaction costs as much as the rest of a short request."""
BACKLOG_LIMIT = 10_000
"""Charges waiting for a silent store; with more, no new work is taken on."""
RETRY_S = 1.0
LAST_TRIES = 3
"""Times that the rest is offered to the store when the gateway ends."""

log = structlog.get_logger(__name__)


class Hold:
    """Money set aside for one request, until `Ledger.settle` or `Ledger.release`; either may come once more."""

    __slots__ = ("amount", "key", "open")

    def __init__(self, key: KeyId, amount: Nano) -> None:
        self.key = key
        self.amount = amount
        self.open = True


class Ledger:
    """Everything but `start`, `run` and `close` is synchronous, so that no cancellation can come between."""

    def __init__(self, store: AccountStore, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._month = ""
        self._stored: dict[KeyId, int] = {}
        """What the store is known to hold for this month."""
        self._waiting_sums: Counter[KeyId] = Counter()
        """What it has still to be told for this month."""
        self._held: Counter[KeyId] = Counter()
        self._queue: deque[Charge] = deque()
        self._more = asyncio.Event()
        self._turn = asyncio.Lock()

    @property
    def waiting(self) -> int:
        """Charges that the store has not been told."""
        return len(self._queue)

    def spent(self, key: KeyId) -> Nano:
        """This month, answers at work not counted."""
        self._turn_page()
        return Nano(self._stored.get(key, 0) + self._waiting_sums[key])

    def reserve(self, key: ApiKey, worst: Nano) -> Hold:
        """Set the worst case aside. Raises `InsufficientQuota` when the month's budget does not hold it, and
        `Unavailable` when charges cannot be written down at present.
        """
        if len(self._queue) >= BACKLOG_LIMIT:
            raise Unavailable("Usage cannot be recorded at the moment, so no new work is begun. Try again shortly.")
        budget = key.terms.monthly_budget
        if budget is not None:
            # Several gateways together may have spent more than the budget; what costs nothing is possible even then.
            left = max(budget - self.spent(key.id) - self._held[key.id], 0)
            if worst > left:
                raise InsufficientQuota(_refusal(budget, left, worst))
        self._held[key.id] += worst
        return Hold(key.id, worst)

    def release(self, hold: Hold) -> None:
        """Give back what was set aside: nothing was done."""
        if hold.open:
            hold.open = False
            self._held[hold.key] -= hold.amount
            if not self._held[hold.key]:
                del self._held[hold.key]

    def settle(self, hold: Hold, charge: Charge) -> None:
        """The work is over, in whatever way. A second call changes nothing."""
        if not hold.open:
            return
        self.release(hold)
        self._turn_page()
        if charge.month == self._month:
            self._waiting_sums[charge.key_id] += charge.cost
        self._queue.append(charge)
        self._more.set()

    async def start(self) -> None:
        """Read what this month has cost so far. Raises `Unavailable`."""
        self._turn_page()
        self._stored = dict(await self._store.spending(self._month))

    async def run(self) -> None:
        """Write charges down until cancelled. `close` writes the rest."""
        while True:
            await self._more.wait()
            await asyncio.sleep(GATHER_S)
            self._more.clear()
            while self._queue:
                if not await self._write():
                    await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Write what is left; what cannot be written is logged, without anything private."""
        for _ in range(LAST_TRIES):
            while self._queue and await self._write():
                pass
        if self._queue:
            log.error("charges could not be recorded", charges=len(self._queue), cost=sum(c.cost for c in self._queue))

    async def _write(self) -> bool:
        async with self._turn:
            batch = [self._queue[i] for i in range(min(BATCH, len(self._queue)))]
            if not batch:
                return True
            try:
                sums = await self._store.record(batch)
            except Exception as error:  # whatever it is, nothing is lost, and it is tried again
                unforeseen = None if isinstance(error, NexusError) else error
                log.warning("charges cannot be recorded yet", waiting=len(self._queue), exc_info=unforeseen)
                return False
            for charge in batch:
                self._queue.popleft()
                if charge.month == self._month:
                    self._waiting_sums[charge.key_id] -= charge.cost
            self._note(sums)
            return True

    def _note(self, sums: Mapping[tuple[KeyId, str], Nano]) -> None:
        """The store's sums also hold what other gateways have told it."""
        for (key, month), cost in sums.items():
            if month == self._month:
                self._stored[key] = cost
                if not self._waiting_sums[key]:
                    del self._waiting_sums[key]

    def _turn_page(self) -> None:
        """A new month begins at nothing; a clock that is set back does not bring the old one back."""
        month = month_of(self._clock())
        if month > self._month:
            self._month = month
            self._stored.clear()
            self._waiting_sums.clear()


def _refusal(budget: int, left: int, worst: int) -> str:
    text = f"This key's budget of ${dollars(budget)} a month has ${dollars(left)} left"
    if not left:
        return f"{text}. It is renewed on the first of the month (UTC)."
    return f"{text}, but this request could cost ${dollars(worst)}. Ask for fewer output tokens (`max_tokens`)."
