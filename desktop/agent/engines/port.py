"""What the worker needs of a draft engine: token ids in, guessed token ids out, one decode step at a time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from shared.ids import StreamId
from shared.sampling import Sampling


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is built from. Fields that do not apply to an engine or device are not looked at."""

    model: str
    """Folder with config.json, weights and tokenizer.json."""
    vocabulary: int = 0
    """Number of real token ids (`shared.fingerprint`); 0 = as many as the model has rows."""
    max_streams: int = 8
    max_model_len: int = 4096
    """Longest tape, tokens; lowered to what the model was made for."""
    dtype: str = "auto"
    """`auto`: bfloat16 where the hardware multiplies it quickly, else float32."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`. Which GPU is chosen with CUDA_VISIBLE_DEVICES before the process starts."""
    threads: int = 0
    """CPU threads; 0 leaves the choice to the library."""
    kv_cache_bytes: int = 1 << 30
    """Memory for the KV cache on a CPU."""
    gpu_memory_utilization: float = 0.3
    """Share of the GPU's memory for weights and KV cache together."""


class Drafted(NamedTuple):
    """One guessed token."""

    stream: StreamId
    pos: int
    """Absolute position of `token`; a round's first is the length of its prefix."""
    token: int | None
    """None ends the round without a token: the model chose an id outside the vocabulary, which
    continues no text. Starting again from the same prefix would end the same way."""
    last: bool
    """The round is over; nothing follows until the next `start`."""
    runner_up: int | None = None
    """What would have been drafted if `token` did not exist; None when the round was started without runners-up,
    the engine cannot say, or there is no other token."""
    margin: float | None = None
    """How far the runner-up's score is behind, 0 or more, in scaled and noised logits; None with the runner-up."""


class DraftEngine(Protocol):
    """Drafts for several streams at once. Not thread-safe: one thread calls everything.

    A *round* is what `start` begins: up to `count` tokens after a prefix. A stream has at most one. Calls
    take effect at once: after `start`, `stop` or `forget` has returned, `step` yields nothing of the
    round that ran before.
    """

    @property
    def name(self) -> str:
        """Engine and version, for people."""
        ...

    @property
    def vocabulary(self) -> int:
        """Every drafted id is below this."""
        ...

    @property
    def max_streams(self) -> int: ...

    @property
    def max_model_len(self) -> int:
        """A prefix must be shorter than this; a round ends when prefix and draft reach it."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a round is running."""
        ...

    def start(
        self,
        stream: StreamId,
        tokens: Sequence[int],
        count: int,
        sampling: Sampling,
        seed: int | None,
        runners_up: bool = False,
    ) -> None:
        """Begin a round after `tokens`, in place of the stream's running one.

        KV cache of the prefix that `tokens` shares with what the stream computed before is reused, so
        rolling back to a divergence costs about one step.

        With `runners_up` the tokens come with their runner-up where the engine can say; they are the same tokens.

        Raises `EngineError` for an empty prefix, one that fills `max_model_len`, a count below 1, an id
        outside the vocabulary, or one stream too many.
        """
        ...

    def stop(self, stream: StreamId) -> None:
        """End the stream's round but keep what it computed. Unknown streams are ignored."""
        ...

    def forget(self, stream: StreamId) -> None:
        """End the stream's round and free its memory. Unknown streams are ignored."""
        ...

    def step(self) -> list[Drafted]:
        """One decode step over all running rounds; at most one token for each.

        May return nothing while a long prefix is still being computed. Raises `EngineError` when the
        engine cannot go on; it is then of no further use except to be closed.
        """
        ...

    def close(self) -> None:
        """Free everything. The process should end soon after: GPU memory is only surely free then."""
        ...


EngineFactory = Callable[[EngineConfig], DraftEngine]
