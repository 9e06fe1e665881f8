"""One stream as the verifier sees it: its tapes, what can be drafted now, and what may be waited for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cloud.verifier.drafts.line import Line
from cloud.verifier.drafts.lookup import PromptLookup, agreement
from cloud.verifier.drafts.tape import Taken
from cloud.verifier.policy.survival import StreamSurvival, expected
from cloud.verifier.policy.waiting import Outlook

MISSES_UNTIL_NO_HOLD = 2
"""Holds in a row that ended with nothing new; after them the stream waits no more for a while."""
WAIT_LIMIT_S = 10.0
"""Longest hold, whatever a gateway asks for: a stream must not stand still for a draft that never comes."""
RETRY_AFTER = 16
"""Tokens after which a stream that waits no more tries one hold again; doubled by each further miss up to 16 times. A
node that was slow for a moment is found again, and a dead one costs a hold in a hundred tokens."""
RETRY_DOUBLINGS = 4
TAPES_PER_STREAM = 64
"""More tapes than this are refused; the gateway's settings `tapes_per_stream` times `candidates` go so far."""
LOOKUP = "lookup"
"""Source of drafts by prompt lookup, in place of a tape's name."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens for a stream's next positions, and the chance of each to be accepted with all before it."""

    tokens: Sequence[int]
    chances: Sequence[float]
    source: str


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
    guesser: StreamSurvival
    """How good prompt lookup is here."""
    band: int = 0
    """Temperatures whose record this stream shares; see `cloud.verifier.policy.survival.band`."""
    wait_s: float = 0.0
    k: int = 1 << 30
    lines: dict[str, Line] = field(default_factory=dict)
    misses: int = 0
    committed_at: float | None = None
    """When the last token was committed; none until the first output token."""
    held: bool = False
    """Whether a step waits for this stream's draft, and nothing new has come since."""
    _retry_at: int = 0
    """Number of tokens from which on the stream may wait again."""

    def write(
        self, line: Line, epoch: int, pos: int, tokens: Sequence[int], came: float, last: float
    ) -> dict[Taken, int]:
        """Takes a draft in; see `Line.write`."""
        lost = line.write(epoch, pos, tokens, self.committed, self.committed_at or came, came, last)
        if self.held and sum(lost.values()) < len(tokens):
            self.held, self.misses = False, 0
        return lost

    def draft(self, limit: int) -> Draft | None:
        """The draft that promises most; at most `limit` and `k` tokens.

        Main lines come first: until it branches off, a candidate says the same. Prompt lookup comes last.
        """
        limit, pos = min(limit, self.k), len(self.committed)
        best: Draft | None = None
        for main in (True, False):
            for name, line in self.lines.items():
                if line.main is main and (tokens := line.tape.peek(pos, limit)):
                    draft = Draft(tokens, line.survival.chances(len(tokens)), name)
                    if best is None or expected(draft.chances) > expected(best.chances):
                        best = draft
            if best is not None:
                return best
        if limit > 0 and (guess := self.lookup.guess(limit)):
            best = Draft(guess, self.guesser.chances(len(guess)), LOOKUP)
        return best

    def outlook(self, draft: Draft | None, limit: int, now: float) -> Outlook:
        """What is there and what may be waited for.

        Args:
            draft: what `draft` gave.
            limit: most draft tokens that the request may still take.
            now: monotonic seconds.
        """
        chances = draft.chances if draft else ()
        limit = min(limit, self.k)
        if self.committed_at is None or self.wait_s <= 0 or len(self.committed) < self._retry_at:
            return Outlook(now=chances)
        patience = self.committed_at + self.wait_s - now
        drafting = self.lines.get(draft.source) if draft else None
        asked = [drafting] if drafting is not None and drafting.main else self.lines.values()
        due = [(first_in, line) for line in asked if (first_in := line.first_in(now)) is not None]
        if not due or patience <= 0:
            return Outlook(now=chances)
        first_in, line = min(due, key=lambda pair: pair[0])
        have = len(line.tape.peek(len(self.committed), limit))
        if have >= limit:
            return Outlook(now=chances)
        return Outlook(
            now=chances,
            later=line.survival.chances(limit),
            have=have,
            first_in=max(first_in, 1e-4),
            spacing=line.responses.spacing,
            patience=patience,
        )

    def hold_over(self) -> bool:
        """Ends a hold; true if nothing came in it."""
        missed, self.held = self.held, False
        if missed:
            self.misses += 1
            beyond = self.misses - MISSES_UNTIL_NO_HOLD
            if beyond >= 0:
                self._retry_at = len(self.committed) + RETRY_AFTER * 2 ** min(beyond, RETRY_DOUBLINGS)
        return missed

    def commit(self, pos: int, tokens: Sequence[int], draft: Sequence[int], source: str | None, now: float) -> Verdict:
        """Moves past a step's tokens.

        Every line is compared with them, whoever drafted: what a source is worth is known without verifying it.

        Args:
            pos: position of `tokens[0]`.
            tokens: what the step committed, after stopping rules cut it.
            draft: tokens that the step checked. The tape may have been written to since they were taken from it.
            source: tape they came from, or `LOOKUP`.
            now: monotonic seconds.
        """
        guess = self.lookup.guess(len(tokens))
        baseline = agreement(guess, tokens)
        if guess:
            self.guesser.observe(baseline, mismatch=baseline < len(guess))
        self.lookup.extend(tokens)
        drafter = self.lines.get(source) if source is not None else None
        epoch = drafter.tape.epoch if drafter else -1
        for line in self.lines.values():
            line.commit(pos, tokens, now)
        accepted = agreement(draft, tokens)
        if accepted:
            self.misses = self._retry_at = 0
        self.committed_at, self.held = now, False
        return Verdict(accepted=accepted, baseline=baseline, epoch=epoch)
