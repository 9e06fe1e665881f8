"""Lines of guesses beside a stream's main one, for the case that the target takes a runner-up.

Pure, as `line`. A candidate leaves the main line at the position where the node was least sure of its guess: the
margin between the best and the second-best score was smallest. It repeats the main line up to there, has the runner-up
in place of the guess and then some tokens of what follows. When the target takes the runner-up, the verifier holds the
continuation before this node has even heard of the divergence.

On recorded answers of the 1.5B target (bench/traces.py) the 0.5B draft model's runner-up is the target's token at 56 %
of the divergences at temperature 0.8 and at 52 % at temperature 0. Replayed through this code, one candidate gives 7 to
15 % more tokens per verification, two give 8 to 19 %; choosing by the chance that the target gets as far as the branch
and leaves there, instead of by the margin alone, gave less.
"""

from collections.abc import Sequence
from typing import Final

from desktop.agent.worker.line import Block, Guess, GuessLine, StartRound

SURE: Final = 5.0
"""No candidate leaves the main line at a guess with a margin above this: the target took the runner-up at 1 in 100."""
BLOCKS: Final = 2
"""Length of a continuation, in blocks of `k`: for the step after the divergence, and for the way of the next drafts.
At a round trip of a step or more that gave 2 to 4 % more than one block did, and three or four gave nothing more."""
BLOCK_TOKENS: Final = 128
"""Most tokens in one message."""


class Candidate:
    """One such line. Each time that it begins anew it does so in a higher epoch, at a committed position."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._guesses: list[Guess] = []
        """From `_start` on; empty when this line holds nothing that could still be right."""
        self._start = 0
        self._committed = 0
        self._sent = 0
        self._end = 0
        self.epoch = -1
        self.branch = -1
        """Position of the runner-up."""
        self.margin = 0.0
        self.running = False

    @property
    def holds(self) -> bool:
        return bool(self._guesses)

    def begin(self, line: GuessLine, branch: int, runner_up: int, margin: float, end: int) -> StartRound:
        """Leave `line` at `branch` for `runner_up` and draft from there to `end`; gives the round to start."""
        before = line.guesses[: branch - line.committed]
        self._guesses = [*before, Guess(runner_up)]
        self._start = self._committed = self._sent = line.committed
        self._end = end
        self.branch, self.margin = branch, margin
        self.epoch += 1
        self.running = True
        tokens = (*line.text, *(guess.token for guess in self._guesses))
        return StartRound(tokens, end - len(tokens))

    def advance(self, text: Sequence[int]) -> None:
        """The target's tokens are `text` so far. What they contradict, or have passed, is dropped."""
        if not self._guesses:
            return
        known = text[self._committed : self._start + len(self._guesses)]
        held = self._guesses[self._committed - self._start :]
        self._committed = len(text)
        if any(guess.token != token for guess, token in zip(held, known, strict=False)) or (
            self._committed >= self._start + len(self._guesses)
        ):
            self._guesses.clear()

    def rest(self) -> Sequence[Guess]:
        """Guesses for the positions from the committed end on."""
        return self._guesses[self._committed - self._start :]

    def drop(self) -> None:
        """Nothing of this is needed any more."""
        self._guesses.clear()

    def drafted(
        self, pos: int, token: int | None, last: bool, runner_up: int | None = None, margin: float | None = None
    ) -> None:
        """Take one token of the running round, or its end without one. Anything else is ignored."""
        if not self.running or not self._guesses or pos != self._start + len(self._guesses):
            return
        if token is not None:
            self._guesses.append(Guess(token, runner_up, margin))
        if last or token is None:
            self.running = False

    def blocks(self) -> list[Block]:
        """Guesses to send now: all at once when the round is over, or as they come when a step may soon need them.

        A runner-up without continuation is not sent: if the target takes it, it says so itself.
        """
        end = self._start + len(self._guesses)
        if end < self.branch + 2 or (self.running and self.branch >= self._committed + self._k):
            return []
        found: list[Block] = []
        self._sent = max(self._sent, self._committed)
        while self._sent < end:
            tokens = self._guesses[self._sent - self._start : self._sent - self._start + BLOCK_TOKENS]
            found.append(Block(self.epoch, self._sent, tuple(guess.token for guess in tokens)))
            self._sent += len(tokens)
        return found


class Candidates:
    """All candidates of one stream beside its main line; number 0 is the main line, `lines[0]` is number 1."""

    def __init__(self, count: int, *, k: int, ahead: int, limit: int) -> None:
        """`count`: candidates in all, the main line included; the rest as in `GuessLine`."""
        self.lines = tuple(Candidate(k) for _ in range(count - 1))
        self._k = k
        self._ahead = ahead
        self._limit = limit

    def advance(self, line: GuessLine) -> None:
        """`line` has heard the target; if it was left with nothing and a candidate was right, it takes that over."""
        for each in self.lines:
            each.advance(line.text)
        if line.outstanding or not self.lines:
            return
        right = max(self.lines, key=lambda each: len(each.rest()))
        if right.holds:
            line.adopt(right.rest())
            right.drop()

    def begin(self, line: GuessLine) -> tuple[int, StartRound] | None:
        """The candidate that is worth a round now, by its number, and the round; none if there is none.

        The main line comes first: while it is less than a block ahead, nothing begins.
        """
        free = [each for each in self.lines if not each.running]
        if not free or line.outstanding < min(self._k, self._ahead):
            return None
        branch = self._branch(line)
        if branch is None:
            return None
        pos, guess, margin = branch
        worst = max(free, key=lambda each: each.margin if each.holds else float("inf"))
        if guess.runner_up is None or margin > SURE or (worst.holds and margin >= worst.margin):
            return None
        end = min(pos + 1 + BLOCKS * self._k, self._end(line))
        return self.lines.index(worst) + 1, worst.begin(line, pos, guess.runner_up, margin, end)

    def _branch(self, line: GuessLine) -> tuple[int, Guess, float] | None:
        """Where the node was least sure, among the positions that no candidate leaves the main line at."""
        taken = {each.branch for each in self.lines if each.holds}
        found = (
            (pos, guess, guess.margin)
            for pos, guess in enumerate(line.guesses, line.committed)
            if guess.margin is not None and pos not in taken and pos + 2 <= self._end(line)
        )
        return min(found, key=lambda each: each[2], default=None)

    def _end(self, line: GuessLine) -> int:
        """Where guesses have to end."""
        return min(line.committed + self._ahead, self._limit)
