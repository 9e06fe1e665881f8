"""Drives one engine for many streams: messages in, decode steps, blocks of guesses out. No I/O."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from desktop.agent.engines.port import DraftEngine
from desktop.agent.worker.line import GuessLine, StartRound, StopRound
from desktop.agent.worker.messages import AdvanceStream, DraftBlock, Failed, OpenStream, Stats
from shared.errors import NexusError
from shared.ids import StreamId
from shared.sampling import Sampling


@dataclass
class _Stream:
    line: GuessLine
    sampling: Sampling
    seed: int | None


class Drafter:
    """Owns the engine's streams. An `EngineError` out of `step` is the engine's end; others end one stream."""

    def __init__(self, engine: DraftEngine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._streams: dict[StreamId, _Stream] = {}
        self._drafted = 0
        self._steps = 0
        self._step_s = 0.0
        self._rounds = 0

    @property
    def busy(self) -> bool:
        return self._engine.busy

    @property
    def stats(self) -> Stats:
        return Stats(
            streams=len(self._streams),
            drafted_tokens=self._drafted,
            steps=self._steps,
            step_s=self._step_s,
            rounds=self._rounds,
        )

    def open(self, message: OpenStream) -> list[Failed]:
        stream = StreamId(message.stream)
        self.close(stream)
        if len(self._streams) >= self._engine.max_streams:
            reason = f"This node drafts for {self._engine.max_streams} streams at most, and all are taken."
            return [Failed(code="engine_error", message=reason, stream=stream)]
        try:
            line = GuessLine(message.tokens, k=message.k, ahead=message.ahead, limit=self._engine.max_model_len)
        except NexusError as exc:
            return [Failed(code=exc.code, message=exc.message, stream=stream)]
        self._streams[stream] = _Stream(line, message.sampling, message.seed)
        return self._schedule(stream)

    def advance(self, message: AdvanceStream) -> list[Failed]:
        """Blocks that became ready, if any, come with the next `take_blocks`."""
        stream = StreamId(message.stream)
        entry = self._streams.get(stream)
        if entry is None:
            return []
        try:
            entry.line.advance(message.pos, message.tokens)
        except NexusError as exc:
            return [self._fail(stream, exc)]
        return self._schedule(stream)

    def close(self, stream: StreamId) -> None:
        if self._streams.pop(stream, None) is not None:
            self._engine.forget(stream)

    def close_all(self) -> None:
        for stream in list(self._streams):
            self.close(stream)

    def step(self) -> list[Failed]:
        """One decode step for every running round. Raises `EngineError` when the engine is done for."""
        began = self._clock()
        results = self._engine.step()
        self._step_s += self._clock() - began
        self._steps += 1
        failures: list[Failed] = []
        for drafted in results:
            entry = self._streams.get(drafted.stream)
            if entry is None:
                continue
            self._drafted += drafted.token is not None
            entry.line.drafted(drafted.pos, drafted.token, drafted.last)
            failures += self._schedule(drafted.stream)
        return failures

    def take_blocks(self) -> Iterator[DraftBlock]:
        """What is ready to be sent; each guess once."""
        for stream, entry in self._streams.items():
            for epoch, pos, tokens in entry.line.blocks():
                yield DraftBlock(stream=stream, epoch=epoch, pos=pos, tokens=tokens)

    def _schedule(self, stream: StreamId) -> list[Failed]:
        entry = self._streams[stream]
        due = entry.line.due()
        match due:
            case StartRound(tokens, count):
                try:
                    self._engine.start(stream, tokens, count, entry.sampling, entry.seed)
                except NexusError as exc:
                    return [self._fail(stream, exc)]
                self._rounds += 1
            case StopRound():
                self._engine.stop(stream)
            case None:
                pass
        return []

    def _fail(self, stream: StreamId, exc: NexusError) -> Failed:
        self.close(stream)
        return Failed(code=exc.code, message=exc.message, stream=stream)
