"""Listens in on the draft port: stands between gateway and verifier, passes everything on and adds it up.

The verifier says of each engine step how long it took and what it committed. That is not part of any answer, and the
gateway's metrics come once a second; so the harness reads the messages themselves. Passing on costs a fraction of a
millisecond.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
import zmq
import zmq.asyncio

from cloud.verifier.drafts.stream import LOOKUP
from shared.draftport.messages import Attached, Counts, Opened, Verified, VerifierMessage


@dataclass(slots=True)
class Steps:
    """What the verifier reported since `Tap.take` was last called."""

    tokens: int = 0
    step_ms: dict[int, float] = field(default_factory=dict)
    """Duration of each engine step that committed anything, by its number."""
    opening: set[int] = field(default_factory=set)
    """Steps that brought a stream's first token: they computed its prompt."""
    step_tokens: dict[int, int] = field(default_factory=dict)
    """Tokens that each step committed."""
    step_size: dict[int, int] = field(default_factory=dict)
    """Tokens that each step computed: one of each stream, and its draft."""
    drafted: int = 0
    accepted: int = 0
    baseline: int = 0
    lookup_drafted: int = 0
    """Of `drafted`, those of the verifier's own n-gram lookup."""
    lookup_accepted: int = 0
    depth_drafted: list[int] = field(default_factory=list)
    """How often a draft of a node had a token at depth 1, 2, …"""
    depth_accepted: list[int] = field(default_factory=list)

    def add(self, event: Verified, first: bool) -> None:
        self.tokens += len(event.tokens)
        self.step_ms[event.step] = event.step_ms
        self.step_tokens[event.step] = self.step_tokens.get(event.step, 0) + len(event.tokens)
        self.step_size[event.step] = self.step_size.get(event.step, 0) + 1 + event.drafted
        if first:
            self.opening.add(event.step)
        self.baseline += event.baseline
        self.drafted += event.drafted
        self.accepted += event.accepted
        if event.drafted and event.source == LOOKUP:
            self.lookup_drafted += event.drafted
            self.lookup_accepted += event.accepted
        elif event.drafted:
            for counts, upto in ((self.depth_drafted, event.drafted), (self.depth_accepted, event.accepted)):
                counts.extend([0] * (upto - len(counts)))
                for depth in range(upto):
                    counts[depth] += 1

    def decoding(self) -> tuple[int, float, int]:
        """Steps without a prompt in them: how many, their milliseconds, their tokens."""
        steps = self.step_ms.keys() - self.opening
        return len(steps), sum(self.step_ms[step] for step in steps), sum(self.step_tokens[step] for step in steps)

    def profile(self) -> dict[int, list[float]]:
        """Milliseconds of the steps without a prompt, by the tokens that they computed."""
        found: dict[int, list[float]] = {}
        for step in sorted(self.step_ms.keys() - self.opening):
            found.setdefault(self.step_size[step], []).append(round(self.step_ms[step], 1))
        return dict(sorted(found.items()))


class Tap:
    """Figures of what passes; see `tapped`."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._steps = Steps()
        self._fresh: set[str] = set()

    def take(self) -> Steps:
        """What was seen since the last call."""
        seen, self._steps = self._steps, Steps()
        return seen

    def note(self, message: VerifierMessage) -> None:
        match message:
            case Opened():
                if len(message.tokens) == message.prompt:
                    self._fresh.add(message.stream)
            case Verified():
                self._steps.add(message, message.stream in self._fresh)
                self._fresh.discard(message.stream)
            case Attached():
                self.counts = message.counts
            case _:
                pass


@contextlib.asynccontextmanager
async def tapped(verifier: str, listen: str) -> AsyncIterator[Tap]:
    """Carries one gateway's messages between `listen`, which it connects to, and the draft port `verifier`."""
    context = zmq.asyncio.Context()
    front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    tap = Tap()
    decode = msgspec.msgpack.Decoder(VerifierMessage).decode
    name: list[bytes] = []

    async def forward() -> None:
        while True:
            sender, frame = await front.recv_multipart()
            if not name:
                # The verifier knows a gateway by its socket's identity.
                name.append(sender)
                back.setsockopt(zmq.ROUTING_ID, sender)
                back.connect(verifier)
            await back.send(frame)

    async def backward() -> None:
        while True:
            if not name:
                await asyncio.sleep(0.05)
                continue
            frame = await back.recv()
            await front.send_multipart([name[0], frame])
            tap.note(decode(frame))

    front.bind(listen)
    tasks = [asyncio.create_task(forward()), asyncio.create_task(backward())]
    try:
        yield tap
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        context.destroy(linger=0)
