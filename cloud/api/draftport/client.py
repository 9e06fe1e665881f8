"""One DEALER socket to one verifier's draft port."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import msgspec
import structlog
import zmq
import zmq.asyncio
import zmq.auth

from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.draftport.settings import DraftPortSettings
from shared.draftport.messages import (
    ATTACH_INTERVAL_S,
    FRAME_LIMIT,
    PROTOCOL,
    Attach,
    Attached,
    Closed,
    DropTape,
    GatewayMessage,
    Opened,
    Policy,
    PortDraft,
    Resync,
    Verified,
    VerifierMessage,
)
from shared.errors import ConfigError
from shared.ids import GatewayId, ModelName, StreamId, TapeId, VerifierId

LOST_AFTER_BEATS = 5
"""Unanswered `Attach`es in a row after which a verifier is taken for gone. Beats are counted, not seconds: a
gateway that was suspended itself must not blame the verifier."""
CONNECT_RETRY_S = 0.05
"""How soon `Attach` is tried again while there is no connection."""
QUEUE = 10_000
"""Messages that ZeroMQ holds in each direction; beyond it they are dropped, and the gap is noticed."""

_log = structlog.get_logger("nexus.draft_port")


@dataclass(slots=True)
class DraftPortCounts:
    """Messages since the gateway started."""

    received: int = 0
    sent: int = 0
    malformed: int = 0
    unexpected: int = 0
    """From a verifier that is not attached (any more)."""
    unsent: int = 0


class DraftPortClient:
    """Tells `on_event` what the verifier says and sends it commands.

    `beat` and `send` need a running event loop but never wait. `run` beats and reads until it is
    cancelled; `close` frees the socket.
    """

    def __init__(
        self,
        endpoint: str,
        gateway: GatewayId,
        on_event: Callable[[ev.VerifierEvent], None],
        settings: DraftPortSettings,
        context: zmq.asyncio.Context,
        *,
        beat_s: float = ATTACH_INTERVAL_S,
    ) -> None:
        self.endpoint = endpoint
        self.counts = DraftPortCounts()
        self.attached: Attached | None = None
        """The verifier's latest answer; none while none is there."""
        self._gateway = gateway
        self._on_event = on_event
        self._beat_s = beat_s
        self._unanswered = 0
        self._protocol_reported = False
        self._decode = msgspec.msgpack.Decoder(VerifierMessage).decode
        self._socket: zmq.asyncio.Socket = context.socket(zmq.DEALER)
        try:
            self._connect(settings)
        except BaseException:
            self._socket.close(linger=0)
            raise

    def _connect(self, settings: DraftPortSettings) -> None:
        self._socket.setsockopt(zmq.ROUTING_ID, self._gateway.encode())
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, QUEUE)
        self._socket.setsockopt(zmq.RCVHWM, QUEUE)
        self._socket.setsockopt(zmq.MAXMSGSIZE, FRAME_LIMIT)
        if settings.curve_server is not None and settings.curve_secret is not None:
            server, _ = _certificate(settings.curve_server)
            public, secret = _certificate(settings.curve_secret)
            if secret is None:
                raise ConfigError(f"Draft port key {settings.curve_secret}: the file holds no secret key.")
            # A local socket is private by its file mode, and its verifier has no keys.
            if self.endpoint.startswith("tcp://"):
                self._socket.curve_serverkey = server
                self._socket.curve_publickey = public
                self._socket.curve_secretkey = secret
        try:
            self._socket.connect(self.endpoint)
        except zmq.ZMQError as error:
            raise ConfigError(f"Draft port {self.endpoint!r} cannot be used: {error.strerror}.") from error

    async def run(self) -> None:
        """Beat and read until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat_forever())
            tasks.create_task(self._read_forever())

    def close(self) -> None:
        self._socket.close(linger=0)

    def beat(self) -> bool:
        """Send `Attach`, and notice that the ones before were not answered; false when nobody is connected."""
        if self._unanswered >= LOST_AFTER_BEATS and self.attached is not None:
            _log.warning("draft_port.verifier_lost", endpoint=self.endpoint)
            self._lose()
        self._unanswered += 1
        return self._put(Attach(gateway=self._gateway))

    def send(self, command: do.VerifierCommand) -> None:
        """Send a command without waiting; one that cannot be sent is counted and lost."""
        message: GatewayMessage
        match command:
            case do.ForwardDraft(_, stream, tape, epoch, pos, tokens):
                message = PortDraft(stream=stream, tape=tape, epoch=epoch, pos=pos, tokens=tokens)
            case do.DropTape(_, stream, tape):
                message = DropTape(stream=stream, tape=tape)
            case do.SetPolicy(_, stream, wait_ms, k):
                message = Policy(stream=stream, wait_ms=wait_ms, k=k)
            case do.RequestResync(_, stream):
                message = Resync(stream=stream)
            case _:
                assert_never(command)
        if self._put(message):
            self.counts.sent += 1
        else:
            self.counts.unsent += 1

    async def _beat_forever(self) -> None:
        while True:
            sent = self.beat()
            await asyncio.sleep(self._beat_s if sent or self.attached is not None else CONNECT_RETRY_S)

    async def _read_forever(self) -> None:
        while True:
            frames = await self._socket.recv_multipart()
            self.receive(frames[-1])

    def _put(self, message: GatewayMessage) -> bool:
        sent = self._socket.send(msgspec.msgpack.encode(message), flags=zmq.DONTWAIT)
        # With DONTWAIT the future is done at once; reading its error here keeps asyncio from logging it.
        return isinstance(sent, asyncio.Future) and sent.done() and sent.exception() is None

    def receive(self, frame: bytes) -> None:
        """Act on one frame from the verifier."""
        self.counts.received += 1
        try:
            message = self._decode(frame)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.counts.malformed += 1
            _log.warning("draft_port.malformed", endpoint=self.endpoint, error=str(error)[:200])
            return
        if isinstance(message, Attached):
            self._answered(message)
        elif self.attached is None:
            self.counts.unexpected += 1
        else:
            self._on_event(self._event(message))

    def _answered(self, message: Attached) -> None:
        if message.protocol != PROTOCOL:
            if not self._protocol_reported:
                self._protocol_reported = True
                _log.error(
                    "draft_port.protocol_mismatch",
                    endpoint=self.endpoint,
                    theirs=message.protocol,
                    ours=PROTOCOL,
                    remedy="Install the same Nexus version at the gateway and at the verifier.",
                )
            return
        self._unanswered = 0
        known = self.attached
        if known is not None and known.verifier != message.verifier:
            self._lose()
            known = None
        self.attached = message
        if known is None:
            _log.info("draft_port.verifier_attached", endpoint=self.endpoint, model=message.model)
            self._on_event(
                ev.VerifierAttached(
                    endpoint=self.endpoint,
                    verifier=VerifierId(message.verifier),
                    model=ModelName(message.model),
                    fingerprint=message.fingerprint,
                    vocabulary=message.vocabulary,
                    max_model_len=message.max_model_len,
                    k=message.k,
                )
            )

    def _lose(self) -> None:
        self.attached = None
        self._on_event(ev.VerifierLost(self.endpoint))

    def _event(self, message: Opened | Verified | Closed) -> ev.VerifierEvent:
        stream = StreamId(message.stream)
        match message:
            case Opened():
                return ev.StreamOpened(
                    endpoint=self.endpoint,
                    stream=stream,
                    tokens=message.tokens,
                    prompt=message.prompt,
                    sampling=message.sampling,
                    seed=message.seed,
                    draftable=message.draftable,
                )
            case Verified():
                return ev.StreamVerified(
                    endpoint=self.endpoint,
                    stream=stream,
                    pos=message.pos,
                    tokens=message.tokens,
                    drafted=message.drafted,
                    accepted=message.accepted,
                    source=None if message.source is None else TapeId(message.source),
                    baseline=message.baseline,
                    step_ms=message.step_ms,
                    step=message.step,
                )
            case Closed():
                return ev.StreamClosed(self.endpoint, stream, message.reason)
            case _:
                assert_never(message)


def _certificate(path: Path) -> tuple[bytes, bytes | None]:
    try:
        return zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"Draft port key {path} cannot be read: {error}.") from error
