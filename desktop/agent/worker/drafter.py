"""Drives one engine for many streams: messages in, decode steps, blocks of guesses out. No I/O."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from desktop.agent.engines.port import DraftEngine
from desktop.agent.worker.candidates import Candidate, Candidates
from desktop.agent.worker.line import GuessLine, StartRound, StopRound
from desktop.agent.worker.messages import AdvanceStream, DraftBlock, Failed, OpenStream, Stats
from shared.errors import NexusError
from shared.ids import StreamId
from shared.sampling import Sampling


@dataclass
class _Stream:
    line: GuessLine
    candidates: Candidates
    sampling: Sampling
    seed: int | None

    def numbered(self) -> Iterator[tuple[int, Candidate]]:
        return enumerate(self.candidates.lines, 1)


class Drafter:
    """Owns the engine's streams. An `EngineError` out of `step` is the engine's end; others end one stream.

    To the engine each candidate is a stream of its own; it shares the main line's KV cache as far as the engine can.
    Candidates run in places that no main line needs, and lose them when one does.
    """

    def __init__(self, engine: DraftEngine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._streams: dict[StreamId, _Stream] = {}
        self._main_rounds: set[StreamId] = set()
        self._candidate_rounds: dict[StreamId, tuple[StreamId, int]] = {}
        """The engine's name of a candidate whose round is running: its stream and number."""
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
        k, ahead, limit = message.k, message.ahead, self._engine.max_model_len
        try:
            line = GuessLine(message.tokens, k=k, ahead=ahead, limit=limit)
        except NexusError as exc:
            return [Failed(code=exc.code, message=exc.message, stream=stream)]
        candidates = Candidates(message.candidates, k=k, ahead=ahead, limit=limit)
        self._streams[stream] = _Stream(line, candidates, message.sampling, message.seed)
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
        entry.candidates.advance(entry.line)
        return self._schedule(stream)

    def close(self, stream: StreamId) -> None:
        entry = self._streams.pop(stream, None)
        if entry is None:
            return
        self._main_rounds.discard(stream)
        self._engine.forget(stream)
        for number, _ in entry.numbered():
            name = _engine_name(stream, number)
            self._candidate_rounds.pop(name, None)
            self._engine.forget(name)

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
            stream, number = self._candidate_rounds.get(drafted.stream, (drafted.stream, 0))
            entry = self._streams.get(stream)
            if entry is None:
                continue
            self._drafted += drafted.token is not None
            line = entry.candidates.lines[number - 1] if number else entry.line
            line.drafted(drafted.pos, drafted.token, drafted.last, drafted.runner_up, drafted.margin)
            if drafted.last:
                self._main_rounds.discard(drafted.stream)
                self._candidate_rounds.pop(drafted.stream, None)
            failures += self._schedule(stream)
        return failures

    def take_blocks(self) -> Iterator[DraftBlock]:
        """What is ready to be sent; each guess once."""
        for stream, entry in self._streams.items():
            for epoch, pos, tokens in entry.line.blocks():
                yield DraftBlock(stream=stream, epoch=epoch, pos=pos, tokens=tokens)
        for stream, entry in self._streams.items():
            for number, candidate in entry.numbered():
                for epoch, pos, tokens in candidate.blocks():
                    yield DraftBlock(stream=stream, epoch=epoch, pos=pos, tokens=tokens, candidate=number)

    def _schedule(self, stream: StreamId) -> list[Failed]:
        entry = self._streams[stream]
        for number, candidate in entry.numbered():
            if candidate.running and not candidate.holds:
                self._stop_candidate(_engine_name(stream, number))
        due = entry.line.due()
        try:
            match due:
                case StartRound():
                    if stream not in self._main_rounds and self._full and self._candidate_rounds:
                        self._stop_candidate(next(reversed(self._candidate_rounds)))
                    self._start(stream, due, entry)
                    self._main_rounds.add(stream)
                case StopRound():
                    self._engine.stop(stream)
                    self._main_rounds.discard(stream)
                case None:
                    pass
            while not self._full and (begun := entry.candidates.begin(entry.line)):
                name = _engine_name(stream, begun[0])
                self._candidate_rounds[name] = (stream, begun[0])
                self._start(name, begun[1], entry)
        except NexusError as exc:
            return [self._fail(stream, exc)]
        return []

    @property
    def _full(self) -> bool:
        return len(self._main_rounds) + len(self._candidate_rounds) >= self._engine.max_streams

    def _start(self, name: StreamId, due: StartRound, entry: _Stream) -> None:
        runners_up = bool(entry.candidates.lines)
        self._engine.start(name, due.tokens, due.count, entry.sampling, entry.seed, runners_up)
        self._rounds += 1

    def _stop_candidate(self, name: StreamId) -> None:
        """What it has drafted so far is kept, unless it was dropped already."""
        stream, number = self._candidate_rounds.pop(name)
        self._streams[stream].candidates.lines[number - 1].running = False
        self._engine.stop(name)

    def _fail(self, stream: StreamId, exc: NexusError) -> Failed:
        self.close(stream)
        return Failed(code=exc.code, message=exc.message, stream=stream)


def _engine_name(stream: StreamId, number: int) -> StreamId:
    """What the engine calls a candidate; no stream of the cloud's is called so."""
    return StreamId(f"{stream}\0{number}")
