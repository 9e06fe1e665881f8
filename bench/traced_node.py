"""A draft node without a model: the real agent, over the real WebSocket, with guesses read from traces.

Only the engine is replaced. The connection, the session, and the bookkeeping of guesses (`GuessLine`, `Drafter`) are
the product's. A node costs next to no CPU, so that a verifier can be measured on the machine that the nodes are on.
Distance is played too: what the node is told and what it sends both take half a round trip, in order.
"""

import asyncio
import contextlib
import hashlib
import logging
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import msgspec
import structlog

from bench.traces import DRAFT, Trace, acceptance
from desktop.agent.agent import Agent
from desktop.agent.engines.port import Drafted
from desktop.agent.identity import Identity
from desktop.agent.ports import Loaded
from desktop.agent.worker.drafter import Drafter
from desktop.agent.worker.messages import AdvanceStream, CloseStream, DraftBlock, OpenStream, StopAll
from shared.backoff import Backoff
from shared.ids import StreamId
from shared.keys import NodeKey, node_id
from shared.sampling import Sampling
from shared.wire.messages import Advance, Draft, ModelOffer, Open

STREAMS = 64
"""Streams that a traced node drafts for at once."""
CONTEXT = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How a node behaves. Times are in seconds."""

    token_s: float
    """Time of one decode step, which gives each stream that is drafted for one token."""
    rtt_s: float = 0.0
    late: bool = False
    """Sends each guess only when its position has been committed: the verifier waited for it in vain."""
    dies_after: int | None = None
    """Its connection ends after so many drafted tokens."""
    silent_after: int | None = None
    """Sends nothing after so many drafted tokens, and stays connected; 0 is a dead node that looks alive."""


# --- guesses ------------------------------------------------------------------------------------------


def degraded(traces: Sequence[Trace], share: float) -> list[Trace]:
    """The traces with right guesses made wrong until `share` of all positions is matched, always the same ones.

    A share above the recorded one leaves them as they are.
    """
    recorded = acceptance(traces).coupled
    keep = min(1.0, share / recorded) if recorded else 0.0

    def dice(trace: Trace, position: int) -> float:
        key = f"{trace.id}/{trace.temperature}/{position}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest()) / 2**48

    return [
        replace(
            trace,
            guess=[
                wrong(token) if guess == token and dice(trace, position) >= keep else guess
                for position, (guess, token) in enumerate(zip(trace.guess, trace.tokens, strict=True))
            ],
            # A runner-up must not mend what was made wrong.
            runner_up=[wrong(token) for token in trace.tokens],
        )
        for trace in traces
    ]


def wrong(token: int) -> int:
    """Some other token; it exists in every vocabulary of more than one token."""
    return token - 1 if token else 1


class Library:
    """Finds the trace that a stream follows."""

    def __init__(self, traces: Iterable[Trace]) -> None:
        self._by_prompt: dict[tuple[int, ...], list[Trace]] = {}
        for trace in traces:
            self._by_prompt.setdefault(tuple(trace.prompt_tokens), []).append(trace)
        self._lengths = sorted({len(prompt) for prompt in self._by_prompt}, reverse=True)

    def find(self, tokens: Sequence[int], sampling: Sampling, seed: int | None) -> Trace | None:
        """The trace whose prompt `tokens` begins with, of the same temperature and, when sampled, seed."""
        for length in self._lengths:
            for trace in self._by_prompt.get(tuple(tokens[:length]), ()):
                same = trace.greedy or (trace.seed == seed and abs(trace.temperature - sampling.temperature) < 1e-6)
                if same and trace.greedy == sampling.greedy:
                    return trace
        return None


def agreed(trace: Trace, pos: int, tokens: Sequence[int]) -> bool:
    """Whether `tokens`, at absolute position `pos`, are the trace's, as far as it goes."""
    whole = (*trace.prompt_tokens, *trace.tokens)
    return all(mine == theirs for mine, theirs in zip(whole[pos:], tokens, strict=False))


@dataclass(slots=True)
class _Round:
    trace: Trace | None
    pos: int
    left: int
    right: bool
    """Everything before `pos` is the target's own text. What a model says behind a wrong guess is not recorded and
    cannot be accepted; any token stands for it."""


class TraceEngine:
    """See `DraftEngine`: the choice at each position as it was recorded."""

    name = "traces 1"

    def __init__(self, library: Library, vocabulary: int, *, streams: int = STREAMS, context: int = CONTEXT) -> None:
        self.vocabulary = vocabulary
        self.max_streams = streams
        self.max_model_len = context
        self._library = library
        self._rounds: dict[StreamId, _Round] = {}

    @property
    def busy(self) -> bool:
        return bool(self._rounds)

    def start(
        self,
        stream: StreamId,
        tokens: Sequence[int],
        count: int,
        sampling: Sampling,
        seed: int | None,
        runners_up: bool = False,
    ) -> None:
        trace = self._library.find(tokens, sampling, seed)
        right = trace is not None and agreed(trace, 0, tokens)
        self._rounds[stream] = _Round(trace, len(tokens), count, right)

    def stop(self, stream: StreamId) -> None:
        self._rounds.pop(stream, None)

    def forget(self, stream: StreamId) -> None:
        self.stop(stream)

    def step(self) -> list[Drafted]:
        drafted = []
        for stream, state in list(self._rounds.items()):
            result = self._next(stream, state)
            drafted.append(result)
            if result.last:
                del self._rounds[stream]
        return drafted

    def _next(self, stream: StreamId, state: _Round) -> Drafted:
        trace, pos = state.trace, state.pos
        place = pos - len(trace.prompt_tokens) if trace is not None else -1
        if trace is None or not 0 <= place < len(trace.tokens):
            return Drafted(stream, pos, None, True)
        state.pos += 1
        state.left -= 1
        if not state.right:
            return Drafted(stream, pos, wrong(trace.tokens[place]), state.left == 0)
        token = trace.guess[place]
        state.right = token == trace.tokens[place]
        return Drafted(stream, pos, token, state.left == 0, trace.runner_up[place], trace.margin[place])

    def close(self) -> None:
        self._rounds.clear()


# --- the way there and back -----------------------------------------------------------------------

T = TypeVar("T")


class DelayLine(Generic[T]):
    """Hands on what is put into it, in order, `delay_s` later. Belongs to one event loop."""

    def __init__(self, delay_s: float, deliver: Callable[[T], None]) -> None:
        self._delay_s = delay_s
        self._deliver = deliver
        self._queue: deque[tuple[float, T]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, item: T) -> None:
        if self._delay_s <= 0:
            self._deliver(item)
            return
        loop = asyncio.get_running_loop()
        self._queue.append((loop.time() + self._delay_s, item))
        if self._timer is None:
            self._timer = loop.call_at(self._queue[0][0], self._due)

    def _due(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue and self._queue[0][0] <= loop.time() + 1e-4:
            self._deliver(self._queue.popleft()[1])
        self._timer = loop.call_at(self._queue[0][0], self._due) if self._queue else None

    def close(self) -> None:
        """What is on its way is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queue.clear()


class Withheld:
    """Blocks of a late node: each token is let go when its position has been committed."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int], list[DraftBlock]] = {}
        self._end: dict[str, int] = {}

    def advance(self, stream: str, end: int) -> list[DraftBlock]:
        """`end` tokens of the stream are committed; what may be sent now."""
        self._end[stream] = max(end, self._end.get(stream, 0))
        return [
            block for key in list(self._blocks) if key[0] == stream for block in self._release(key, self._end[stream])
        ]

    def add(self, block: DraftBlock, candidate: int = 0) -> list[DraftBlock]:
        key = (block.stream, candidate)
        kept = [old for old in self._blocks.get(key, []) if old.epoch == block.epoch]
        self._blocks[key] = [*kept, block]
        return self._release(key, self._end.get(block.stream, 0))

    def _release(self, key: tuple[str, int], end: int) -> list[DraftBlock]:
        free, kept = [], []
        for block in self._blocks[key]:
            count = max(0, min(end - block.pos, len(block.tokens)))
            if count:
                free.append(_part(block, 0, count))
            if count < len(block.tokens):
                kept.append(_part(block, count, len(block.tokens)))
        self._blocks[key] = kept
        return free


def _part(block: DraftBlock, start: int, stop: int) -> DraftBlock:
    """Some of a block's tokens."""
    return msgspec.structs.replace(block, pos=block.pos + start, tokens=block.tokens[start:stop])


# --- the node -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class NodeCounts:
    """What a node saw."""

    streams: int = 0
    unknown: int = 0
    """Streams that no trace belongs to."""
    off_trace: int = 0
    """Streams whose committed tokens left their trace: the answer was not the recorded one."""
    drafted: int = 0
    sent: int = 0
    """Tokens."""


class TracedWorker:
    """See `DraftWorker`. Works like the loop of the real worker: messages are read between decode steps."""

    def __init__(self, engine: TraceEngine, library: Library, plan: Plan, offer: ModelOffer) -> None:
        self.counts = NodeCounts()
        self.dead = asyncio.Event()
        """Set when the plan says that the node dies."""
        self._plan = plan
        self._offer = offer
        self._library = library
        self._engine = engine
        self._drafter = Drafter(engine)
        self._traces: dict[str, Trace | None] = {}
        self._inbox: deque[OpenStream | AdvanceStream | CloseStream | StopAll] = deque()
        self._filled = asyncio.Event()
        self._outbox: asyncio.Queue[Draft] = asyncio.Queue()
        self._in: DelayLine[OpenStream | AdvanceStream | CloseStream | StopAll] = DelayLine(
            plan.rtt_s / 2, self._arrived
        )
        self._out: DelayLine[Draft] = DelayLine(plan.rtt_s / 2, self._outbox.put_nowait)
        self._withheld = Withheld() if plan.late else None
        self._stepping: asyncio.Task[None] | None = None

    async def start(self) -> Loaded:
        self._stepping = asyncio.create_task(self._run())
        return Loaded(self._engine.name, (self._offer,), self._engine.max_streams)

    async def drafts(self) -> AsyncIterator[Draft]:
        while True:
            yield await self._outbox.get()

    def open(self, message: Open) -> None:
        fields = {name: getattr(message, name) for name in OpenStream.__struct_fields__ if hasattr(message, name)}
        self._in.put(OpenStream(**fields))

    def advance(self, message: Advance) -> None:
        self._in.put(AdvanceStream(stream=message.stream, pos=message.pos, tokens=message.tokens))

    def close(self, stream: str) -> None:
        self._in.put(CloseStream(stream=stream))

    def stop_all(self) -> None:
        self._in.put(StopAll())

    async def stop(self, grace_s: float) -> None:
        self._in.close()
        self._out.close()
        if self._stepping is not None:
            self._stepping.cancel()
            await asyncio.gather(self._stepping, return_exceptions=True)

    def _arrived(self, message: OpenStream | AdvanceStream | CloseStream | StopAll) -> None:
        self._inbox.append(message)
        self._filled.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._drafter.busy and not self._inbox:
                self._filled.clear()
                await self._filled.wait()
            while self._inbox:
                self._handle(self._inbox.popleft())
            if self._drafter.busy:
                end = loop.time() + self._plan.token_s
                await asyncio.sleep(max(0.0, end - loop.time()))
                self._drafter.step()
            for block in self._drafter.take_blocks():
                self._send(block)

    def _handle(self, message: OpenStream | AdvanceStream | CloseStream | StopAll) -> None:
        match message:
            case OpenStream():
                self.counts.streams += 1
                trace = self._library.find(message.tokens, message.sampling, message.seed)
                self.counts.unknown += trace is None
                self._traces[message.stream] = trace
                self._told(message.stream, 0, message.tokens)
                self._drafter.open(message)
            case AdvanceStream():
                self._told(message.stream, message.pos, message.tokens)
                self._drafter.advance(message)
            case CloseStream():
                self._traces.pop(message.stream, None)
                self._drafter.close(StreamId(message.stream))
            case StopAll():
                self._traces.clear()
                self._drafter.close_all()

    def _told(self, stream: str, pos: int, tokens: Sequence[int]) -> None:
        trace = self._traces.get(stream)
        if trace is not None and not agreed(trace, pos, tokens):
            self.counts.off_trace += 1
            self._traces[stream] = None
        if self._withheld is not None:
            for block in self._withheld.advance(stream, pos + len(tokens)):
                self._put(block)

    def _send(self, block: DraftBlock) -> None:
        self.counts.drafted += len(block.tokens)
        plan = self._plan
        if plan.dies_after is not None and self.counts.drafted > plan.dies_after:
            self.dead.set()
            return
        if plan.silent_after is not None and self.counts.drafted > plan.silent_after:
            return
        if self._withheld is None:
            self._put(block)
            return
        for free in self._withheld.add(block, getattr(block, "candidate", 0)):
            self._put(free)

    def _put(self, block: DraftBlock) -> None:
        self.counts.sent += len(block.tokens)
        fields = {name: getattr(block, name) for name in Draft.__struct_fields__ if hasattr(block, name)}
        self._out.put(Draft(**fields))


def offer(fingerprint: str, vocabulary: int) -> ModelOffer:
    """The draft model that the traces stand for."""
    return ModelOffer(name=DRAFT, fingerprint=fingerprint, vocabulary=vocabulary)


@contextlib.asynccontextmanager
async def node(
    gateway: str, traces: Sequence[Trace], plan: Plan, model: ModelOffer, key: NodeKey | None = None
) -> AsyncIterator[NodeCounts]:
    """A node that is connecting to the WebSocket URL `gateway`; it leaves with the block."""
    key = key or NodeKey.generate()
    library = Library(traces)
    worker = TracedWorker(TraceEngine(library, model.vocabulary), library, plan, model)
    quiet = structlog.wrap_logger(
        structlog.PrintLogger(), wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )
    agent = Agent(
        gateways=(gateway,),
        identity=Identity(key, node_id(key.public), "memory"),
        make_worker=lambda: worker,
        describe="traces",
        log=quiet,
        worker_delays=Backoff(random.Random(0)),
        link_delays=Backoff(random.Random(0)),
        software="traced node",
        clock=time.monotonic,
        grace_s=0.0,
    )
    running = asyncio.create_task(agent.run())

    async def die() -> None:
        await worker.dead.wait()
        running.cancel()

    dying = asyncio.create_task(die())
    try:
        yield worker.counts
    finally:
        dying.cancel()
        agent.stop()
        await asyncio.gather(running, dying, return_exceptions=True)
