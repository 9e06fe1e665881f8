"""The agent as a whole: one worker, one connection, and the bridge between them."""

import asyncio
import time
from collections.abc import Callable

from desktop.agent.bridge import Bridge
from desktop.agent.connection import Ended, converse
from desktop.agent.identity import Identity
from desktop.agent.link import HOPELESS, Link, LinkEvent, LinkState, refusal_in_words
from desktop.agent.outbox import Outbox
from desktop.agent.ports import DraftWorker, Loaded
from desktop.agent.report import Log
from desktop.agent.supervision import STOP_GRACE_S, Delays
from desktop.agent.supervisor import Supervisor
from shared.errors import LocalMisuse
from shared.wire.limits import Limits
from shared.wire.messages import PROTOCOL_VERSIONS, CloudMessage, Draft, Hello, Welcome

LEAVE_S = 3.0
"""Seconds that saying good-bye to the cloud may take; the worker is ended after that in any case."""


class Agent:
    """Drafts until `stop` is called. `run` is called once.

    `make_worker` gives a fresh, unstarted worker each time one is needed; `describe` names its model and
    engine for the owner; the two `Delays` give the seconds between attempts.
    """

    def __init__(
        self,
        *,
        gateways: tuple[str, ...],
        identity: Identity,
        make_worker: Callable[[], DraftWorker],
        describe: str,
        log: Log,
        worker_delays: Delays,
        link_delays: Delays,
        software: str = "",
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        grace_s: float = STOP_GRACE_S,
    ) -> None:
        self._identity = identity
        self._log = log
        self._software = software
        self._limits = limits
        self._clock = clock
        self._link = Link(gateways, link_delays)
        self._supervisor = Supervisor(
            make_worker, self, worker_delays, log, describe=describe, clock=clock, grace_s=grace_s
        )
        self._bridge = Bridge(lambda: self._supervisor.worker, log, clock)
        self._loaded: asyncio.Future[Loaded] | None = None
        self._stopping = asyncio.Event()
        self._last_problem = ""

    def stop(self) -> None:
        """Leave: tell the cloud, end the worker, and let `run` return. May be called more than once."""
        self._stopping.set()

    async def run(self) -> None:
        """Draft until `stop`. On return, by whatever way, no process of the worker is left.

        Raises ConfigError or ModelError when the first start shows that the settings cannot work.
        """
        self._loaded = asyncio.get_running_loop().create_future()
        worker = asyncio.create_task(self._supervisor.run())
        connection = asyncio.create_task(self._keep_connected(self._loaded))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((worker, connection, stopping), return_when=asyncio.FIRST_COMPLETED)
            for ended in (worker, connection):
                if ended.done():
                    ended.result()
            self._log.info("stopping", message="Stopping…")
            self._bridge.leave()
            if self._link.state is LinkState.ONLINE:
                await asyncio.wait((connection,), timeout=LEAVE_S)
        finally:
            for task in (connection, stopping, worker):
                task.cancel()
            await asyncio.gather(connection, stopping, worker, return_exceptions=True)
        self._log.info("stopped", message="Stopped; nothing is left running.")

    async def _keep_connected(self, first_load: asyncio.Future[Loaded]) -> None:
        """Connect once the model is there, and again whenever the connection ends, until `stop`."""
        loaded = await first_load
        try:
            while True:
                self._link.on(LinkEvent.DIAL, self._clock())
                try:
                    ended = await converse(
                        self._link.gateway, self._hello(loaded), self._identity.key, self, self._limits
                    )
                finally:
                    self._bridge.session_ended()
                if self._stopping.is_set():
                    return
                event = LinkEvent.REFUSED if ended.code else LinkEvent.LOST
                self._link.on(event, self._clock(), code=ended.code)
                wait = max(0.0, (self._link.retry_at or 0.0) - self._clock())
                self._tell(ended, wait)
                await asyncio.sleep(wait)
        finally:
            self._link.on(LinkEvent.STOP, self._clock())

    def _hello(self, loaded: Loaded) -> Hello:
        return Hello(
            versions=PROTOCOL_VERSIONS,
            key=self._identity.key.public,
            engine=loaded.engine,
            models=loaded.offers,
            streams=loaded.streams,
            agent=self._software,
        )

    def _tell(self, ended: Ended, wait: float) -> None:
        """Say why there is no connection: once per reason, and each time when it needs the owner."""
        problem = refusal_in_words(ended.code or "", ended.message)
        refused = ended.code in HOPELESS
        if problem == self._last_problem and not refused:
            self._log.debug(
                "retrying", message=f"Still not connected; next attempt in {wait:.1f} s.", retry_s=round(wait, 3)
            )
            return
        self._last_problem = problem
        again = f"Asking again in {wait:.0f} s." if refused else "Reconnecting until it works."
        self._log.warning(
            "refused" if refused else "disconnected",
            message=f"{problem.rstrip('.')}. {again}",
            gateway=self._link.gateway,
            code=ended.code,
            reason=ended.message,
            retry_s=round(wait, 3),
        )

    # --- told by the connection -----------------------------------------------------------------

    def connected(self) -> None:
        self._link.on(LinkEvent.CONNECTED, self._clock())

    def welcomed(self, welcome: Welcome, outbox: Outbox) -> None:
        self._link.on(LinkEvent.WELCOMED, self._clock())
        self._last_problem = ""
        self._bridge.session_began(welcome, outbox)
        self._log.info(
            "connected",
            message=f"Connected to {self._link.gateway} as node {welcome.node[:8]}….",
            gateway=self._link.gateway,
            node=welcome.node,
        )

    def received(self, message: CloudMessage) -> None:
        self._bridge.received(message)

    def unsendable(self, draft: Draft, error: LocalMisuse) -> None:
        self._log.warning(
            "draft_dropped",
            message=f"The engine made a draft that cannot be sent: {error.message}",
            stream=draft.stream,
        )

    # --- told by the worker ------------------------------------------------------------------

    def worker_loaded(self, loaded: Loaded) -> None:
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_result(loaded)

    def worker_failed(self) -> None:
        self._bridge.worker_failed()

    def worker_recovered(self) -> None:
        self._bridge.worker_recovered()

    def drafted(self, draft: Draft) -> None:
        self._bridge.drafted(draft)
