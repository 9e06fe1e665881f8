"""A gateway played by a thread: attaches to a real draft port and drafts by a rule."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import zmq

from shared.draftport.messages import (
    Attach,
    Attached,
    Closed,
    GatewayMessage,
    Opened,
    Policy,
    PortDraft,
    Verified,
    VerifierMessage,
)

Rule = Callable[[str, list[int]], "Sequence[tuple[str, int, Sequence[int]]]"]
"""(stream, tokens so far) -> drafts as (tape, position, tokens)."""


@dataclass
class Story:
    """What the port said of one stream."""

    opened: Opened
    tokens: list[int]
    verified: list[Verified] = field(default_factory=list)
    closed: Closed | None = None


class PlayedGateway:
    """Use as a context manager; `rule` may be replaced between requests."""

    def __init__(self, address: str, *, name: str = "played", wait_ms: float = 300.0, k: int = 64) -> None:
        self.name, self._address, self._wait_ms, self._k = name, address, wait_ms, k
        self.rule: Rule | None = None
        self.delay_s = 0.0
        self.stories: dict[str, Story] = {}
        self.attached = threading.Event()
        self.about: Attached | None = None
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._epochs: dict[str, int] = {}
        self._pending: list[tuple[float, GatewayMessage]] = []
        self._outbox: list[GatewayMessage] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "PlayedGateway":
        self._thread.start()
        assert self.attached.wait(10), "the draft port did not answer"
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(5)
        assert not self.errors, self.errors

    def send(self, message: GatewayMessage) -> None:
        """Sends something by hand, from any thread."""
        self._outbox.append(message)

    def until_closed(self, *streams: str, timeout_s: float = 10.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not all(s in self.stories and self.stories[s].closed for s in streams):
            assert time.monotonic() < deadline, f"streams did not close: {streams}"
            time.sleep(0.002)

    def _run(self) -> None:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, self.name.encode())
        socket.connect(self._address)
        decoder = msgspec.msgpack.Decoder(VerifierMessage)
        next_attach = 0.0
        try:
            while not self._stop.is_set():
                now = time.monotonic()
                if now >= next_attach:
                    socket.send(msgspec.msgpack.encode(Attach(gateway=self.name)))
                    next_attach = now + 0.5
                while self._outbox:
                    socket.send(msgspec.msgpack.encode(self._outbox.pop(0)))
                due = [message for at, message in self._pending if at <= now]
                self._pending = [(at, message) for at, message in self._pending if at > now]
                for message in due:
                    socket.send(msgspec.msgpack.encode(message))
                if socket.poll(2):
                    self._receive(decoder.decode(socket.recv()), socket)
        except BaseException as error:
            self.errors.append(error)
        finally:
            context.destroy(linger=0)

    def _receive(self, message: VerifierMessage, socket: "zmq.Socket[bytes]") -> None:
        match message:
            case Attached():
                self.about = message
                self.attached.set()
            case Opened():
                self.stories[message.stream] = Story(message, list(message.tokens))
                if self.rule is not None:
                    policy = Policy(stream=message.stream, wait_ms=self._wait_ms, k=self._k)
                    socket.send(msgspec.msgpack.encode(policy))
                self._draft(message.stream)
            case Verified():
                story = self.stories[message.stream]
                assert message.pos == len(story.tokens), "a step's tokens must continue the last one's"
                story.tokens += message.tokens
                story.verified.append(message)
                self._draft(message.stream)
            case Closed():
                self.stories[message.stream].closed = message

    def _draft(self, stream: str) -> None:
        if self.rule is None:
            return
        for tape, pos, tokens in self.rule(stream, self.stories[stream].tokens):
            self._epochs[stream] = self._epochs.get(stream, 0) + 1
            message = PortDraft(stream=stream, tape=tape, epoch=self._epochs[stream], pos=pos, tokens=tuple(tokens))
            self._pending.append((time.monotonic() + self.delay_s, message))
