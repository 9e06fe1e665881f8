"""A stream's guesses: what was committed, what is guessed after it, what of that was sent, what to draft next.

Pure: no engine, no clock, no I/O. Positions are absolute, as in `shared.wire.messages`.

Everything sent in one epoch lies on one line, in order and without overlap. A divergence between a guess and
the target's token starts the next epoch. When the target gets ahead of guesses that were right as far as they
went, drafting goes on at the committed end in the same epoch: nothing that was sent is wrong, and a tape that
starts at its own committed end has no gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from shared.errors import InvalidInput, ProtocolError

ROUND_TOKENS: Final = 512
"""Longest round asked of the engine. A round that the window ends is stopped; one that the window keeps
moving ahead of goes on, which saves the cost of a new round."""


class Guess(NamedTuple):
    """A drafted token, and what would have been drafted without it; see `engines.port.Drafted`."""

    token: int
    runner_up: int | None = None
    margin: float | None = None


class Block(NamedTuple):
    """Guesses to send: `tokens[0]` is for position `pos`."""

    epoch: int
    pos: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class StartRound:
    """Draft up to `count` tokens after `tokens`, in place of the running round."""

    tokens: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class StopRound:
    """Stop the running round: its tokens are not wanted, or the window is full."""


class GuessLine:
    """One stream's guesses.

    The caller reports the engine's tokens with `drafted` and the target's with `advance`, and after either
    sends `blocks()` and does what `due()` says; `due` assumes that it was done.
    """

    def __init__(self, tokens: Sequence[int], *, k: int, ahead: int, limit: int) -> None:
        """`limit`: the engine's longest tape; nothing is drafted for positions from `limit` on.

        Raises `InvalidInput` for an empty tape or a window or block below 1.
        """
        if not tokens:
            raise InvalidInput("A stream needs at least one token to be drafted for.", param="tokens")
        if k < 1 or ahead < 1:
            raise InvalidInput(f"k is {k} and ahead is {ahead}; both must be at least 1.", param="ahead")
        self._committed = list(tokens)
        self._guesses: list[Guess] = []
        self._sent = len(tokens)
        self._k = k
        self._ahead = ahead
        self._limit = limit
        self._running = False
        self._stop = False
        self._stuck = False
        self.epoch = 0

    @property
    def committed(self) -> int:
        """Number of committed tokens: the position of the first guess."""
        return len(self._committed)

    @property
    def outstanding(self) -> int:
        """Guesses that the target has not passed yet."""
        return len(self._guesses)

    @property
    def text(self) -> Sequence[int]:
        """The committed tokens; not a copy."""
        return self._committed

    @property
    def guesses(self) -> Sequence[Guess]:
        """For the positions from `committed` on; not a copy."""
        return self._guesses

    def advance(self, pos: int, tokens: Sequence[int]) -> int:
        """Take the target's tokens from `pos` on; how many of the new ones had been guessed.

        What is committed already is skipped. Raises `ProtocolError` when `pos` leaves a gap.
        """
        base = len(self._committed)
        if pos > base:
            raise ProtocolError(f"Verified tokens start at position {pos}, but only {base} are known.")
        new = list(tokens[base - pos :])
        if not new:
            return 0
        agreed = 0
        for guess, token in zip(self._guesses, new, strict=False):
            if guess.token != token:
                break
            agreed += 1
        diverged = agreed < len(new) and agreed < len(self._guesses)
        self._committed += new
        if agreed == len(new):
            del self._guesses[:agreed]
        else:
            self._guesses.clear()
            self._cancel()
        if diverged:
            self.epoch += 1
            self._sent = len(self._committed)
        self._sent = max(self._sent, len(self._committed))
        self._stuck = False
        return agreed

    def adopt(self, guesses: Sequence[Guess]) -> None:
        """Go on from guesses for the positions from `committed` on that were made elsewhere; only when there are no
        own ones. The next `blocks` send them."""
        if not self._guesses:
            self._guesses += guesses[: self._ahead]
            self._stuck = False

    def drafted(
        self, pos: int, token: int | None, last: bool, runner_up: int | None = None, margin: float | None = None
    ) -> None:
        """Take one token of the running round, or its end without one. Anything else is ignored."""
        if not self._running or pos != len(self._committed) + len(self._guesses):
            return
        if token is None:
            self._stuck = True
        else:
            self._guesses.append(Guess(token, runner_up, margin))
        if last or token is None:
            self._running = False

    def due(self) -> StartRound | StopRound | None:
        """What the engine must be told now."""
        position = len(self._committed) + len(self._guesses)
        room = min(self._ahead - len(self._guesses), self._limit - position)
        if self._running:
            if room > 0:
                return None
            self._cancel()
        worth = not self._guesses or room >= min(self._k, self._ahead)
        if room > 0 and worth and not self._stuck:
            self._running, self._stop = True, False
            count = min(max(ROUND_TOKENS, self._ahead), self._limit - position)
            return StartRound((*self._committed, *(guess.token for guess in self._guesses)), count)
        if self._stop:
            self._stop = False
            return StopRound()
        return None

    def blocks(self) -> list[Block]:
        """Guesses to send now.

        The next `k` positions go at once, token by token as they come: the verifier may be waiting for them, and
        knows best how long. What lies further ahead goes in blocks of `k`, or when no round adds to it.
        """
        base = len(self._committed)
        end = base + len(self._guesses)
        open_end = self._running and len(self._guesses) < self._ahead
        found: list[Block] = []
        while self._sent < end:
            near = base + self._k - self._sent
            size = min(near if near > 0 else self._k, end - self._sent)
            if near <= 0 and open_end and size < self._k:
                break
            tokens = self._guesses[self._sent - base : self._sent - base + size]
            found.append(Block(self.epoch, self._sent, tuple(guess.token for guess in tokens)))
            self._sent += size
        return found

    def _cancel(self) -> None:
        self._stop = self._stop or self._running
        self._running = False
