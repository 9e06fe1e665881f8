"""One stream as the verifier sees it: its tapes, and whether it is worth waiting for a draft."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from cloud.verifier.drafts.lookup import PromptLookup, agreement
from cloud.verifier.drafts.tape import Taken, Tape

MISSES_UNTIL_NO_HOLD = 2
"""Holds in a row that ended without a draft; after them the stream waits no more until a draft is in time."""
REJECTIONS_UNTIL_NO_HOLD = 6
"""Holds in a row whose draft was wrong from its first token on; after them the stream waits no more until a draft is
right. More than a poor node has by chance; a node that sends garbage just in time would cost a hold per token."""
WAIT_LIMIT_S = 10.0
"""Longest hold, whatever a gateway asks for: a stream must not stand still for a draft that never comes."""
RETRY_AFTER = 16
"""Tokens after which a stream that waits no more tries one hold again; doubled by each further miss up to 16 times. A
node that was slow for a moment is found again, and a dead one costs a hold in a hundred tokens."""
RETRY_DOUBLINGS = 4
TAPES_PER_STREAM = 16
"""More tapes than this are refused; the gateway's setting `tapes_per_stream` goes so far."""


class Hold(Enum):
    """Whether a stream sits this step out."""

    NO = "no"
    WAIT = "wait"
    MISSED = "missed"
    """The wait for the current position is over, for the first time."""


@dataclass(slots=True)
class Verdict:
    """What a step meant for the stream's drafts."""

    accepted: int
    baseline: int
    epoch: int


@dataclass(slots=True)
class Stream:
    """State of one stream; times are monotonic seconds given by the caller."""

    stream: str
    gateway: str
    committed: Sequence[int]
    """All tokens so far: the engine's own list, which grows."""
    lookup: PromptLookup
    wait_s: float = 0.0
    k: int = 1 << 30
    tapes: dict[str, Tape] = field(default_factory=dict)
    misses: int = 0
    rejections: int = 0
    committed_at: float | None = None
    """When the last token was committed; none until the first output token."""
    _retry_at: int = 0
    """Number of tokens from which on the stream may wait again."""
    _missed_here: bool = False
    _held_here: bool = False

    def write(self, tape: str, epoch: int, pos: int, tokens: Sequence[int]) -> dict[Taken, int]:
        """Takes a draft in; see `Tape.write`."""
        known = self.tapes.get(tape)
        if known is None:
            if len(self.tapes) >= TAPES_PER_STREAM:
                return {Taken.OVERFLOW: len(tokens)}
            known = self.tapes[tape] = Tape()
        return known.write(epoch, pos, tokens, self.committed)

    def draft(self, limit: int) -> tuple[str, list[int]] | None:
        """The best draft for the next positions: the longest of all tapes, up to `limit` and `k`."""
        limit, pos = min(limit, self.k), len(self.committed)
        best = max(
            ((name, tape.peek(pos, limit)) for name, tape in self.tapes.items()),
            key=lambda item: len(item[1]),
            default=None,
        )
        return best if best and best[1] else None

    def hold(self, have: int, limit: int, now: float) -> Hold:
        """Whether to sit out this step because a longer draft than `have` tokens is expected soon."""
        if have >= min(limit, self.k) or self.wait_s <= 0 or self.committed_at is None:
            return Hold.NO
        barren = not have or self.rejections >= REJECTIONS_UNTIL_NO_HOLD
        if barren and len(self.committed) < self._retry_at:
            return Hold.NO
        if now < self.deadline:
            return Hold.WAIT
        if have or self._missed_here:
            return Hold.NO
        self._missed_here = True
        self.misses += 1
        self._pause(self.misses - MISSES_UNTIL_NO_HOLD)
        return Hold.MISSED

    def _pause(self, beyond: int) -> None:
        """Waits no more for a while, which is longer the further `beyond` the bound a count is; nothing below it."""
        if beyond >= 0:
            self._retry_at = len(self.committed) + RETRY_AFTER * 2 ** min(beyond, RETRY_DOUBLINGS)

    def first_hold_here(self) -> bool:
        """True once per position, for counting."""
        first, self._held_here = not self._held_here, True
        return first

    @property
    def deadline(self) -> float:
        """Until when the stream may sit out."""
        return (self.committed_at or 0.0) + self.wait_s

    def commit(self, pos: int, tokens: Sequence[int], draft: Sequence[int], source: str | None, now: float) -> Verdict:
        """Moves past a step's tokens.

        Args:
            pos: position of `tokens[0]`.
            tokens: what the step committed, after stopping rules cut it.
            draft: tokens that the step checked. The tape may have been written to since they were taken from it.
            source: tape they came from.
            now: monotonic seconds.
        """
        baseline = agreement(self.lookup.guess(len(tokens)), tokens)
        self.lookup.extend(tokens)
        tape = self.tapes.get(source) if source is not None else None
        accepted = agreement(draft, tokens)
        epoch = tape.epoch if tape else -1
        for each in self.tapes.values():
            each.commit(pos, tokens)
        if accepted:
            self.misses = self.rejections = self._retry_at = 0
        elif draft:
            self.misses = 0
            if self._held_here:
                self.rejections += 1
            if self.rejections < REJECTIONS_UNTIL_NO_HOLD:
                self._retry_at = 0
            elif self._held_here:
                self._pause(self.rejections - REJECTIONS_UNTIL_NO_HOLD)
        self.committed_at = now
        self._missed_here = self._held_here = False
        return Verdict(accepted=accepted, baseline=baseline, epoch=epoch)
