"""Pieces of an answer between the verifier's connections and the reader: bounded, merged when the reader is slow."""

import asyncio
from collections import deque
from dataclasses import dataclass

from cloud.api.upstream.chunks import Delta, Piece

MERGE_AT = 16
"""Waiting pieces of one choice from which on its next ones are merged with the last."""
SIZE_LIMIT = 1 << 20
"""Most that waits, all choices together, about in bytes; a full inbox holds the verifier's connections back."""
_TOKEN_SIZE = 64


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to choice `index`: a piece of its answer, its end (`piece` is none), or its failure."""

    index: int
    piece: Piece | None
    error: Exception | None = None


@dataclass(slots=True)
class _Entry:
    event: Event
    more: list[Delta]
    size: int


class Inbox:
    """One reader, one writer for each choice. A choice's pieces stay in order."""

    def __init__(self) -> None:
        self._waiting: deque[_Entry] = deque()
        self._counts: dict[int, int] = {}
        self._last: dict[int, _Entry] = {}
        self._size = 0
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, event: Event) -> None:
        """Waits while there is no room."""
        while self._size >= SIZE_LIMIT:
            self._room.clear()
            await self._room.wait()
        size = _size(event.piece)
        self._size += size
        last = self._last.get(event.index)
        if (
            last is not None
            and self._counts[event.index] >= MERGE_AT
            and isinstance(event.piece, Delta)
            and isinstance(last.event.piece, Delta)
        ):
            last.more.append(event.piece)
            last.size += size
            return
        entry = self._last[event.index] = _Entry(event, [], size)
        self._counts[event.index] = self._counts.get(event.index, 0) + 1
        self._waiting.append(entry)
        self._some.set()

    async def get(self) -> Event:
        """The next event. Safe to cancel: nothing is lost."""
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        entry = self._waiting.popleft()
        event = entry.event
        self._counts[event.index] -= 1
        if self._last[event.index] is entry:
            del self._last[event.index]
        self._size -= entry.size
        self._room.set()
        if not entry.more or not isinstance(event.piece, Delta):
            return event
        return Event(event.index, merged([event.piece, *entry.more]))


def merged(deltas: list[Delta]) -> Delta:
    """Several pieces of one choice, one after the other, as one."""
    return Delta(
        text="".join(delta.text for delta in deltas),
        tokens=tuple(token for delta in deltas for token in delta.tokens),
        reasoning="".join(delta.reasoning for delta in deltas),
        calls=tuple(call for delta in deltas for call in delta.calls),
        end=deltas[-1].end,
    )


def _size(piece: Piece | None) -> int:
    if not isinstance(piece, Delta):
        return 0
    text = len(piece.text) + len(piece.reasoning) + sum(len(call.arguments) for call in piece.calls)
    return text + _TOKEN_SIZE * len(piece.tokens)
