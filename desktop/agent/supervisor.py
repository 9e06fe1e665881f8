"""Keeps one draft worker alive: starts it, passes on its drafts, restarts it after a crash, ends it for certain."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import NoReturn, Protocol, assert_never

from desktop.agent.ports import DraftWorker, Loaded
from desktop.agent.report import Log
from desktop.agent.supervision import STOP_GRACE_S, Action, Delays, Supervision, WorkerEvent, WorkerState
from shared.errors import ConfigError, EngineError, ModelError, NexusError
from shared.wire.messages import Draft


class WorkerListener(Protocol):
    """Who is told about the worker. All calls are made on the event loop and must not block."""

    def worker_loaded(self, loaded: Loaded) -> None:
        """A worker is ready for streams; it knows none yet."""

    def worker_failed(self) -> None:
        """The worker and its streams are gone; the next one is on its way."""

    def worker_recovered(self) -> None:
        """After `worker_failed` and the `worker_loaded` that ended it."""

    def drafted(self, draft: Draft) -> None:
        """A guess of the worker."""


class Supervisor:
    """Drives `Supervision` with real processes. `run` is called once and ends only by `stop` or by an error."""

    def __init__(
        self,
        make_worker: Callable[[], DraftWorker],
        listener: WorkerListener,
        delays: Delays,
        log: Log,
        *,
        describe: str,
        clock: Callable[[], float] = time.monotonic,
        grace_s: float = STOP_GRACE_S,
    ) -> None:
        self._make_worker = make_worker
        self._listener = listener
        self._log = log
        self._describe = describe
        self._clock = clock
        self._grace_s = grace_s
        self._supervision = Supervision(delays)
        self._current: DraftWorker | None = None
        self._ever_loaded = False

    @property
    def state(self) -> WorkerState:
        return self._supervision.state

    @property
    def worker(self) -> DraftWorker | None:
        """The worker when it can take streams, else None."""
        return self._current if self.state is WorkerState.READY else None

    async def run(self) -> None:
        """Keep a worker alive until cancelled; then, and after an error, it is ended before this returns.

        Raises ConfigError or ModelError from the first start: the settings cannot work, and trying again is no use.
        """
        event = WorkerEvent.START
        try:
            while True:
                self._act(event)
                try:
                    await self._live()
                except (ConfigError, ModelError) as error:
                    if not self._ever_loaded:
                        raise
                    failure: NexusError = error
                except EngineError as error:
                    failure = error
                await self._end_current()
                self._act(WorkerEvent.EXITED)
                wait = max(0.0, (self._supervision.retry_at or 0.0) - self._clock())
                self._log.warning(
                    "worker_failed",
                    message=f"The draft worker failed: {failure.message.rstrip('.')}. "
                    f"Starting it again in {wait:.1f} s.",
                    reason=failure.message,
                    retry_s=round(wait, 3),
                )
                await asyncio.sleep(wait)
                event = WorkerEvent.RETRY
        finally:
            if Action.TERMINATE in self._act(WorkerEvent.STOP):
                await _surely(self._end_current())
                self._act(WorkerEvent.EXITED)

    async def _live(self) -> NoReturn:
        """From SPAWN until the process has died; raises the reason."""
        worker = self._current
        assert worker is not None
        begun = self._clock()
        self._log.info("worker_loading", message=f"Loading {self._describe}…", model=self._describe)
        loaded = await worker.start()
        self._ever_loaded = True
        seconds = self._clock() - begun
        self._log.info(
            "worker_ready",
            message=f"Loaded {', '.join(offer.name for offer in loaded.offers)} with {loaded.engine} "
            f"in {seconds:.1f} s.",
            engine=loaded.engine,
            seconds=round(seconds, 3),
        )
        self._listener.worker_loaded(loaded)
        self._act(WorkerEvent.LOADED)
        async for draft in worker.drafts():
            self._listener.drafted(draft)
        raise EngineError("the draft worker ended")

    def _act(self, event: WorkerEvent) -> tuple[Action, ...]:
        actions = self._supervision.on(event, self._clock())
        for action in actions:
            match action:
                case Action.SPAWN:
                    self._current = self._make_worker()
                case Action.HOLD:
                    self._listener.worker_failed()
                case Action.RESUME:
                    self._listener.worker_recovered()
                case Action.TERMINATE:
                    self._log.debug("worker_ending", message="Ending the draft worker.")
                case _:
                    assert_never(action)
        return actions

    async def _end_current(self) -> None:
        """End whatever is left of the process; a dead leader can leave children behind."""
        if self._current is not None:
            await self._current.stop(self._grace_s)
            self._current = None


async def _surely(work: Coroutine[None, None, None]) -> None:
    """Finish `work` although this task is cancelled: leaving a process behind is worse than being late."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
