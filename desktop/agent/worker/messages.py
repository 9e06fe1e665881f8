"""What agent and worker say to each other over their pipe: MessagePack maps with a type tag, each framed by length."""

import msgspec

from desktop.agent.engines.port import EngineConfig
from shared.sampling import Sampling


class WorkerMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="t"):
    """Base of all messages of the pipe."""


# --- agent to worker -------------------------------------------------------------------------


class Start(WorkerMessage, frozen=True, kw_only=True, tag="start"):
    """First message: load this."""

    engine: str
    """`auto`, a name of `engines.choose.ENGINES`, or `module:factory`."""
    config: EngineConfig
    model: str
    """The model's name, as it is offered to the cloud."""


class OpenStream(WorkerMessage, frozen=True, kw_only=True, tag="open"):
    """Draft for this stream. One that is open already is replaced; its epochs begin at 0 again."""

    stream: str
    tokens: tuple[int, ...]
    sampling: Sampling
    seed: int | None
    k: int
    ahead: int
    candidates: int = 1


class AdvanceStream(WorkerMessage, frozen=True, kw_only=True, tag="advance"):
    """The target's own tokens from `pos` on. An unknown stream is ignored: it may just have been closed."""

    stream: str
    pos: int
    tokens: tuple[int, ...]


class CloseStream(WorkerMessage, frozen=True, kw_only=True, tag="close"):
    """Forget this stream."""

    stream: str


class StopAll(WorkerMessage, frozen=True, kw_only=True, tag="stop_all"):
    """Forget every stream after the decode step that is running."""


class Shutdown(WorkerMessage, frozen=True, kw_only=True, tag="shutdown"):
    """Close the engine and end the process with status 0."""


# --- worker to agent -------------------------------------------------------------------------


class Loading(WorkerMessage, frozen=True, kw_only=True, tag="loading"):
    """What the worker is doing before it is ready, for people."""

    stage: str


class Ready(WorkerMessage, frozen=True, kw_only=True, tag="ready"):
    """The engine is loaded."""

    engine: str
    model: str
    fingerprint: str
    vocabulary: int
    streams: int
    max_model_len: int
    load_s: float


class DraftBlock(WorkerMessage, frozen=True, kw_only=True, tag="draft"):
    """Guesses to send to the cloud as they are."""

    stream: str
    epoch: int
    pos: int
    tokens: tuple[int, ...]
    candidate: int = 0


class Stats(WorkerMessage, frozen=True, kw_only=True, tag="stats"):
    """Totals since the worker was ready; sent about once a second while it drafts."""

    streams: int
    """Open now."""
    drafted_tokens: int
    steps: int
    step_s: float
    """Seconds spent in decode steps."""
    rounds: int


class Failed(WorkerMessage, frozen=True, kw_only=True, tag="failed"):
    """Something went wrong. With a stream, only that stream is over; without, the worker ends."""

    code: str
    message: str
    stream: str | None = None


ToWorker = Start | OpenStream | AdvanceStream | CloseStream | StopAll | Shutdown
FromWorker = Loading | Ready | DraftBlock | Stats | Failed
