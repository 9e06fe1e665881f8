"""The session of each end without I/O: frames in, events out; messages in, frames out.

No socket, clock or task: the owner feeds whole WebSocket frames to `receive` and writes what `send` returns,
in order. A local mistake raises `LocalMisuse` and changes nothing. A mistake of the other side raises a
`ProtocolError` and closes the session; `CloudSession.refusal` and `NodeSession.farewell` say how to tell it.
Patterned on h11 and websockets.
"""

from typing import ClassVar

from shared.errors import LimitExceeded, LocalMisuse, NexusError, ProtocolError, VersionUnsupported
from shared.ids import StreamId
from shared.wire import codec
from shared.wire.checks import check
from shared.wire.events import Farewell, Ignored, IgnoredBecause, Refusal, close_reason, public_message
from shared.wire.limits import Limits
from shared.wire.messages import (
    PROTOCOL_VERSIONS,
    Advance,
    Challenge,
    Close,
    CloudMessage,
    Draft,
    Hello,
    Hold,
    NodeMessage,
    Open,
    Refuse,
    Welcome,
)
from shared.wire.states import SENDS, TABLE, Role, State
from shared.wire.streams import Phase, Stream, Streams

__all__ = ["CloudSession", "Farewell", "Ignored", "IgnoredBecause", "NodeSession", "Refusal"]


class _Session:
    """What both ends share: the table, the limits and the streams."""

    role: ClassVar[Role]

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._state = State.CONNECTING
        self._streams = Streams(limits.closed_streams)
        self._hello: Hello | None = None
        self._hello_bytes = b""

    @property
    def state(self) -> State:
        return self._state

    @property
    def hello(self) -> Hello:
        """The node's `Hello`. Raises `LocalMisuse` before there is one."""
        if self._hello is None:
            raise LocalMisuse("There was no Hello yet.")
        return self._hello

    @property
    def hello_bytes(self) -> bytes:
        """The exact frame of the `Hello`, which the node's proof signs; empty before it."""
        return self._hello_bytes

    @property
    def open_streams(self) -> frozenset[StreamId]:
        """Streams that are drafted for, as this end knows it."""
        return self._streams.ids(Phase.OPEN)

    def close(self) -> None:
        """The socket is gone or about to be closed by this end."""
        self._state = State.CLOSED

    def _after(self, message: NodeMessage | CloudMessage) -> State | None:
        return TABLE.get((self.role, self._state, type(message)))

    def _encode(self, message: NodeMessage | CloudMessage, frame_limit: int) -> tuple[bytes, State]:
        """Frame and next state of a message that this end may send now; `LocalMisuse` otherwise."""
        kind = type(message).__name__
        if type(message) not in SENDS[self.role]:
            raise LocalMisuse(f"A {self.role} does not send {kind}.")
        after = self._after(message)
        if after is None:
            raise LocalMisuse(f"{kind} may not be sent while the session is {self._state}.")
        try:
            check(message, self.limits)
            frame = codec.encode(message)
        except (ProtocolError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise LocalMisuse(f"{kind} cannot be sent: {exc}") from exc
        if len(frame) > frame_limit:
            raise LocalMisuse(f"{kind} has {len(frame)} bytes; the other side takes {frame_limit}.")
        return frame, after

    def _enter(self, message: NodeMessage | CloudMessage) -> None:
        after = self._after(message)
        if after is None:
            raise ProtocolError(f"{type(message).__name__} is not allowed while the session is {self._state}.")
        self._state = after

    def _require_readable(self) -> None:
        if self._state is State.CLOSED:
            raise LocalMisuse("The session is closed; what still arrives is not read.")


class NodeSession(_Session):
    """The node's end: sends `NodeMessage`s, reads `CloudMessage`s."""

    role = Role.NODE

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits or Limits())
        self._frame_limit = self.limits.node_frame
        self._challenge: Challenge | None = None

    @property
    def challenge(self) -> Challenge:
        """What the proof must answer. Raises `LocalMisuse` before it came."""
        if self._challenge is None:
            raise LocalMisuse("There was no Challenge yet.")
        return self._challenge

    def send(self, message: NodeMessage) -> bytes:
        """The frame to write. A `Draft` needs an open stream: see `open_streams`.

        Raises `LocalMisuse`, and then nothing has changed, when state, stream, epoch or a limit forbids it.
        """
        frame, after = self._encode(message, self._frame_limit)
        match message:
            case Hello():
                self._hello, self._hello_bytes = message, frame
            case Draft():
                stream = self._streams.get(message.stream)
                if stream is None or stream.phase is not Phase.OPEN:
                    raise LocalMisuse(f"Draft for stream {message.stream!r}, which is not open.")
                if wrong := stream.draft(message.candidate, message.epoch):
                    raise LocalMisuse(wrong)
            case Hold():
                self._streams.end_all()
        self._state = after
        return frame

    def receive(self, frame: bytes) -> CloudMessage | Ignored[CloudMessage]:
        """Read one frame: the message to act on, or `Ignored` when it crossed a message of this node.

        Raises `ProtocolError` (or a subclass) and closes the session when the cloud broke the protocol;
        `LocalMisuse` when the session is closed already.
        """
        self._require_readable()
        try:
            message = codec.decode_cloud_message(frame, self.limits.cloud_frame)
            check(message, self.limits)
            before = self._state
            self._enter(message)
            return self._apply(message, before)
        except ProtocolError:
            self._state = State.CLOSED
            raise

    def farewell(self, error: NexusError) -> Farewell:
        """Close the session because of `error`: the code and the reason for the close frame."""
        self.close()
        return Farewell(error.close_code, close_reason(public_message(error)))

    def _apply(self, message: CloudMessage, before: State) -> CloudMessage | Ignored[CloudMessage]:
        match message:
            case Challenge():
                if message.version not in self.hello.versions:
                    raise VersionUnsupported(
                        f"The cloud chose protocol version {message.version}; this node speaks "
                        f"{_listed(self.hello.versions)}. Update Nexus."
                    )
                self._challenge = message
            case Welcome():
                self._frame_limit = min(self._frame_limit, message.frame_limit)
            case Open():
                return self._apply_open(message, before)
            case Advance():
                stream = self._known(message)
                if stream.phase is Phase.DECLINED:
                    return Ignored(message, IgnoredBecause.NOT_ACCEPTING)
                if stream.phase is Phase.OVER:
                    return Ignored(message, IgnoredBecause.STREAM_CLOSED)
                _advance(stream, message, ProtocolError)
            case Close():
                stream = self._known(message)
                self._streams.close(message.stream)
                if stream.phase is Phase.DECLINED:
                    return Ignored(message, IgnoredBecause.NOT_ACCEPTING)
        return message

    def _apply_open(self, message: Open, before: State) -> CloudMessage | Ignored[CloudMessage]:
        if self._streams.get(message.stream) is not None:
            raise ProtocolError(f"Open for stream {message.stream!r}, which was opened and not closed.")
        if len(self._streams) >= self.hello.streams:
            raise LimitExceeded(f"Open beyond the {self.hello.streams} streams that this node offered.")
        if message.fingerprint not in {offer.fingerprint for offer in self.hello.models}:
            raise ProtocolError(f"Open with tokenizer {message.fingerprint!r}, which this node did not offer.")
        accepting = before is State.OPEN
        phase = Phase.OPEN if accepting else Phase.DECLINED
        self._streams.add(message.stream, len(message.tokens), message.candidates, phase)
        return message if accepting else Ignored(message, IgnoredBecause.NOT_ACCEPTING)

    def _known(self, message: Advance | Close) -> Stream:
        stream = self._streams.get(message.stream)
        if stream is None:
            raise ProtocolError(f"{type(message).__name__} for stream {message.stream!r}, which is not open.")
        return stream


class CloudSession(_Session):
    """The cloud's end: reads `NodeMessage`s, sends `CloudMessage`s.

    `versions`: what this build speaks, best first. `cloud_id`: identity of the gateway process. `nonce`:
    32 fresh random bytes. After `Hello` the owner sends `challenge()`; after `Proof` it checks the signature
    over `hello_bytes`, `nonce` and `cloud_id` (`shared.keys.verify_proof`) and sends `Welcome`.
    """

    role = Role.CLOUD

    def __init__(
        self,
        limits: Limits | None = None,
        versions: tuple[int, ...] = PROTOCOL_VERSIONS,
        *,
        cloud_id: str,
        nonce: bytes,
    ) -> None:
        super().__init__(limits or Limits())
        self.versions = versions
        self.cloud_id = cloud_id
        self.nonce = nonce

    @property
    def streams_to_close(self) -> frozenset[StreamId]:
        """Streams that the node's `Hold` ended. Each needs a `Close` and fills a place until then."""
        return self._streams.ids(Phase.OVER)

    @property
    def version(self) -> int:
        """The best version that both ends speak. Raises `LocalMisuse` before `Hello`."""
        offered = self.hello.versions
        return next(version for version in self.versions if version in offered)

    def challenge(self) -> Challenge:
        """The `Challenge` to send as the answer to `Hello`."""
        return Challenge(version=self.version, nonce=self.nonce, cloud=self.cloud_id)

    def send(self, message: CloudMessage) -> bytes:
        """The frame to write. Raises `LocalMisuse`, and then nothing has changed, when it is not allowed."""
        frame, after = self._encode(message, self.limits.cloud_frame)
        match message:
            case Challenge():
                if message != self.challenge():
                    raise LocalMisuse("The Challenge differs from the session's own version, nonce or identity.")
            case Welcome():
                if message.frame_limit > self.limits.node_frame:
                    raise LocalMisuse(f"Welcome.frame_limit is above the session's {self.limits.node_frame}.")
            case Open():
                self._check_open(message)
                self._streams.add(message.stream, len(message.tokens), message.candidates)
            case Advance():
                stream = self._streams.get(message.stream)
                if stream is None or stream.phase is not Phase.OPEN:
                    raise LocalMisuse(f"Advance for stream {message.stream!r}, which is not open.")
                _advance(stream, message, LocalMisuse)
            case Close():
                if self._streams.get(message.stream) is None:
                    raise LocalMisuse(f"Close for stream {message.stream!r}, which is not open.")
                self._streams.close(message.stream)
        self._state = after
        return frame

    def receive(self, frame: bytes) -> NodeMessage | Ignored[NodeMessage]:
        """Read one frame: the message to act on, or `Ignored` for a `Draft` that crossed the stream's end.

        After a `Hold`, close what is in `streams_to_close`. Raises `ProtocolError` (or a subclass) and closes
        the session when the node broke the protocol; `LocalMisuse` when the session is closed already.
        """
        self._require_readable()
        try:
            message = codec.decode_node_message(frame, self.limits.node_frame)
            check(message, self.limits)
            self._enter(message)
            return self._apply(message, frame)
        except ProtocolError:
            self._state = State.CLOSED
            raise

    def refusal(self, error: NexusError) -> Refusal:
        """Close the session because of `error`: what to send and how to close the socket.

        For what `receive` raised, and for the owner's own reasons (no capacity, a proof that fails, no answer
        in time). Only errors that are meant for the other side are told in full.
        """
        self.close()
        told = public_message(error)
        refuse = Refuse(code=error.code, message=told[: self.limits.text_length])
        return Refusal(codec.encode(refuse), error.close_code, close_reason(told))

    def _apply(self, message: NodeMessage, frame: bytes) -> NodeMessage | Ignored[NodeMessage]:
        match message:
            case Hello():
                if not set(message.versions) & set(self.versions):
                    raise VersionUnsupported(
                        f"The node speaks protocol version {_listed(message.versions)}, the cloud "
                        f"{_listed(self.versions)}. Update the older side."
                    )
                self._hello, self._hello_bytes = message, bytes(frame)
            case Draft():
                stream = self._streams.get(message.stream)
                if stream is None and not self._streams.recently_closed(message.stream):
                    raise ProtocolError(f"Draft for stream {message.stream!r}, which was never opened here.")
                if stream is None or stream.phase is Phase.OVER:
                    return Ignored(message, IgnoredBecause.STREAM_CLOSED)
                if wrong := stream.draft(message.candidate, message.epoch):
                    raise ProtocolError(wrong)
            case Hold():
                self._streams.end_all()
        return message

    def _check_open(self, message: Open) -> None:
        if self._streams.get(message.stream) is not None or self._streams.recently_closed(message.stream):
            raise LocalMisuse(f"Stream {message.stream!r} was opened before; an id is used once.")
        if len(self._streams) >= self.hello.streams:
            raise LocalMisuse(
                f"The node offered {self.hello.streams} streams and none is free; streams that a hold ended "
                "count until they are closed."
            )
        if message.fingerprint not in {offer.fingerprint for offer in self.hello.models}:
            raise LocalMisuse(f"The node did not offer the tokenizer {message.fingerprint!r}.")


def _advance(stream: Stream, message: Advance, error: type[NexusError]) -> None:
    if message.pos != stream.end:
        raise error(f"Advance at {message.pos}, but stream {message.stream!r} was told up to {stream.end}.")
    if message.epoch > max(stream.epoch, 0):
        raise error(f"Advance names epoch {message.epoch}; the newest draft is of epoch {stream.epoch}.")
    if message.epoch < stream.told:
        raise error(f"Advance names epoch {message.epoch} after epoch {stream.told}.")
    stream.told = message.epoch
    stream.end += len(message.tokens)


def _listed(versions: tuple[int, ...]) -> str:
    return ", ".join(str(version) for version in versions)
