"""The worker's main loop: receive, schedule, decode, publish."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, assert_never

import msgspec

from desktop.agent.engines import choose
from desktop.agent.engines.port import DraftEngine
from desktop.agent.worker.drafter import Drafter
from desktop.agent.worker.messages import (
    AdvanceStream,
    CloseStream,
    Failed,
    FromWorker,
    Loading,
    OpenStream,
    Ready,
    Shutdown,
    Start,
    StopAll,
    ToWorker,
)
from shared.errors import EngineError, NexusError
from shared.fingerprint import read_tokenizer
from shared.ids import StreamId

STATS_INTERVAL_S: Final = 1.0


class Pipe(Protocol):
    """What the loop needs of `Channel`."""

    def receive(self, *, wait: bool) -> ToWorker | None: ...
    def send(self, message: FromWorker) -> None: ...


def serve(pipe: Pipe, clock: Callable[[], float] = time.monotonic) -> int:
    """Load what the first message names, draft until `Shutdown`; the process's exit status."""
    first = pipe.receive(wait=True)
    if not isinstance(first, Start):
        pipe.send(Failed(code="local_misuse", message="The first message to a draft worker must be Start."))
        return 2
    try:
        engine = _load(pipe, first, clock)
    except NexusError as exc:
        pipe.send(Failed(code=exc.code, message=exc.message))
        return 1
    try:
        _draft(pipe, Drafter(engine, clock), clock)
    except EngineError as exc:
        pipe.send(Failed(code=exc.code, message=exc.message))
        return 1
    engine.close()
    return 0


def _load(pipe: Pipe, start: Start, clock: Callable[[], float]) -> DraftEngine:
    began = clock()
    pipe.send(Loading(stage="reading the tokenizer"))
    tokenizer = read_tokenizer(Path(start.config.model))
    name = choose.choose(start.engine)
    pipe.send(Loading(stage=f"loading {start.model} with {name}"))
    config = msgspec.structs.replace(start.config, vocabulary=tokenizer.vocabulary)
    try:
        engine = choose.create(name, config)
    except NexusError:
        raise
    except Exception as exc:
        raise EngineError(f"Engine {name} could not load {start.model}: {type(exc).__name__}: {exc}") from exc
    pipe.send(
        Ready(
            engine=engine.name,
            model=start.model,
            fingerprint=tokenizer.fingerprint,
            vocabulary=engine.vocabulary,
            streams=engine.max_streams,
            max_model_len=engine.max_model_len,
            load_s=clock() - began,
        )
    )
    return engine


def _draft(pipe: Pipe, drafter: Drafter, clock: Callable[[], float]) -> None:
    reported = clock()
    while True:
        message = pipe.receive(wait=not drafter.busy)
        while message is not None:
            if isinstance(message, Shutdown):
                return
            for failure in _handle(drafter, message):
                pipe.send(failure)
            message = pipe.receive(wait=False)
        if drafter.busy:
            for failure in drafter.step():
                pipe.send(failure)
        for block in drafter.take_blocks():
            pipe.send(block)
        if clock() - reported >= STATS_INTERVAL_S or not drafter.busy:
            reported = clock()
            pipe.send(drafter.stats)


def _handle(drafter: Drafter, message: ToWorker) -> list[Failed]:
    match message:
        case OpenStream():
            return drafter.open(message)
        case AdvanceStream():
            return drafter.advance(message)
        case CloseStream():
            drafter.close(StreamId(message.stream))
        case StopAll():
            drafter.close_all()
        case Start() | Shutdown():
            return [Failed(code="local_misuse", message="A draft worker is started once.")]
        case _:
            assert_never(message)
    return []
