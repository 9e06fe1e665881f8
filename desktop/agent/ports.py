"""What the agent needs of a draft worker, whichever process and engine is behind it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from shared.wire.messages import Advance, Draft, ModelOffer, Open


@dataclass(frozen=True)
class Loaded:
    """What a worker can do once its model is in memory."""

    engine: str
    """For people and for the cloud's statistics: name and version."""
    offers: tuple[ModelOffer, ...]
    streams: int
    """Streams that it drafts for at once."""


class DraftWorker(Protocol):
    """One worker process, from its start to its end. A fresh object is made for each start.

    The calls that take a stream return at once; a worker that has died ignores them.
    """

    async def start(self) -> Loaded:
        """Start the process and wait until the model is loaded.

        Raises ConfigError or ModelError when settings or model cannot work, EngineError when the start failed.
        """

    def drafts(self) -> AsyncIterator[Draft]:
        """Guesses as they come. Raises EngineError when the process has died; never ends otherwise."""

    def open(self, message: Open) -> None:
        """Begin to draft for a stream."""

    def advance(self, message: Advance) -> None:
        """Tell a stream its verified tokens."""

    def close(self, stream: str) -> None:
        """Stop drafting for a stream."""

    def stop_all(self) -> None:
        """Stop drafting for every stream; the model stays loaded."""

    async def stop(self, grace_s: float) -> None:
        """End the process and all that it started: politely, after `grace_s` by SIGKILL.

        Returns when nothing of it is left. Also right before `start`, after a failure, and a second time.
        """
