"""How likely a draft's tokens are to be accepted: decayed posteriors per source of drafts and per stream."""

import math
from collections.abc import Sequence

DEPTH = 16
"""Places in a draft that are told apart; later ones are like the last."""
KEEP = 0.995
"""Weight that a source's evidence keeps at each further observation."""
STREAM_KEEP = 0.95
"""The same for one stream, whose text changes its character sooner."""
PLACE_WEIGHT = 16.0
"""Observations at one place that weigh as much as those of all places together."""
STREAM_WEIGHT = 8.0
"""Observations in one stream that weigh as much as those in all streams of the source."""
PRIOR_WEIGHT = 4.0
"""Observations that the prior is worth."""
NODE_PRIOR = 0.75
"""Acceptance assumed of a node before any is measured: it is a draft model made for the target."""
LOOKUP_PRIOR = 0.4
"""The same for prompt lookup, which is right in few kinds of text."""


def band(temperature: float) -> int:
    """Temperatures that are measured together: the hotter, the less two models agree."""
    return 0 if temperature < 1e-5 else 1 if temperature <= 0.5 else 2 if temperature <= 1.0 else 3


class Survival:
    """P(a token is accepted | those before it in the draft were), by its place in the draft, for one source.

    Beta posteriors: the source's mean is pulled to the prior, each place to the source's mean. Evidence is what agreed
    with the target and the first that did not; what follows a mismatch says nothing.
    """

    def __init__(self, prior: float = NODE_PRIOR) -> None:
        self._prior = prior
        self._hits = [0.0] * DEPTH
        self._misses = [0.0] * DEPTH
        self._hit = self._miss = 0.0
        self._odds: list[float] = []
        """Odds at each place, until the next observation."""

    def observe(self, accepted: int, *, mismatch: bool) -> None:
        """Takes in that so many leading tokens agreed, and whether the next one did not."""
        if not accepted and not mismatch:
            return
        self._odds.clear()
        self._hit = self._hit * KEEP + accepted
        self._miss = self._miss * KEEP + mismatch
        for place in range(min(accepted + mismatch, DEPTH)):
            hit = place < accepted
            self._hits[place] = self._hits[place] * KEEP + hit
            self._misses[place] = self._misses[place] * KEEP + (not hit)

    @property
    def mean(self) -> float:
        """Posterior mean over all places."""
        return (self._hit + PRIOR_WEIGHT * self._prior) / (self._hit + self._miss + PRIOR_WEIGHT)

    def rate(self, place: int) -> float:
        """Posterior mean at one place, which counts from 0."""
        place = min(place, DEPTH - 1)
        hits, misses = self._hits[place], self._misses[place]
        return (hits + PLACE_WEIGHT * self.mean) / (hits + misses + PLACE_WEIGHT)

    def odds(self) -> list[float]:
        """Odds of `rate` at each place."""
        if not self._odds:
            self._odds += [_odds(self.rate(place)) for place in range(DEPTH)]
        return self._odds


class StreamSurvival:
    """The same within one stream: its source's posterior, moved by how this stream's drafts have done."""

    def __init__(self, source: Survival) -> None:
        self._source = source
        self._hit = self._miss = 0.0

    def observe(self, accepted: int, *, mismatch: bool) -> None:
        """As `Survival.observe`, which is told as well."""
        self._source.observe(accepted, mismatch=mismatch)
        if accepted or mismatch:
            self._hit = self._hit * STREAM_KEEP + accepted
            self._miss = self._miss * STREAM_KEEP + mismatch

    def chances(self, count: int) -> list[float]:
        """Probability that each of the next `count` draft tokens is accepted, each with all before it."""
        mean = self._source.mean
        here = (self._hit + STREAM_WEIGHT * mean) / (self._hit + self._miss + STREAM_WEIGHT)
        shift = _odds(here) / _odds(mean)
        by_place = self._source.odds()
        chances, alive = [], 1.0
        for place in range(count):
            odds = by_place[min(place, DEPTH - 1)] * shift
            alive *= odds / (1.0 + odds)
            chances.append(alive)
        return chances


def expected(chances: Sequence[float]) -> float:
    """Expected number of accepted tokens."""
    return math.fsum(chances)


def _odds(probability: float) -> float:
    probability = min(max(probability, 1e-6), 1.0 - 1e-6)
    return probability / (1.0 - probability)
