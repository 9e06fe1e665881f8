"""One tape of a stream, with when its tokens come and how good they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cloud.verifier.drafts.lookup import agreement
from cloud.verifier.drafts.tape import Taken, Tape
from cloud.verifier.policy.response import Responses
from cloud.verifier.policy.survival import StreamSurvival

OVERDUE_TOKENS = 2
"""A block that is so many tokens' time late is waited for no longer."""


@dataclass(slots=True)
class Line:
    """A tape's life: it flows while it agrees with the target; a divergence calls its source for a new one.

    A node's further candidates leave its main line where it was unsure, and are mostly wrong there. Those that still
    agree behind that place are as good as the main line would be; their misses are no evidence, and they are not waited
    for.
    """

    survival: StreamSurvival
    responses: Responses
    main: bool = True
    tape: Tape = field(default_factory=Tape)
    _called: tuple[float, int] | None = None
    """When a divergence was committed, and the position behind it; none while the line flows."""
    _last_in: float | None = None
    """When its latest usable tokens came."""
    _block: int = 1
    """How many they were."""

    def write(
        self,
        epoch: int,
        pos: int,
        tokens: Sequence[int],
        committed: Sequence[int],
        committed_at: float,
        came: float,
        last: float,
    ) -> dict[Taken, int]:
        """Takes a draft in; see `Tape.write`.

        Args:
            epoch: as there, like the next three.
            pos: absolute position of `tokens[0]`.
            tokens: guesses.
            committed: all tokens of the stream so far.
            committed_at: when the last of them was committed; times are monotonic seconds.
            came: when the first of the guesses came.
            last: when the last of them came.
        """
        known = max(self.tape.end, len(committed)) if self.tape.tokens else len(committed)
        lost = self.tape.write(epoch, pos, tokens, committed)
        stale = lost.get(Taken.STALE, 0)
        if stale == len(tokens) or not self.main:
            return lost
        if self._called is not None:
            called_at, called_pos = self._called
            if pos + len(tokens) > called_pos:
                self.responses.responded(came - called_at)
                self.responses.followed(len(tokens) - 1, last - came)
                self._called = None
        elif self._last_in is not None and pos + len(tokens) > known:
            self.responses.followed(len(tokens), last - self._last_in)
        if stale or (lost.get(Taken.LATE, 0) and self.tape.contradicted(epoch)):
            self._called = (committed_at, len(committed))
        else:
            self._last_in, self._block = last, len(tokens)
        return lost

    def commit(self, pos: int, tokens: Sequence[int], now: float) -> None:
        """Moves past a step's tokens and learns from them, whether they were drafted by this line or not."""
        guess = self.tape.peek(pos, len(tokens))
        if guess and self.main:
            right = agreement(guess, tokens)
            self.survival.observe(right, mismatch=right < len(guess))
        if not self.tape.commit(pos, tokens) and self.main:
            self._called = (now, pos + len(tokens))

    def first_in(self, now: float) -> float | None:
        """Seconds until more tokens are expected; none if that can't be told, or they are overdue."""
        if not self.main:
            return None
        if self._called is not None:
            elapsed = now - self._called[0]
            due = self.responses.due(elapsed)
            return None if due is None else due - elapsed
        if self._last_in is None:
            return None
        spacing = self.responses.spacing
        left = self._last_in + spacing - now
        return max(left, 0.0) if left > -(self._block + OVERDUE_TOKENS) * spacing else None
