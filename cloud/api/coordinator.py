"""Owns the broker, the draft ports and the nodes, and carries between them.

Everything runs on one event loop. An event is applied and its commands are carried out before the next event;
events that arise meanwhile (a node that cannot take a command) wait their turn.
"""

import asyncio
import contextlib
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import assert_never

import msgspec
import structlog
import zmq.asyncio

from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.broker.broker import Broker
from cloud.api.broker.policy import StreamPolicy
from cloud.api.broker.settings import BrokerSettings
from cloud.api.broker.stream import Registration, StreamFigures
from cloud.api.draftport.client import DraftPortClient
from cloud.api.draftport.settings import DraftPortSettings
from cloud.api.market.minutes import MINUTE_S, MinuteReport
from cloud.api.market.state import Market
from cloud.api.nodes.hub import NodeHub
from cloud.api.nodes.settings import NodeSettings
from shared.draftport.messages import Counts
from shared.errors import LocalMisuse, NexusError
from shared.ids import AccountId, GatewayId, ModelName, NodeId, StreamId
from shared.wire.messages import ModelOffer

TICK_S = 1.0

_log = structlog.get_logger("nexus.coordinator")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A target model that at least one attached verifier serves."""

    name: ModelName
    max_model_len: int
    vocabulary: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Served:
    """What all attached verifiers of one model have in common; see `cloud.api.ports.Served`."""

    vocabulary: int
    tools: bool
    effort: bool
    sampler: str


class StreamHandle:
    """One registered request. Its figures stay readable after `release`."""

    def __init__(self, registration: Registration, release: Callable[[StreamId], None]) -> None:
        self._registration = registration
        self._release = release
        self._closed = asyncio.Event()
        self._released = False

    def figures(self) -> StreamFigures:
        """Totals so far, over all choices."""
        return self._registration.figures()

    async def closed(self, timeout_s: float) -> bool:
        """Wait until the verifier reported the end of every choice that it opened; false when time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._closed.wait()
        return self._closed.is_set()

    def release(self) -> None:
        """Say that the request is over. May be called twice."""
        if not self._released:
            self._released = True
            self._release(self._registration.stream)

    def notice(self) -> None:
        """Called after each event: lets `closed` return, or wait again when another choice was opened."""
        if self._registration.closed:
            self._closed.set()
        else:
            self._closed.clear()


class Coordinator:
    """Made outside a loop or in one; `start` and `stop` belong to the loop on which everything runs."""

    def __init__(
        self,
        draft_ports: DraftPortSettings,
        *,
        broker: BrokerSettings | None = None,
        nodes: NodeSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        gateway_id: GatewayId | None = None,
        market: Market | None = None,
        owner: Callable[[NodeId], AccountId | None] = lambda _: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.gateway_id = gateway_id or GatewayId(f"gw-{uuid.uuid4().hex[:16]}")
        self.on_minute: Callable[[MinuteReport], None] = lambda _: None
        """Told of each minute of the market, on the event loop; must not wait."""
        self.broker = Broker(
            broker or BrokerSettings(),
            rng or random.Random(),
            expected_verifiers=len(draft_ports.endpoints),
            market=market,
        )
        self.nodes = NodeHub(self.gateway_id, nodes or NodeSettings(), self._feed, self._mismatch, owner)
        self._wall = wall
        if market is not None:
            market.at, market.name = self._minute(), self.gateway_id
        self._draft_ports = draft_ports
        self._clock = clock
        self._ports: dict[str, DraftPortClient] = {}
        self._handles: dict[StreamId, StreamHandle] = {}
        self._events: deque[ev.Event] = deque()
        self._applying = False
        self.failures = 0
        """Events and commands that could not be carried out: each is a fault in this program, and is logged."""
        self._context: zmq.asyncio.Context | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect to the draft ports. Returns at once: verifiers attach when they are there.

        Raises `ConfigError` when a key file or an address cannot be used; nothing is left open then.
        """
        self._context = zmq.asyncio.Context()
        try:
            for endpoint in self._draft_ports.endpoints:
                self._ports[endpoint] = DraftPortClient(
                    endpoint, self.gateway_id, self._feed, self._draft_ports, self._context
                )
        except BaseException:
            await self.stop()
            raise
        self._tasks = [asyncio.create_task(port.run()) for port in self._ports.values()]
        self._tasks.append(asyncio.create_task(self._tick()))
        for task in self._tasks:
            task.add_done_callback(_report)

    async def stop(self) -> None:
        """Turn nodes away, stop the tasks and free the sockets. May be called twice."""
        self.nodes.stop()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for port in self._ports.values():
            port.close()
        self._ports.clear()
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    # --- for the HTTP side ---------------------------------------------------------------------

    def register(
        self, stream: StreamId, *, policy: StreamPolicy | None = None, trace: bool = False, shaped: bool = False
    ) -> StreamHandle:
        """Announce a request before it goes to the verifier; its id must not be in use and holds no slash."""
        if stream in self.broker.registrations or "/" in stream:
            raise LocalMisuse(f"Stream id {stream!r} is in use or not usable.")
        self._feed(ev.StreamRegistered(stream, policy or StreamPolicy(), trace, shaped))
        handle = StreamHandle(self.broker.registrations[stream], self._release)
        self._handles[stream] = handle
        return handle

    def models(self) -> list[ServedModel]:
        """What the attached verifiers serve, each name once: ranks of one verifier serve the same."""
        served = {
            verifier.model: ServedModel(
                verifier.model, verifier.max_model_len, verifier.vocabulary, verifier.fingerprint
            )
            for verifier in self.broker.verifiers.values()
        }
        return sorted(served.values(), key=lambda model: model.name)

    def served(self, model: str) -> Served | None:
        """What is known of a model; none while no verifier that serves it is attached."""
        found = [port.attached for port in self._ports.values() if port.attached and port.attached.model == model]
        if not found:
            return None
        return Served(
            vocabulary=min(each.vocabulary for each in found),
            tools=all(each.tools for each in found),
            effort=all(each.effort for each in found),
            sampler=found[0].sampler,
        )

    def verifier_counts(self) -> Counts:
        """What the attached verifiers say became of the drafts, summed."""
        total = dict.fromkeys(Counts.__struct_fields__, 0)
        for port in self._ports.values():
            if port.attached is not None:
                for name, value in msgspec.structs.asdict(port.attached.counts).items():
                    total[name] += value
        return Counts(**total)

    def snapshot(self) -> dict[str, float]:
        """Gauges (`nodes`, `streams`, …) and the counters of the broker and of node connections; those of draft
        ports and verifiers begin with `port_` and `verifier_`."""
        broker = self.broker
        figures: dict[str, float] = {
            "nodes": len(broker.nodes),
            "nodes_poor": sum(node.poor is not None for node in broker.nodes.values()),
            "nodes_holding": sum(node.holding for node in broker.nodes.values()),
            "node_slots": sum(node.slots for node in broker.nodes.values() if not node.holding),
            "node_slots_used": sum(len(node.open) for node in broker.nodes.values()),
            "streams": len(broker.streams),
            "streams_drafted_for": sum(bool(stream.tapes) for stream in broker.streams.values()),
            "verifiers": len(broker.verifiers),
            "broker_failures": self.failures,
            "verifiers_configured": len(self._draft_ports.endpoints),
        }
        figures |= broker.counts.as_dict()
        figures |= asdict(self.nodes.counts)
        for port in self._ports.values():
            for name, value in asdict(port.counts).items():
                figures[f"port_{name}"] = figures.get(f"port_{name}", 0) + value
        counts = msgspec.structs.asdict(self.verifier_counts())
        return figures | {f"verifier_{name}": value for name, value in counts.items()}

    # --- carrying ------------------------------------------------------------------------------

    def _release(self, stream: StreamId) -> None:
        self._handles.pop(stream, None)
        self._feed(ev.StreamReleased(stream))

    def _mismatch(self, models: Iterable[ModelOffer]) -> NexusError | None:
        return self.broker.tokenizer_mismatch(models)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """Time has passed; a new minute of the market begins where the clock says so."""
        self._feed(ev.Tick())
        market, minute = self.broker.market, self._minute()
        if market is not None and minute > market.at:
            self._feed(ev.MinuteBegan(minute))

    def _minute(self) -> int:
        return int(self._wall()) // MINUTE_S * MINUTE_S

    def tell(self, event: ev.MarketEvent) -> None:
        """What the market's records and settlements have for the broker."""
        self._feed(event)

    def _feed(self, event: ev.Event) -> None:
        self._events.append(event)
        if self._applying:
            return
        self._applying = True
        try:
            while self._events:
                self._apply(self._events.popleft())
        finally:
            self._applying = False

    def _apply(self, event: ev.Event) -> None:
        commands: list[do.Command] = []
        with self._guard(event):
            commands = self.broker.handle(event, self._clock())
        for command in commands:
            with self._guard(command):
                self._carry_out(command)
        match event:
            case ev.StreamOpened(stream=stream) | ev.StreamClosed(stream=stream):
                registration = self.broker.registration(stream)
                if registration is not None and (handle := self._handles.get(registration.stream)):
                    handle.notice()
            case ev.VerifierLost() | ev.VerifierAttached():
                for handle in self._handles.values():
                    handle.notice()
            case _:
                pass

    @contextlib.contextmanager
    def _guard(self, what: ev.Event | do.Command) -> Iterator[None]:
        """Drafting is only ever an optimisation: a fault here must not end a link, or the gateway."""
        try:
            yield
        except Exception:
            self.failures += 1
            _log.exception("coordinator.failed", kind=type(what).__name__)

    def _carry_out(self, command: do.Command) -> None:
        match command:
            case do.OpenStream() | do.AdvanceStream() | do.CloseStream() | do.SendDemand() | do.RejectNode():
                self.nodes.send(command)
            case do.ForwardDraft() | do.DropTape() | do.SetPolicy() | do.RequestResync():
                if port := self._ports.get(command.endpoint):
                    port.send(command)
            case do.RecordMinute(report):
                self.on_minute(report)
            case _:
                assert_never(command)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error("coordinator.task_failed", error=repr(error))
