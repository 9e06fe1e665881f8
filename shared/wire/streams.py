"""Book-keeping of one end's streams: which are there, how far they were told, which epochs were used."""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum

from shared.ids import StreamId


class Phase(StrEnum):
    """What may still happen to a stream that the cloud has opened and not closed."""

    OPEN = "open"
    """Drafted for."""
    OVER = "over"
    """Ended by `Hold`; waits for the cloud's `Close`, which carries the receipt."""
    DECLINED = "declined"
    """Only at the node: its `Open` crossed a `Hold` or `Drain`; waits for `Close`, never drafted for."""


@dataclass
class Stream:
    """One stream between `Open` and `Close`."""

    end: int
    """Position after the last token that the cloud told."""
    phase: Phase = Phase.OPEN
    candidates: int = 1
    """How many the cloud asked for."""
    epochs: dict[int, int] = field(default_factory=dict)
    """Newest epoch of the node's drafts, by candidate."""
    told: int = -1
    """Newest epoch that an `Advance` has named."""

    @property
    def epoch(self) -> int:
        """Newest epoch of the main line; -1 before the first."""
        return self.epochs.get(0, -1)

    def draft(self, candidate: int, epoch: int) -> str | None:
        """Take note of a draft; why it is not allowed, if so."""
        if candidate >= self.candidates:
            return f"Draft of candidate {candidate}; the cloud asked for {self.candidates}, counted from 0."
        newest = self.epochs.get(candidate, -1)
        if epoch < newest:
            return f"Draft of epoch {epoch} after epoch {newest}."
        self.epochs[candidate] = epoch
        return None


class Streams:
    """The streams of one session, with the rules that do not depend on the end."""

    def __init__(self, remember: int) -> None:
        self._live: dict[StreamId, Stream] = {}
        self._closed: OrderedDict[StreamId, None] = OrderedDict()
        self._remember = remember

    def get(self, stream: str) -> Stream | None:
        return self._live.get(StreamId(stream))

    def ids(self, *phases: Phase) -> frozenset[StreamId]:
        return frozenset(key for key, value in self._live.items() if value.phase in phases)

    def __len__(self) -> int:
        return len(self._live)

    def add(self, stream: str, end: int, candidates: int, phase: Phase = Phase.OPEN) -> None:
        self._live[StreamId(stream)] = Stream(end, phase, candidates)

    def close(self, stream: str) -> None:
        key = StreamId(stream)
        del self._live[key]
        self._closed[key] = None
        while len(self._closed) > self._remember:
            self._closed.popitem(last=False)

    def recently_closed(self, stream: str) -> bool:
        return StreamId(stream) in self._closed

    def end_all(self) -> None:
        """`Hold` was sent or read: what was open is over."""
        for stream in self._live.values():
            if stream.phase is Phase.OPEN:
                stream.phase = Phase.OVER
