"""The broker's copy of one node's guesses for one stream, kept to measure how fast the node answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from shared.ids import NodeId, TapeId

NO_EPOCH = -1
"""Epoch of a tape on which no draft has arrived."""


def tape_id(node: NodeId, candidate: int) -> TapeId:
    """What the verifier calls a line of guesses: the node's main line bears its name."""
    return TapeId(f"{node}/{candidate}" if candidate else node)


def tape_owner(tape: TapeId) -> tuple[NodeId, int]:
    """The node and the candidate that `tape_id` made a name of."""
    node, _, candidate = tape.partition("/")
    return NodeId(node), int(candidate) if candidate.isdecimal() else 0


class DraftFate(Enum):
    """What a draft was worth when it arrived."""

    USABLE = auto()
    LATE = auto()
    """All its positions are committed already."""
    STALE = auto()
    """Of an epoch that a newer one has replaced."""
    GAP = auto()
    """Begins beyond what the tape holds: a message before it was lost, and nothing behind it can be of use."""


@dataclass(slots=True)
class _Question:
    """Something that the node owes an answer to: a draft beyond `pos` of at least epoch `epoch`."""

    asked: float
    pos: int
    epoch: int
    got: int = 0
    """Tokens from `pos` on that have come so far, the last of them at `last`."""
    last: float = 0.0


@dataclass(slots=True)
class Tape:
    """Guesses from position `start` (always the committed length) on.

    A response time is the time from telling the node about committed tokens, when the tape held no guess beyond
    them, until it holds a full draft of `k` tokens in an epoch that may agree with them: what a stream waits for.
    When the target goes on before that, the time is extrapolated from the part that came.
    """

    start: int
    k: int
    _owed: _Question | None
    _latest: _Question
    epoch: int = NO_EPOCH
    tokens: list[int] = field(default_factory=list)
    diverged: bool = False
    """The target chose otherwise than this epoch guessed: only a higher epoch can be of use."""
    drafted: int = 0
    """Tokens of this tape that a verification checked."""
    accepted: int = 0
    trial: bool = False
    """Its node is on probation: no stream waits for it."""
    allowance: float = 0.0
    """Draft tokens that the node may still send for the stream, on all its lines: `BrokerSettings.excess_factor`."""
    candidates: dict[int, "Tape"] = field(default_factory=dict)
    """The node's further lines that it has sent something of, by number from 1 on. Nobody waits for them, so their
    response times mean nothing."""

    @classmethod
    def opened(cls, start: int, k: int, now: float) -> "Tape":
        question = _Question(now, start, 0)
        return cls(start, k, question, question)

    def line(self, candidate: int, now: float) -> "Tape":
        """The line with this number; 0 is this one."""
        if not candidate:
            return self
        return self.candidates.setdefault(candidate, Tape.opened(self.start, self.k, now))

    def agreement(self, tokens: Sequence[int]) -> tuple[int, bool]:
        """How the main line compares with what the target chose from `start` on: agreeing tokens, and whether one
        that disagreed came next."""
        agreed = 0
        for guess, token in zip(self.tokens, tokens, strict=False):
            if guess != token:
                return agreed, True
            agreed += 1
        return agreed, False

    def owed_since(self) -> float | None:
        """When the node was asked for a draft of which nothing has come; none when it owes none."""
        return None if self._owed is None or self._owed.got else self._owed.asked

    def advance(self, tokens: tuple[int, ...], now: float) -> float | None:
        """The target committed `tokens` from `start` on; gives a response time in ms if that cut an answer short."""
        for candidate in self.candidates.values():
            candidate.advance(tokens, now)
        response_ms = None
        if self._owed is not None and self._owed.got:
            response_ms = (self._owed.last - self._owed.asked) * 1_000.0 * self.k / self._owed.got
            self._owed = None
        held = self.tokens[: len(tokens)]
        if held != list(tokens[: len(held)]):
            self.tokens.clear()
            if not self.diverged:
                self.diverged = True
                self._owed = None
        else:
            del self.tokens[: len(tokens)]
        self.start += len(tokens)
        self._latest = _Question(now, self.start, self.epoch + 1 if self.diverged else max(self.epoch, 0))
        if not self.tokens and self._owed is None:
            self._owed = self._latest
        return response_ms

    def draft(
        self, epoch: int, pos: int, tokens: tuple[int, ...], committed: Sequence[int], now: float
    ) -> tuple[DraftFate, float | None]:
        """Take a draft in; gives its fate and, when it answered what the node owed, the response time in ms.

        `committed` are all of the stream's tokens, `start` of them.
        """
        if epoch < self.epoch or (epoch == self.epoch and self.diverged):
            return DraftFate.STALE, None
        response_ms = None
        end = pos + len(tokens)
        if self._owed is not None and epoch >= self._owed.epoch and end > self._owed.pos:
            self._owed.got, self._owed.last = end - self._owed.pos, now
            if self._owed.got >= self.k or end <= self.start:
                response_ms = (now - self._owed.asked) * 1_000.0
                self._owed = None
        if epoch > self.epoch:
            self.epoch = epoch
            self.diverged = False
            del self.tokens[max(pos - self.start, 0) :]
        fate = DraftFate.USABLE
        passed = max(min(self.start, end) - pos, 0)
        if passed and list(tokens[:passed]) != list(committed[pos : pos + passed]):
            self.diverged = True
            self.tokens.clear()
            fate = DraftFate.STALE
        elif end <= self.start:
            fate = DraftFate.LATE
        elif pos > self.start + len(self.tokens):
            fate = DraftFate.GAP
        elif self.start + len(self.tokens) < end:
            self.tokens.extend(tokens[self.start + len(self.tokens) - pos :])
        if not self.tokens and self._owed is None:
            latest = self._latest
            self._owed = _Question(latest.asked, latest.pos, self.epoch + 1 if self.diverged else self.epoch)
        return fate, response_ms
