"""Lets requests in while there is room, keeps a bounded number waiting, and drains."""

import asyncio
import math
import time
from collections.abc import Callable

from cloud.api.accounts.keys import KeyId
from cloud.api.admission.queue import FairQueue
from cloud.api.admission.settings import GateSettings
from shared.errors import Unavailable

DRAINING_RETRY_S = 2.0
MOST_RETRY_S = 60.0
"""The official clients wait no longer than this for a retry."""
_SMOOTHING = 0.1

Place = asyncio.Future[None]


class Gate:
    """Use on one event loop. Whoever was let in calls `leave` once."""

    def __init__(self, settings: GateSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._queue: FairQueue[tuple[Place, int]] = FairQueue()
        self.streams = 0
        self.tokens = 0
        self.requests = 0
        """Let in and not yet over."""
        self._wanted_at: float | None = None
        """Since when a place has been wanted that was not free; none while there is room."""
        self._interval_s: float | None = None
        """Smoothed time that a wanted place took to become free."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    async def enter(self, key: KeyId, streams: int, tokens: int) -> None:
        """Wait for a place. Raises `Unavailable` when the queue is full, at the deadline, and while draining."""
        if self.draining:
            raise _going_away()
        tokens = max(tokens, 1)
        place: Place = asyncio.get_running_loop().create_future()
        entry = self._queue.push(key, tokens, (place, streams))
        self._let_in()
        if place.done():
            return
        if self._wanted_at is None:
            self._wanted_at = self._clock()
        self._shed()
        try:
            async with asyncio.timeout(self._settings.deadline_s):
                await place
        except BaseException as error:
            self._queue.remove(entry)
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave(streams, tokens)  # let in, and gone in the same moment
            self._let_in()
            if isinstance(error, TimeoutError):
                raise Unavailable(
                    f"No place became free within {self._settings.deadline_s:g} s. Try again later.",
                    retry_after_s=self._expected_s(),
                ) from None
            raise

    def leave(self, streams: int, tokens: int) -> None:
        """A request that was let in is over."""
        self.requests -= 1
        self.streams -= streams
        self.tokens -= max(tokens, 1)
        now = self._clock()
        if self._wanted_at is not None:
            passed = now - self._wanted_at
            last = passed if self._interval_s is None else self._interval_s
            self._interval_s = last + _SMOOTHING * (passed - last)
        self._let_in()
        self._wanted_at = now if self.waiting else None
        if not self.requests:
            self._idle.set()

    def _shed(self) -> None:
        """While too many wait, send away from the key that has most waiting: no key can fill the queue for others."""
        while len(self._queue) > self._settings.queue_requests or self._queue.cost > self._settings.queue_tokens:
            entry = self._queue.greediest()
            if entry is None:
                return
            self._queue.remove(entry)
            error = Unavailable("Too many requests are waiting. Try again later.", retry_after_s=self._expected_s())
            entry.item[0].set_exception(error)

    def drain(self) -> None:
        """From now on nobody is let in; those who wait are sent away. Those who are in may finish."""
        self.draining = True
        while (entry := self._queue.first()) is not None:
            self._queue.remove(entry)
            if not entry.item[0].done():
                entry.item[0].set_exception(_going_away())

    async def idle(self) -> None:
        """Wait until nobody is in."""
        await self._idle.wait()

    def _let_in(self) -> None:
        while (entry := self._queue.first()) is not None:
            place, streams = entry.item
            if place.done():
                self._queue.remove(entry)
                continue
            fits = (
                self.streams + streams <= self._settings.max_streams
                and self.tokens + entry.cost <= self._settings.max_tokens
            )
            if self.requests and not fits:  # one that never fits goes alone
                return
            self._queue.pop()
            self.requests += 1
            self.streams += streams
            self.tokens += entry.cost
            self._idle.clear()
            place.set_result(None)

    def _expected_s(self) -> float:
        """When the queue will have moved on, at the pace of late."""
        pace = self._interval_s if self._interval_s is not None else 1.0
        return min(max(math.ceil((len(self._queue) + 1) * pace), 1.0), MOST_RETRY_S)


def _going_away() -> Unavailable:
    return Unavailable("This gateway is shutting down. Try again shortly.", retry_after_s=DRAINING_RETRY_S)
