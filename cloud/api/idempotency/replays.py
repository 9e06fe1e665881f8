"""Finds the answer that a request asks for again: one at work, a stored one, or what an earlier attempt left."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from cloud.api.accounts.money import NOTHING, Nano
from cloud.api.idempotency.answers import SEED_BITS, Call, Found, Kept, new_id, taken_over
from cloud.api.idempotency.ports import AnswerStore
from cloud.api.idempotency.recording import Recording
from cloud.api.idempotency.settings import ReplaySettings
from shared.errors import Conflict, NexusError, Unavailable

LEASE_S = 15
RENEW_S = 4.0
PURGE_S = 30.0
BATCH = 50
"""Answers in one transaction."""
BACKLOG_BYTES = 64 << 20
"""Most that waits to be stored; beyond it answers without an `Idempotency-Key` are not stored."""
MOST_FRUITLESS = 10_000
"""Requests that came to nothing, remembered for their retries."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Attempt:
    """An answer being made that may be asked for again."""

    row: Kept
    recording: Recording
    claimed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is decided whether this attempt makes the answer."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the store has been told, or is known not to answer."""
    storing: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has ended, and it is known what it has cost."""

    @property
    def seed(self) -> int:
        return self.row.seed

    @property
    def credit(self) -> Nano:
        """What an earlier attempt has paid for the same answer."""
        return self.row.billed


Begun = Attempt | Recording | Kept | None
"""Make the answer; follow one at work; send a stored one; make one that nobody can ask for again."""


class Replays:
    """Use on one event loop. Whoever gets an `Attempt` calls `finish` before its last bytes and `end` once."""

    def __init__(
        self,
        store: AnswerStore,
        settings: ReplaySettings,
        *,
        owner: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._settings = settings
        self._owner = owner or f"gw_{secrets.token_hex(8)}"
        self._clock = clock
        self._claims: dict[bytes, Attempt] = {}
        self._attempts: dict[bytes, list[Attempt]] = {}
        """Without an `Idempotency-Key`, by fingerprint: at work, or ended and not yet stored."""
        self._fruitless: dict[bytes, float] = {}
        """When an attempt last came to nothing, by fingerprint: its retry is about none that ended before."""
        self._unstored: deque[Attempt] = deque()
        self._unstored_bytes = 0
        self._more = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._look_after())]

    async def stop(self) -> None:
        """Stores what waits, and gives up what is still at work. May be called twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await self._write_batches()
            try:
                await self._store.release(self._owner)
            except NexusError as error:
                log.warning("claims cannot be given up; they end by themselves", error=str(error))

    async def begin(self, call: Call) -> Begun:
        """What becomes of a request. A `Recording` was entered, and is the caller's to leave.

        Raises `Conflict` when the `Idempotency-Key` was used for something else, and `Unavailable` when another
        gateway works on it, or the store does not answer.
        """
        claim = call.claim()
        if claim is not None:
            return await self._begin_claimed(call, claim)
        if call.retry is None or self._settings.retry_window_s <= 0:
            return None
        row = self._new_row(call, None)
        if call.retry:
            found = await self._at_work(row.fingerprint, call.retry)
            if isinstance(found, Recording):
                return found
            found = found or await self._stored(row.fingerprint, call.retry)
            if found is not None and found.state == "done":
                return found
            if found is not None:
                row = replace(taken_over(found, row), id=row.id)
            row = replace(row, retries=call.retry)
        attempt = self._attempt(row)
        self._attempts.setdefault(row.fingerprint, []).append(attempt)
        return attempt

    async def finish(self, attempt: Attempt) -> None:
        """The answer is whole and about to be handed over. That of an `Idempotency-Key` is stored when this returns,
        so that nobody who got it can fail to get it again.
        """
        content = attempt.recording.whole()
        if content is None:
            return
        now = self._clock()
        done = replace(
            attempt.row,
            state="done",
            ended_at=int(now),
            expires_at=int(now + self._keep_s(attempt.row)),
            billed=NOTHING,
            headers=attempt.recording.headers(),
            content=content,
        )
        before, attempt.row = attempt.row, done
        if done.claim is None:
            self._fruitless.pop(done.fingerprint, None)
        else:
            try:
                await self._store.keep([done])
            except NexusError as error:
                attempt.row = before
                log.warning("an answer cannot be stored", error=str(error))

    async def end(self, attempt: Attempt, paid: Nano) -> None:
        """The attempt is over, and `paid` was charged for it. Where no answer is stored (the caller went, it was too
        large, it failed), whoever goes on with it need not pay that again.
        """
        if attempt.over.is_set():
            return
        row = attempt.row
        if row.state != "done":
            now = self._clock()
            billed = Nano(row.billed + paid)
            expires = int(now + self._keep_s(row))
            attempt.row = row = replace(row, state="left", ended_at=int(now), expires_at=expires, billed=billed)
            if row.claim is None and not billed:
                self._came_to_nothing(row.fingerprint, now)
        attempt.over.set()
        if row.claim is None:
            self._store_later(attempt)
            return
        try:
            if row.state == "left" and row.billed:
                await self._store.keep([row])
            elif row.state == "left":
                await self._store.drop(row.id)
        except NexusError as error:
            log.warning("an answer's claim cannot be settled; it ends by itself", error=str(error))
        finally:
            if self._claims.get(row.claim) is attempt:
                del self._claims[row.claim]
            attempt.settled.set()

    # --- with an Idempotency-Key ---

    async def _begin_claimed(self, call: Call, claim: bytes) -> Begun:
        new = self._new_row(call, claim)
        while (known := self._claims.get(claim)) is not None:
            if known.row.fingerprint != new.fingerprint:
                raise _conflict()
            if not known.claimed.is_set():
                await known.claimed.wait()
            elif known.recording.deserted.is_set() or known.over.is_set():
                await known.settled.wait()  # it is being stopped, and what it has cost comes with its end
            else:
                known.recording.enter()
                return known.recording
        attempt = self._claims[claim] = self._attempt(new)
        mine = False
        try:
            found, row = await self._store.claim(new, self._clock())
            mine = found in (Found.NEW, Found.TAKE_OVER)
        finally:
            if not mine:
                del self._claims[claim]
            attempt.claimed.set()
        if found is Found.CONFLICT:
            raise _conflict()
        if found is Found.BUSY:
            raise Unavailable(
                "Another request with this `Idempotency-Key` is at work. Try again later.",
                retry_after_s=max(row.lease_until - self._clock(), 1.0),
            )
        if found is Found.REPLAY:
            return row
        attempt.row = row
        return attempt

    # --- marked as a retry by the client ---

    async def _at_work(self, fingerprint: bytes, retry: int) -> Recording | Kept | None:
        """What this process has of it: best one that nobody reads any more, as a client that retries has given up."""
        while candidates := [each for each in self._attempts.get(fingerprint, ()) if self._fits(each, retry)]:
            best = max(candidates, key=lambda each: (each.recording.readers == 0, each.row.retries))
            if best.storing:
                await best.settled.wait()  # and look again: it is the store's to give by then
                continue
            if best.over.is_set() and best.row.state == "left":
                self._forget(best)
                return best.row
            if not best.over.is_set() and best.recording.deserted.is_set():
                await best.over.wait()  # it is being stopped, and what it has cost comes with its end
                continue
            best.recording.enter()
            best.row = replace(best.row, retries=retry)
            return best.recording
        return None

    def _fits(self, attempt: Attempt, retry: int) -> bool:
        since = self._fruitless.get(attempt.row.fingerprint)
        if since is None or attempt.storing:
            return attempt.row.retries < retry
        ended = attempt.row.ended_at
        return attempt.row.retries < retry and (not attempt.recording.readers if ended is None else ended >= since)

    def _came_to_nothing(self, fingerprint: bytes, now: float) -> None:
        self._fruitless.pop(fingerprint, None)
        self._fruitless[fingerprint] = now
        oldest = next(iter(self._fruitless))
        if len(self._fruitless) > MOST_FRUITLESS or self._fruitless[oldest] < now - self._settings.retry_window_s:
            del self._fruitless[oldest]

    async def _stored(self, fingerprint: bytes, retry: int) -> Kept | None:
        since = max(self._clock() - self._settings.retry_window_s, self._fruitless.get(fingerprint, 0.0))
        try:
            return await self._store.match(fingerprint, since, retry)
        except NexusError as error:
            log.warning("stored answers cannot be read", error=str(error))
            return None

    # --- both ---

    def _new_row(self, call: Call, claim: bytes | None) -> Kept:
        now = self._clock()
        return Kept(
            id=new_id(),
            fingerprint=call.fingerprint(),
            claim=claim,
            state="running",
            owner=self._owner,
            lease_until=int(now) + LEASE_S,
            expires_at=int(now + self._settings.keep_s),
            seed=secrets.randbits(SEED_BITS) if call.seed is None else call.seed,
        )

    def _attempt(self, row: Kept) -> Attempt:
        attempt = Attempt(row, Recording(self._settings.max_answer_bytes))
        attempt.recording.enter()
        return attempt

    def _keep_s(self, row: Kept) -> float:
        return self._settings.retry_window_s if row.claim is None else self._settings.keep_s

    # --- storing in the background ---

    def _store_later(self, attempt: Attempt) -> None:
        row = attempt.row
        worth = row.state == "done" or row.billed
        if not worth or self._unstored_bytes + row.size > BACKLOG_BYTES:
            self._forget(attempt)
            return
        self._unstored.append(attempt)
        self._unstored_bytes += row.size
        self._more.set()

    def _forget(self, attempt: Attempt) -> None:
        attempts = self._attempts.get(attempt.row.fingerprint, [])
        if attempt in attempts:
            attempts.remove(attempt)
            if not attempts:
                del self._attempts[attempt.row.fingerprint]

    async def _write(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            await self._write_batches()

    async def _write_batches(self) -> None:
        while self._unstored:
            batch = [self._unstored.popleft() for _ in range(min(BATCH, len(self._unstored)))]
            self._unstored_bytes -= sum(attempt.row.size for attempt in batch)
            wanted = [attempt for attempt in batch if attempt in self._attempts.get(attempt.row.fingerprint, ())]
            for attempt in wanted:
                attempt.storing = True
            try:
                await self._store.keep([attempt.row for attempt in wanted])
            except Exception as error:  # an answer that is not stored can only not be repeated
                log.warning("answers cannot be stored", answers=len(wanted), error=type(error).__name__)
            for attempt in wanted:
                self._forget(attempt)
                attempt.settled.set()

    async def _look_after(self) -> None:
        """Renew the leases of what is at work, and keep the store within its bounds."""
        purged = float("-inf")
        while True:
            try:
                if claims := [attempt.row.id for attempt in self._claims.values()]:
                    await self._store.renew(claims, int(self._clock()) + LEASE_S)
                if self._clock() - purged >= PURGE_S:
                    purged = self._clock()
                    await self._store.purge(purged, self._settings.max_total_bytes)
            except Exception as error:  # whatever it is, the next time may do
                unforeseen = None if isinstance(error, NexusError) else error
                log.warning("stored answers cannot be looked after", exc_info=unforeseen)
            await asyncio.sleep(RENEW_S)


def _conflict() -> Conflict:
    return Conflict("This `Idempotency-Key` was used for another request: another body, address or API key.")
