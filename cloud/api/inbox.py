"""Pieces of an answer between the verifier's connections and the reader: bounded, merged when the reader is slow."""

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from cloud.api.upstream.chunks import Delta, Piece, Usage

MERGE_AT = 16
"""Waiting pieces of one choice from which on its next ones are merged with the last."""
SIZE_LIMIT = 1 << 20
"""Most that waits, all choices together, about in bytes; a full inbox holds the verifier's connections back."""
_TOKEN_SIZE = 64
"""Of a token, and of each alternative to it."""
_PIECE_SIZE = 64


class Event(msgspec.Struct, frozen=True):
    """What happened to choice `index`: a piece of its answer, its end (`piece` is none), or its failure."""

    index: int
    piece: Piece | None
    error: Exception | None = None


class _Entry:
    __slots__ = ("event", "more", "size")

    def __init__(self, event: Event, size: int) -> None:
        self.event, self.size = event, size
        self.more: list[Delta] = []

    def takes(self, piece: Delta) -> bool:
        """Whether it may be merged with `piece`: calls and text are kept apart, as their order would be lost."""
        first = self.event.piece
        if not isinstance(first, Delta) or bool(first.calls) != bool(piece.calls):
            return False
        return not (piece.calls and (first.text or piece.text))


class _Line:
    """What waits of one choice."""

    __slots__ = ("count", "delta", "usage")

    def __init__(self) -> None:
        self.count = 0
        self.delta: _Entry | None = None
        """The last delta, while it waits; what comes may be merged with it."""
        self.usage: _Entry | None = None
        """The last usage, while it waits; a newer one takes its place."""


class Inbox:
    """One reader, one writer for each choice. A choice's deltas stay in order."""

    def __init__(self) -> None:
        self._waiting: deque[_Entry] = deque()
        self._lines: dict[int, _Line] = {}
        self._size = 0
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, event: Event) -> None:
        """Waits while there is no room."""
        await self._wait_for_room()
        self._put(event)

    async def put_all(self, index: int, pieces: Sequence[Piece]) -> None:
        """Pieces that came together. Waits while there is no room."""
        await self._wait_for_room()
        line = self._line(index)
        for piece in pieces:
            if line.count < MERGE_AT:
                self._put(Event(index, piece))
            elif isinstance(piece, Delta) and line.delta is not None and line.delta.takes(piece):
                size = _size(piece)
                line.delta.more.append(piece)
                line.delta.size += size
                self._size += size
            elif isinstance(piece, Usage) and line.usage is not None:
                line.usage.event = Event(index, piece)
            else:
                self._put(Event(index, piece))

    async def get(self) -> Event:
        """The next event. Safe to cancel: nothing is lost."""
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        entry = self._waiting.popleft()
        event = entry.event
        line = self._line(event.index)
        line.count -= 1
        if line.delta is entry:
            line.delta = None
        elif line.usage is entry:
            line.usage = None
        self._size -= entry.size
        if self._size < SIZE_LIMIT:
            self._room.set()
        if not entry.more or not isinstance(event.piece, Delta):
            return event
        return Event(event.index, merged([event.piece, *entry.more]))

    async def _wait_for_room(self) -> None:
        while self._size >= SIZE_LIMIT:
            self._room.clear()
            await self._room.wait()

    def _line(self, index: int) -> _Line:
        if (line := self._lines.get(index)) is None:
            line = self._lines[index] = _Line()
        return line

    def _put(self, event: Event) -> None:
        entry = _Entry(event, _size(event.piece))
        line = self._line(event.index)
        line.count += 1
        if isinstance(event.piece, Delta):
            line.delta = entry
        elif event.piece is not None:
            line.usage = entry
        self._size += entry.size
        self._waiting.append(entry)
        self._some.set()


def merged(deltas: list[Delta]) -> Delta:
    """Several pieces of one choice, one after the other, as one."""
    return Delta(
        text="".join([delta.text for delta in deltas]),
        tokens=tuple([token for delta in deltas for token in delta.tokens]),
        reasoning="".join([delta.reasoning for delta in deltas]),
        calls=tuple([call for delta in deltas for call in delta.calls]),
        end=deltas[-1].end,
    )


def _size(piece: Piece | None) -> int:
    if not isinstance(piece, Delta):
        return _PIECE_SIZE
    size = _PIECE_SIZE + len(piece.text)
    if piece.tokens:
        size += _TOKEN_SIZE * sum([1 + len(token.top) for token in piece.tokens])
    if piece.reasoning or piece.calls:
        size += len(piece.reasoning) + sum([len(call.arguments) for call in piece.calls])
    return size
