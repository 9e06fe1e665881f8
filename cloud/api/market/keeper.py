"""Carries between the running market and its store: the price book, records at the start, minutes as they end."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from cloud.api.accounts.prices import FREE, Price
from cloud.api.market.minutes import MinuteReport
from cloud.api.market.ports import MarketStore
from cloud.api.market.pricebook import PriceBook, PriceVersion, Rates, RatesVersion, from_settings
from cloud.api.market.reputation import Quarantine, Standing
from shared.errors import Unavailable

SETTINGS = "settings-"
"""What versions that come from the settings file begin with."""
READ_AGAIN_S = 30.0
"""How soon a price that an operator has set counts in a running gateway."""
MOST_WAITING = 1_000
"""Minutes that wait for a store that does not answer; the oldest go first."""
KEPT_S = 90 * 86_400
"""How long minutes of nodes are kept."""
FORGET_EVERY_S = 3_600.0

_log = structlog.get_logger("nexus.market")


class BookPrices(Mapping[str, Price]):
    """What customers pay now, by model, as a mapping that follows the book."""

    def __init__(self, keeper: "MarketKeeper") -> None:
        self._keeper = keeper

    def __getitem__(self, model: str) -> Price:
        return self._keeper.price(model).price

    def __iter__(self) -> Iterator[str]:
        return iter(self._keeper.book.models())

    def __len__(self) -> int:
        return len(self._keeper.book.models())


class MarketKeeper:
    """`on_book` is told of every change of the price book, `on_records` once, of what was stored before.

    The book is of use without a market too: it has what customers pay.
    """

    def __init__(
        self,
        store: MarketStore,
        prices: Mapping[str, Price],
        rates: Rates,
        *,
        clock: Callable[[], float] = time.time,
        on_book: Callable[[PriceBook], None] = lambda _: None,
        on_records: Callable[[Sequence[Standing], Sequence[Quarantine]], None] = lambda _s, _q: None,
    ) -> None:
        self.store = store
        self.book = from_settings(prices, rates)
        """As it is known now; until the store has answered, what the settings say."""
        self._seed = self.book
        self._clock = clock
        self.on_book = on_book
        self.on_records = on_records
        self._waiting: deque[MinuteReport] = deque(maxlen=MOST_WAITING)
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._forgot_at = 0.0

    @property
    def waiting(self) -> int:
        """Minutes that are not stored yet."""
        return len(self._waiting)

    def price(self, model: str) -> PriceVersion:
        """What customers pay now."""
        return self.book.price(model, self._clock())

    def rates(self) -> RatesVersion:
        return self.book.rate(self._clock())

    async def start(self) -> None:
        """Add what is new in the settings, and read all. Raises `Unavailable` when the store does not answer."""
        now = int(self._clock())
        stored = await self.store.book()
        await self.store.add(changed(stored, self._seed, now), now)
        await self.refresh()
        self.on_records(await self.store.standings(), await self.store.quarantines(now))
        self._tasks = [asyncio.create_task(self._write_down()), asyncio.create_task(self._keep_reading())]

    async def stop(self) -> None:
        """Store what waits, if the store takes it. May be called twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            with contextlib.suppress(Unavailable):
                await self.flush()

    def note(self, report: MinuteReport) -> None:
        """A minute has ended. Does not wait."""
        self._waiting.append(report)
        self._wake.set()

    async def flush(self) -> None:
        """Store what waits. Raises `Unavailable`; what could not be stored waits on."""
        while self._waiting:
            report = self._waiting[0]
            await self.store.record(report)
            if self._waiting and self._waiting[0] is report:
                self._waiting.popleft()
        if self._clock() - self._forgot_at > FORGET_EVERY_S:
            self._forgot_at = self._clock()
            await self.store.forget(int(self._clock()) - KEPT_S)

    async def refresh(self) -> None:
        """Read the book again."""
        self.book = await self.store.book()
        self.on_book(self.book)

    async def _write_down(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.flush()
            except Unavailable as error:
                _log.warning("market.not_recorded", waiting=len(self._waiting), error=error.message)
                await asyncio.sleep(READ_AGAIN_S)
                self._wake.set()

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(READ_AGAIN_S)
            with contextlib.suppress(Unavailable):
                await self.refresh()


def changed(stored: PriceBook, seed: PriceBook, now: int) -> list[PriceVersion | RatesVersion]:
    """The versions that bring a stored book to what the settings say.

    A version of the settings is added when it is not the latest that came from settings; what an operator has set
    since then by command stays in force until the settings change. A model that left the settings is free again.
    """
    new: list[PriceVersion | RatesVersion] = []
    wanted = {version.model: version for version in seed.prices}
    from_file = {version.model: version for version in stored.prices if version.version.startswith(SETTINGS)}
    for model, last in from_file.items():
        if model not in wanted and last.price != FREE:
            wanted[model] = from_settings({model: FREE}, Rates()).prices[0]
    for model, version in sorted(wanted.items()):
        known = from_file.get(model)
        if known is None or known.price != version.price:
            used = any(v.version == version.version and v.model == model for v in stored.prices)
            name = f"{version.version}-{now}" if used else version.version
            new.append(PriceVersion(name, model, now if known else 0, version.price))
    for rate in seed.rates:
        past = [known for known in stored.rates if known.version.startswith(SETTINGS)]
        if not past or past[-1].rates != rate.rates:
            used = any(known.version == rate.version for known in stored.rates)
            new.append(RatesVersion(f"{rate.version}-{now}" if used else rate.version, now if past else 0, rate.rates))
    return new
