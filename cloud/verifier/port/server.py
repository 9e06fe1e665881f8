"""One data-parallel rank's draft port: a ROUTER socket served by a thread of its own.

The thread answers `Attach` even while the engine is idle or busy in a forward pass, checks what comes in, and
carries out what the scheduler publishes. It never touches the engine.
"""

import contextlib
import fcntl
import logging
import os
import queue
import threading
import time
import uuid
from pathlib import Path
from typing import IO

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator

from cloud.verifier.port.curve import Curve
from cloud.verifier.port.mailbox import Mailbox
from shared.draftport.messages import (
    GATEWAY_FRAME_LIMIT,
    GATEWAY_TIMEOUT_S,
    PROTOCOL,
    Attach,
    Attached,
    Closed,
    Counts,
    GatewayMessage,
    Resync,
    VerifierMessage,
)
from shared.errors import EngineError

SEND_QUEUE = 10_000
"""Messages held for one slow gateway; beyond it they are dropped, and the gateway asks for a resync."""
LINGER_MS = 200
"""How long closing waits for messages that are on their way."""

_log = logging.getLogger("nexus.draft_port")


class PortServer:
    """Owns the socket and the thread from construction until `close`."""

    def __init__(self, address: str, about: Attached, curve: Curve | None = None) -> None:
        """Binds at once.

        Args:
            address: ipc:// or tcp:// of this rank.
            about: what `Attach` is answered with; its counts are replaced as the engine goes on.
            curve: keys, required for tcp and of no effect elsewhere: a local socket is private by its file mode, and
                gateways use no keys on it.

        Raises:
            EngineError: the address is taken, or cannot be bound.
        """
        if address.startswith("tcp://") and curve is None:
            raise EngineError(
                f"The draft port {address} is a tcp address without keys: anyone who reaches it could send drafts. "
                "Set --draft-port-secret and --draft-port-clients, or use an ipc:// address."
            )
        self.mailbox = Mailbox()
        self.counts = Counts()
        self._about = about
        self._lock = _claim(address)
        self._context = zmq.Context()
        self._outbox: queue.SimpleQueue[tuple[str, VerifierMessage]] = queue.SimpleQueue()
        wake = f"inproc://{uuid.uuid4().hex}"
        self._bell = self._context.socket(zmq.PAIR)
        self._bell.bind(wake)
        self._listener = self._context.socket(zmq.PAIR)
        self._listener.connect(wake)
        self._socket = self._context.socket(zmq.ROUTER)
        self._auth: ThreadAuthenticator | None = None
        try:
            self._listen(address, curve)
        except BaseException:
            self._release()
            raise
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._open: dict[str, str] = {}
        """Stream -> gateway that asked for it. Written by the scheduler's thread, read by the port's own."""
        self._seen: dict[str, float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="nexus-draft-port", daemon=True)
        self._thread.start()

    def publish(self, gateway: str, message: VerifierMessage) -> None:
        """Sends a message to a gateway, soon; called by the scheduler's thread only."""
        self._outbox.put((gateway, message))
        self._ring()

    def opened(self, stream: str, gateway: str) -> None:
        """Notes whose stream this is: from now on messages for it reach the mailbox, from this gateway only."""
        self._open[stream] = gateway

    def closed(self, stream: str) -> None:
        self._open.pop(stream, None)

    def close(self) -> None:
        """Sends what is waiting, stops the thread and frees the address. May be called twice."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._ring()
        self._thread.join(timeout=2)
        self._release()

    def _ring(self) -> None:
        """Wakes the thread. Never waits: when the bell is full, the thread has wake-ups enough before it."""
        with contextlib.suppress(zmq.Again):
            self._bell.send(b"", zmq.DONTWAIT)

    def _listen(self, address: str, curve: Curve | None) -> None:
        socket = self._socket
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.SNDHWM, SEND_QUEUE)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.MAXMSGSIZE, GATEWAY_FRAME_LIMIT)
        self._auth = curve.install(self._context, socket) if curve and address.startswith("tcp://") else None
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise EngineError(f"The draft port cannot listen on {address}: {error.strerror}.") from error

    def _release(self) -> None:
        if self._auth is not None:
            self._auth.stop()
        self._context.destroy(linger=LINGER_MS)
        if self._lock is not None:
            self._lock.close()

    # --- the thread ------------------------------------------------------------------------

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._listener, zmq.POLLIN)
        decode = msgspec.msgpack.Decoder(GatewayMessage).decode
        while not self._closing.is_set():
            ready = dict(poller.poll(1000))
            if self._listener in ready:
                self._listener.recv()
                self._send_waiting()
            if self._socket in ready:
                identity, *frames = self._socket.recv_multipart()
                try:
                    message = decode(frames[-1])
                except (msgspec.DecodeError, RecursionError, IndexError) as error:
                    _log.warning("malformed message from gateway %s: %s", identity.hex()[:16], error)
                    continue
                self._receive(identity, message)
            self._forget_silent()
        self._send_waiting()

    def _receive(self, identity: bytes, message: GatewayMessage) -> None:
        match message:
            case Attach():
                if identity != message.gateway.encode():
                    _log.warning("gateway %r attached under another identity: ignored", message.gateway)
                    return
                if message.gateway not in self._seen:
                    _log.info("gateway %s attached", message.gateway)
                self._seen[message.gateway] = time.monotonic()
                self._send(message.gateway, msgspec.structs.replace(self._about, counts=self.counts))
                if message.protocol != PROTOCOL:
                    _log.error("gateway speaks draft-port protocol %s, this verifier %s", message.protocol, PROTOCOL)
            case Resync(stream=stream) if stream not in self._open:
                self._send(identity.decode(errors="replace"), Closed(stream=stream, reason="unknown"))
            case _:
                # A stream that is over by now has no owner: its late drafts are counted by the scheduler.
                owner = self._open.get(message.stream)
                if owner is not None and identity != owner.encode():
                    _log.warning("gateway %s sent for a stream of another: ignored", identity.hex()[:16])
                else:
                    self.mailbox.put(message)

    def _send_waiting(self) -> None:
        while True:
            try:
                gateway, message = self._outbox.get_nowait()
            except queue.Empty:
                return
            self._send(gateway, message)

    def _send(self, gateway: str, message: VerifierMessage) -> None:
        try:
            frames = [gateway.encode(), msgspec.msgpack.encode(message)]
        except (ValueError, OverflowError) as error:
            _log.warning("%s for gateway %r cannot be encoded: %s", type(message).__name__, gateway, error)
            return
        try:
            self._socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.ZMQError as error:
            # Not connected (yet, or any more) or far behind. Drafting is only ever an optimisation, so the engine
            # goes on; a gateway that comes back sees the gap and asks for a resync.
            _log.debug("not sent to gateway %s: %s", gateway, error.strerror)

    def _forget_silent(self) -> None:
        limit = time.monotonic() - GATEWAY_TIMEOUT_S
        for gateway in [name for name, seen in self._seen.items() if seen < limit]:
            del self._seen[gateway]
            _log.info("gateway %s has been silent for %s s: forgotten", gateway, GATEWAY_TIMEOUT_S)


def _claim(address: str) -> IO[str] | None:
    """Takes a local socket's lock: binding would silently steal it from a verifier that still runs."""
    if not address.startswith("ipc://"):
        return None
    path = Path(address.removeprefix("ipc://"))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = open(f"{path}.lock", "w")  # noqa: SIM115 - held for the life of the server
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise EngineError(
            f"Another verifier already uses the draft port {address}. Stop it, or give this one another --draft-port."
        ) from error
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
