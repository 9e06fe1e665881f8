"""The WebSocket shell around the node's session: dial, prove the key, then carry messages until the end."""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Protocol, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from desktop.agent.link import error_code_of
from desktop.agent.outbox import Outbox
from desktop.agent.settings import is_loopback
from shared.errors import LocalMisuse, ProtocolError
from shared.keys import NodeKey, proof_payload
from shared.wire.events import Ignored
from shared.wire.limits import Limits
from shared.wire.messages import Challenge, CloudMessage, Draft, Hello, Proof, Refuse, Welcome
from shared.wire.session import NodeSession

PING_S = 20.0
"""Seconds between WebSocket pings, and how long a pong may take: finds a link that died silently."""
CLOSE_S = 2.0
"""Seconds that the closing handshake may take."""

M = TypeVar("M", bound=CloudMessage)


class Listener(Protocol):
    """Who is told what happens on a connection. All calls are made on the event loop and must not block."""

    def connected(self) -> None:
        """The socket is open; the proof comes next."""

    def welcomed(self, welcome: Welcome, outbox: Outbox) -> None:
        """The node is in; what is put into `outbox` goes to the cloud until the connection ends."""

    def received(self, message: CloudMessage) -> None:
        """A message to act on; those that crossed one of ours are not passed on."""

    def unsendable(self, draft: Draft, error: LocalMisuse) -> None:
        """The engine made a draft that breaks the protocol's rules; it was dropped."""


@dataclass(frozen=True)
class Ended:
    """How a connection ended."""

    message: str
    """For the owner: one sentence without its full stop."""
    code: str | None = None
    """Error code, when the cloud refused this node or either side broke the protocol."""


class _Refused(Exception):
    def __init__(self, refuse: Refuse) -> None:
        super().__init__(refuse.message)
        self.refuse = refuse


async def converse(url: str, hello: Hello, key: NodeKey, listener: Listener, limits: Limits | None = None) -> Ended:
    """Hold one connection to the gateway at `url` from dialling to its end, and say how it ended.

    Network trouble, a refusal and a peer that breaks the protocol are results, not exceptions. Dialling and
    proving together may take `limits.handshake_s`. Closing the outbox sends what is in it and ends the
    connection normally; cancelling ends it at once.
    """
    bounds = limits or Limits()
    try:
        async with asyncio.timeout(bounds.handshake_s) as handshake:
            async with connect(
                url,
                compression=None,
                max_size=bounds.cloud_frame,
                open_timeout=None,  # `handshake` covers it
                ping_interval=PING_S,
                ping_timeout=PING_S,
                close_timeout=CLOSE_S,
                proxy=None if is_loopback(url) else True,
                ssl=ssl.create_default_context() if url.startswith("wss:") else None,
            ) as socket:
                return await _session(socket, hello, key, listener, bounds, handshake)
    except TimeoutError:
        return Ended(f"The gateway did not answer within {bounds.handshake_s:g} s")
    except InvalidStatus as error:
        return Ended(
            f"The gateway answered HTTP {error.response.status_code} instead of opening a WebSocket; "
            "check the address, or whether it is starting"
        )
    except (InvalidHandshake, InvalidURI, EOFError):
        return Ended("What answers there is no Nexus gateway; check the address")
    except ssl.SSLCertVerificationError as error:
        return Ended(f"The gateway's certificate is not trusted: {error.verify_message}")
    except OSError as error:
        return Ended(f"The gateway cannot be reached: {_network_words(error)}")


async def _session(
    socket: ClientConnection,
    hello: Hello,
    key: NodeKey,
    listener: Listener,
    limits: Limits,
    handshake: asyncio.Timeout,
) -> Ended:
    session = NodeSession(limits)
    try:
        listener.connected()
        await socket.send(session.send(hello))
        challenge = await _expect(Challenge, socket, session)
        payload = proof_payload(challenge.nonce, challenge.cloud, session.hello_bytes)
        await socket.send(session.send(Proof(signature=key.sign(payload))))
        welcome = await _expect(Welcome, socket, session)
        handshake.reschedule(None)
        outbox = Outbox()
        listener.welcomed(welcome, outbox)
        return await _carry(socket, session, listener, outbox)
    except _Refused as refused:
        return _refusal(refused)
    except ConnectionClosed as closed:
        return await _last_words(socket, session, closed)
    except ProtocolError as error:
        farewell = session.farewell(error)
        await socket.close(farewell.close_code, farewell.reason)
        return Ended(f"The gateway broke the protocol: {error.message.rstrip('.')}", error.code)
    finally:
        session.close()


async def _expect(kind: type[M], socket: ClientConnection, session: NodeSession) -> M:
    message = await _receive(socket, session)
    if not isinstance(message, kind):
        raise ProtocolError(f"{type(message).__name__} came where {kind.__name__} was due.")
    return message


async def _receive(socket: ClientConnection, session: NodeSession) -> CloudMessage | Ignored[CloudMessage]:
    frame = await socket.recv()
    if isinstance(frame, str):
        raise ProtocolError("Text frames are not part of the protocol; it is binary.")
    message = session.receive(frame)
    if isinstance(message, Refuse):
        raise _Refused(message)
    return message


async def _carry(socket: ClientConnection, session: NodeSession, listener: Listener, outbox: Outbox) -> Ended:
    """Both directions at once. The first that ends, ends the other; the reader ends only by an exception.

    A closed connection may show at the writer first, while a `Refuse` still lies unread: how it ended is for the
    reader to say, which reads on to the close frame.
    """
    reader = asyncio.create_task(_read(socket, session, listener))
    writer = asyncio.create_task(_write(socket, session, listener, outbox))
    try:
        await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        if writer.done() and isinstance(writer.exception(), ConnectionClosed):
            await asyncio.wait((reader,))
        if reader.done():
            reader.result()
        writer.result()
        return Ended("This node left")
    finally:
        for task in (reader, writer):
            task.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)


async def _read(socket: ClientConnection, session: NodeSession, listener: Listener) -> None:
    while True:
        message = await _receive(socket, session)
        if not isinstance(message, Ignored):
            listener.received(message)


async def _write(socket: ClientConnection, session: NodeSession, listener: Listener, outbox: Outbox) -> None:
    while (message := await outbox.get()) is not None:
        if isinstance(message, Draft):
            if message.stream not in session.open_streams:
                continue  # it ended while the draft waited
            try:
                frame = session.send(message)
            except LocalMisuse as error:
                listener.unsendable(message, error)
                continue
        else:
            frame = session.send(message)
        await socket.send(frame)


async def _last_words(socket: ClientConnection, session: NodeSession, closed: ConnectionClosed) -> Ended:
    """How a closed connection ended. A `Refuse` may lie unread before the close frame."""
    try:
        while True:
            await _receive(socket, session)
    except _Refused as refused:
        return _refusal(refused)
    except (ConnectionClosed, ProtocolError, LocalMisuse):
        pass
    if closed.rcvd is None:
        return Ended("The connection broke off")
    reason = closed.rcvd.reason.rstrip(".")
    return Ended(
        reason or f"The gateway closed the connection (code {closed.rcvd.code})",
        error_code_of(closed.rcvd.code),
    )


def _refusal(refused: _Refused) -> Ended:
    return Ended(refused.refuse.message.rstrip("."), refused.refuse.code)


def _network_words(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).rstrip(".")
