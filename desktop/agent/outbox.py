"""Messages on their way to the cloud: bounded, and without drafts that newer ones have made worthless."""

import asyncio
from collections import deque
from collections.abc import Callable

from shared.errors import LocalMisuse
from shared.wire.messages import Beat, Draft, NodeMessage

DRAFTS_LIMIT = 256
"""Most drafts that wait for the socket. Everything else is rare and always admitted."""


class Outbox:
    """A queue with one reader. Belongs to one session; a new session starts with an empty one."""

    def __init__(self, drafts_limit: int = DRAFTS_LIMIT) -> None:
        self._limit = drafts_limit
        self._queue: deque[NodeMessage] = deque()
        self._drafts = 0
        self._filled = asyncio.Event()
        self._closed = False
        self.dropped_tokens = 0
        """Drafted tokens that were never sent: outdated, or the oldest while the socket was stuck."""

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, message: NodeMessage) -> None:
        """Queue a message; never waits. Nothing may follow `close`."""
        if self._closed:
            raise LocalMisuse("nothing can be sent on a session that is closed")
        match message:
            case Draft():
                self._drop(
                    lambda old: (
                        (old.stream, old.candidate) == (message.stream, message.candidate) and old.epoch < message.epoch
                    )
                )
                if self._drafts >= self._limit:
                    self._drop_oldest()
                self._drafts += 1
            case Beat():
                self._queue = deque(old for old in self._queue if not isinstance(old, Beat))
            case _:
                pass
        self._queue.append(message)
        self._filled.set()

    def forget_stream(self, stream: str) -> None:
        """Drop the drafts of a stream that the cloud has closed."""
        self._drop(lambda old: old.stream == stream)

    def forget_drafts(self) -> None:
        """Drop every draft: no stream is left."""
        self._drop(lambda _: True)

    def close(self) -> None:
        """Let `get` return what is queued and then None."""
        self._closed = True
        self._filled.set()

    async def get(self) -> NodeMessage | None:
        """Next message, or None after `close`. Safe to cancel: a message is taken only when it is returned."""
        while not self._queue:
            if self._closed:
                return None
            self._filled.clear()
            await self._filled.wait()
        message = self._queue.popleft()
        if isinstance(message, Draft):
            self._drafts -= 1
        return message

    def _drop(self, outdated: Callable[[Draft], bool]) -> None:
        kept: deque[NodeMessage] = deque()
        for old in self._queue:
            if isinstance(old, Draft) and outdated(old):
                self._drafts -= 1
                self.dropped_tokens += len(old.tokens)
            else:
                kept.append(old)
        self._queue = kept

    def _drop_oldest(self) -> None:
        for index, old in enumerate(self._queue):
            if isinstance(old, Draft):
                del self._queue[index]
                self._drafts -= 1
                self.dropped_tokens += len(old.tokens)
                return
