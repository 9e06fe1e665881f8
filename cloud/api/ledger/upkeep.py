"""What every gateway does for the books now and then: renew, expire, mature, and take over what dead ones have left."""

import asyncio
import time
from collections.abc import Callable

import structlog

from cloud.api.ledger.bookkeeper import Bookkeeper
from cloud.api.ledger.ports import Books
from shared.errors import NexusError

AT_ONCE = 500
"""Reservations or earnings in one transaction."""
SPELLS = 3
"""Rounds within the time that a reservation lasts: one may fail, and one more."""

log = structlog.get_logger(__name__)


class Upkeep:
    """Several gateways may do it at once: whatever comes second finds nothing to do."""

    def __init__(
        self, books: Books, bookkeeper: Bookkeeper, *, lease_s: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._books = books
        self._bookkeeper = bookkeeper
        self._lease_s = lease_s
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self.run())

    async def stop(self) -> None:
        """May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.round()
            except Exception as error:  # whatever it is, the next round may do
                unforeseen = None if isinstance(error, NexusError) else error
                log.warning("the books cannot be looked after", exc_info=unforeseen)
            await asyncio.sleep(self._lease_s / SPELLS)

    async def round(self) -> None:
        """Own reservations first: nothing that is at work here expires in the same round."""
        requests = sorted(self._bookkeeper.held())
        for start in range(0, len(requests), AT_ONCE):
            await self._books.renew(requests[start : start + AT_ONCE], int(self._clock()) + self._lease_s)
        while (count := await self._books.expire(AT_ONCE)) > 0:
            log.warning("reservations of requests that nobody ended were released", count=count)
        while await self._books.mature(AT_ONCE):
            pass
        self._bookkeeper.take_over()
