"""One node's WebSocket: a thin shell around the protocol's session, with a bounded send queue."""

import asyncio
import contextlib
import secrets
from collections import deque
from typing import Protocol, TypeVar

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from cloud.api.broker.budget import Budget
from cloud.api.nodes.settings import NodeSettings
from shared.errors import LimitExceeded, LocalMisuse, NexusError, ProofFailed, ProtocolError
from shared.ids import GatewayId, NodeId
from shared.keys import node_id, verify_proof
from shared.wire.events import Ignored, Refusal
from shared.wire.messages import Beat, CloudMessage, Hello, NodeMessage, Proof, Welcome
from shared.wire.session import CloudSession

M = TypeVar("M", Hello, Proof)

THROTTLE_S = 0.05
"""How long the gateway reads nothing at a time from a node that sends too fast."""
TURN = 16
"""Frames of one node that are read before everybody else has a turn: a thousand small ones may lie ready at once."""

_log = structlog.get_logger("nexus.nodes")


class Listener(Protocol):
    """Who is told what a node does. Calls are made on the event loop and must not block."""

    def greeted(self, hello: Hello) -> None:
        """Raises a `NexusError` when a node that says this cannot be used."""

    async def proved(self, node: NodeId) -> None:
        """The node proved its key. Raises a `NexusError` when it may not connect all the same."""

    def joined(self, connection: "NodeConnection") -> None:
        """The node may connect, and its `Welcome` is on the way. Raises as `proved` does."""

    def received(self, connection: "NodeConnection", message: NodeMessage) -> None: ...

    def broke(self, connection: "NodeConnection") -> None:
        """A node that has joined broke the protocol; `left` follows."""

    def beat(self, connection: "NodeConnection", beat: Beat) -> None: ...

    def ignored(self, connection: "NodeConnection") -> None:
        """A draft arrived for a stream that is over."""

    def left(self, connection: "NodeConnection") -> None:
        """Called once for each `joined`, also for one that raised."""


class NodeConnection:
    """From the opened socket to its end; `serve` returns when the connection is over.

    `send` and `refuse` never wait: frames go through a queue, and a node that does not read it is closed.
    """

    def __init__(self, websocket: WebSocket, gateway: GatewayId, settings: NodeSettings, listener: Listener) -> None:
        self._websocket = websocket
        self._settings = settings
        self._listener = listener
        self._session = CloudSession(settings.limits, cloud_id=gateway, nonce=secrets.token_bytes(32))
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._refused = asyncio.Event()
        self._refusal: Refusal | None = None
        self._node: NodeId | None = None
        self._read_frames = 0
        self._rate: Budget | None = None
        """Set when the node has said how many streams it drafts for."""
        self._throttled_s = 0.0

    @property
    def node(self) -> NodeId:
        """Raises `LocalMisuse` before the node said who it is."""
        if self._node is None:
            raise LocalMisuse("The node has not said who it is.")
        return self._node

    @property
    def hello(self) -> Hello:
        return self._session.hello

    def send(self, message: CloudMessage) -> None:
        """Queue a message; nothing after a refusal. Raises `LocalMisuse` when the state forbids it."""
        if self._refusal is not None:
            return
        frame = self._session.send(message)
        limits = self._settings.limits
        if len(self._frames) >= limits.queue_frames or self._queued_bytes + len(frame) > limits.queue_bytes:
            self.refuse(
                LimitExceeded(
                    f"The node does not read: {len(self._frames)} frames ({self._queued_bytes} bytes) wait "
                    "for it. Check its network and its load, then connect again."
                )
            )
            return
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        self._wake.set()

    def refuse(self, error: NexusError) -> None:
        """Tell the node why and close; what is queued for it is dropped. The first refusal counts."""
        if self._refusal is not None:
            return
        self._refusal = self._session.refusal(error)
        self._frames.clear()
        self._queued_bytes = 0
        self._refused.set()
        self._wake.set()
        _log.info("nodes.refused", node=self._node, code=error.code, message=error.message)

    async def serve(self) -> None:
        """Carry the connection. Cancelling it closes the socket without a word."""
        writer = asyncio.create_task(self._write())
        reader = asyncio.create_task(self._read())
        refused = asyncio.create_task(self._refused.wait())
        try:
            await asyncio.wait((reader, writer, refused), return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and isinstance(error := reader.exception(), NexusError):
                self.refuse(error)
            if self._refusal is not None:
                reader.cancel()
                await asyncio.wait((reader,))
                await asyncio.wait((writer,), timeout=self._settings.close_s)
        finally:
            tasks = (reader, writer, refused)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._session.close()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, NexusError | WebSocketDisconnect | OSError):
                raise result

    async def _read(self) -> None:
        joined = False
        try:
            await self._handshake()
            joined = True
            self._listener.joined(self)
            await self._carry()
        except WebSocketDisconnect:
            return
        finally:
            if joined:
                self._listener.left(self)

    async def _handshake(self) -> None:
        limit_s = self._settings.limits.handshake_s
        try:
            async with asyncio.timeout(limit_s):
                hello = await self._expect(Hello)
                self._node = node_id(hello.key)
                self._listener.greeted(hello)
                self.send(self._session.challenge())
                proof = await self._expect(Proof)
        except TimeoutError:
            raise ProtocolError(
                f"The handshake took longer than {limit_s:g} s. Check the network, then connect again."
            ) from None
        session = self._session
        verify_proof(hello.key, proof.signature, session.nonce, session.cloud_id, session.hello_bytes)
        if self._settings.allowed_keys is not None and hello.key not in self._settings.allowed_keys:
            raise ProofFailed(
                f"This gateway admits only nodes on its list, and key {hello.key.hex()} is not on it. "
                "Ask the operator to add it."
            )
        await self._listener.proved(self.node)
        per_s = self._settings.frames_per_s + self._settings.frames_per_stream_s * hello.streams
        self._rate = Budget(per_s * self._settings.frames_burst_s, per_s)
        self.send(Welcome(node=self.node, beat_s=self._settings.beat_s, frame_limit=self._settings.limits.node_frame))

    async def _carry(self) -> None:
        loop = asyncio.get_running_loop()
        patience_s = self._settings.beat_s * self._settings.limits.beats_missed
        try:
            async with asyncio.timeout(patience_s) as deadline:
                while self._refusal is None:
                    await self._throttle()
                    message = await self._received()
                    if isinstance(message, Beat):
                        deadline.reschedule(loop.time() + patience_s)
                        self._listener.beat(self, message)
                    elif isinstance(message, Ignored):
                        self._listener.ignored(self)
                    else:
                        self._listener.received(self, message)
        except TimeoutError:
            raise ProtocolError(f"No Beat came for {patience_s:g} s. Check the network, then connect again.") from None

    async def _throttle(self) -> None:
        """Wait while the node sends faster than it may; what it has sent meanwhile fills its own socket."""
        loop = asyncio.get_running_loop()
        while self._rate is not None and self._refusal is None and not self._rate.spend(loop.time()):
            if self._throttled_s >= self._settings.throttled_s:
                self._listener.broke(self)
                raise LimitExceeded(
                    f"The node sends frames faster than {self._rate.per_s:g} a second. Update its software."
                )
            self._throttled_s += THROTTLE_S
            await asyncio.sleep(THROTTLE_S)

    async def _received(self) -> NodeMessage | Ignored[NodeMessage]:
        try:
            return await self._receive()
        except ProtocolError:
            self._listener.broke(self)
            raise

    async def _expect(self, kind: type[M]) -> M:
        message = await self._receive()
        if not isinstance(message, kind):
            raise ProtocolError(f"{type(message).__name__} came where {kind.__name__} was due.")
        return message

    async def _receive(self) -> NodeMessage | Ignored[NodeMessage]:
        self._read_frames += 1
        if self._read_frames % TURN == 0:
            await asyncio.sleep(0)
        if self._refusal is not None:
            raise WebSocketDisconnect
        event = await self._websocket.receive()
        if event["type"] == "websocket.disconnect" or self._refusal is not None:
            raise WebSocketDisconnect
        frame = event.get("bytes")
        if frame is None:
            raise ProtocolError("Text frames are not part of the protocol; it is binary.")
        return self._session.receive(frame)

    async def _write(self) -> None:
        with contextlib.suppress(WebSocketDisconnect, OSError):
            while True:
                while self._frames:
                    frame = self._frames.popleft()
                    self._queued_bytes -= len(frame)
                    await self._websocket.send_bytes(frame)
                if self._refusal is not None:
                    await self._websocket.send_bytes(self._refusal.frame)
                    if self._websocket.application_state is WebSocketState.CONNECTED:
                        await self._websocket.close(self._refusal.close_code, self._refusal.reason)
                    return
                self._wake.clear()
                await self._wake.wait()
