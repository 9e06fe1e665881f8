"""A tape: one line of guesses at absolute positions, untrusted, compared and never believed."""

from collections.abc import Sequence
from enum import Enum

from shared.wire.limits import Limits

TAPE_LIMIT = Limits().ahead_tokens
"""Most tokens that a tape holds ahead of the committed end: as many as a node may have outstanding. The rest of a
message is dropped, which leaves a gap that only a new epoch ends."""


class Taken(Enum):
    """What became of a draft message's tokens."""

    STALE = "stale"
    LATE = "late"
    OVERFLOW = "overflow"


class Tape:
    """Guesses from `start` on, in the newest epoch; empty when they have been used up or disproved."""

    __slots__ = ("_dead", "epoch", "start", "tokens")

    def __init__(self) -> None:
        self.epoch = 0
        self.start = 0
        self.tokens: list[int] = []
        self._dead = -1
        """Newest epoch that a committed token has contradicted: its later tokens rest on a wrong one."""

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def write(self, epoch: int, pos: int, tokens: Sequence[int], committed: Sequence[int]) -> dict[Taken, int]:
        """Takes a draft message in.

        Tokens for positions already committed are compared with what was committed: if they agree, the rest is
        still good (a late draft is not thrown away); if not, the epoch is dead.

        Args:
            epoch: a higher one than before replaces the tape from `pos` on; the same appends.
            pos: absolute position of `tokens[0]`.
            tokens: guesses; ids have been checked.
            committed: all tokens of the stream so far.

        Returns:
            How many tokens were not kept, by reason.
        """
        lost: dict[Taken, int] = {}
        if epoch < self.epoch or epoch <= self._dead:
            return {Taken.STALE: len(tokens)}
        end = len(committed)
        if epoch > self.epoch:
            self.epoch = epoch
            self.tokens = self.tokens[: max(0, pos - self.start)] if self.start <= pos <= self.end else []
        overlap = max(0, min(len(tokens), end - pos))
        if overlap:
            lost[Taken.LATE] = overlap
            if list(tokens[:overlap]) != list(committed[pos : pos + overlap]):
                self.disprove()
                lost[Taken.STALE] = len(tokens) - overlap
                return {reason: count for reason, count in lost.items() if count}
            tokens, pos = tokens[overlap:], pos + overlap
        if not tokens:
            return lost
        if not self.tokens:
            self.start = end
        if pos != self.end:
            lost[Taken.OVERFLOW] = len(tokens)
            return lost
        room = max(0, end + TAPE_LIMIT - self.end)
        if len(tokens) > room:
            lost[Taken.OVERFLOW] = len(tokens) - room
        self.tokens.extend(tokens[:room])
        return lost

    def commit(self, pos: int, tokens: Sequence[int]) -> bool:
        """Moves past newly committed tokens; false if they contradict the tape, which is then empty.

        What agrees stays: the tail behind the committed end is the next draft, without a round trip.
        """
        if not self.tokens:
            return True
        covered = self.tokens[: len(tokens)] if self.start == pos else None
        if covered is None or covered != list(tokens[: len(covered)]):
            self.disprove()
            return False
        del self.tokens[: len(tokens)]
        self.start = pos + len(tokens)
        return True

    def peek(self, pos: int, limit: int) -> list[int]:
        """Up to `limit` guesses for the positions from `pos` on."""
        return self.tokens[:limit] if self.start == pos else []

    def contradicted(self, epoch: int) -> bool:
        """Whether the target has chosen otherwise than this epoch guessed."""
        return epoch <= self._dead

    def disprove(self) -> None:
        """The target chose otherwise: what is left of the epoch is worthless."""
        self._dead = max(self._dead, self.epoch)
        self.tokens = []
