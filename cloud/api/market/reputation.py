"""How a node has done for one model, as measured: acceptance, response times, deadlines, promises; and its probation.

Nothing here is what a node says of itself. A node begins on probation: it drafts for streams that do not wait for it,
and its tokens have no price, so that a new key is never worth more than the one it replaces. What it has to prove is
tokens that prompt lookup would not have had, which a node without a model can't.

Refusals for a time (quarantine) are the broker's (`cloud.api.broker.conduct`); here is the form they are stored in.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cloud.api.market.pricebook import WHOLE
from cloud.api.market.settings import MarketSettings
from shared.ids import ModelName, NodeId

KEEP = 0.995
"""Weight that evidence keeps at each further verification."""
HALF_LIFE_S = 7 * 86_400
"""Time in which stored evidence loses half its weight."""
PRIOR_HITS, PRIOR_MISSES = 3.0, 1.0
SURE = 2.0
"""Standard deviations by which a node on probation must be above the bound: chance alone does it once in 40."""
FALLS = 0.75
"""Part of the bound under which a proven node is on probation again."""
WINDOW = 64
MILLI = 1_000


class Stage(StrEnum):
    PROBATION = "probation"
    PROVEN = "proven"


class Finding(StrEnum):
    """What the evidence says."""

    GOOD = "good"
    OPEN = "open"
    POOR = "poor"


ADVANCE: Final[dict[tuple[Stage, Finding], Stage]] = {
    (Stage.PROBATION, Finding.GOOD): Stage.PROVEN,
    (Stage.PROBATION, Finding.OPEN): Stage.PROBATION,
    (Stage.PROBATION, Finding.POOR): Stage.PROBATION,
    (Stage.PROVEN, Finding.GOOD): Stage.PROVEN,
    (Stage.PROVEN, Finding.OPEN): Stage.PROVEN,
    (Stage.PROVEN, Finding.POOR): Stage.PROBATION,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """A reputation as it is stored; integers, evidence in thousandths, times in seconds since 1970."""

    node: NodeId
    model: ModelName
    stage: Stage
    hits: int
    misses: int
    gain: int
    compared: int
    p50_ms: int | None
    p90_ms: int | None
    met: int
    missed: int
    kept: int
    broken: int
    drafted: int
    accepted: int
    marginal: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A node that is refused until `until`, in seconds since 1970; `why` in whole sentences for its owner."""

    node: NodeId
    until: int
    refusals: int
    why: str


@dataclass(slots=True)
class Reputation:
    """Of one node for one model; changed as evidence comes in."""

    settings: MarketSettings
    stage: Stage = Stage.PROBATION
    hits: float = 0.0
    """Compared tokens that the target chose too."""
    misses: float = 0.0
    gain: float = 0.0
    """Of the hits, those beyond prompt lookup's; less those that lookup alone would have had."""
    compared_tokens: int = 0
    """All of them, whenever it was."""
    met: int = 0
    """Steps that found a draft of the node."""
    missed: int = 0
    kept: int = 0
    """Streams that ended with the node still there, or handed back in order."""
    broken: int = 0
    """Streams that the node left without a word."""
    drafted: int = 0
    accepted: int = 0
    marginal: int = 0
    changed: bool = False
    """Since it was stored last."""
    _responses_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def compared(self, agreed: int, *, missed: bool, baseline: int) -> None:
        """`agreed` drafted tokens were the target's, and then one was not if `missed`; of as many tokens, prompt lookup
        would have had `baseline`."""
        trials = agreed + missed
        if not trials:
            return
        self.hits = self.hits * KEEP + agreed
        self.misses = self.misses * KEEP + missed
        self.gain = self.gain * KEEP + agreed - min(baseline, trials)
        self.compared_tokens += trials
        self.changed = True
        self.stage = ADVANCE[self.stage, self.finding]

    def verified(self, drafted: int, accepted: int, marginal: int) -> None:
        self.drafted += drafted
        self.accepted += accepted
        self.marginal += marginal
        self.changed = True

    def due(self, *, met: bool) -> None:
        """A step came, with a draft of the node or without."""
        self.met += met
        self.missed += not met
        self.changed = True

    def responded(self, response_ms: float) -> None:
        self._responses_ms.append(response_ms)

    def left(self, *, kept: bool) -> None:
        """A stream of the node ended. Pausing and draining keep the promise: an owner may always have the machine."""
        self.kept += kept
        self.broken += not kept
        self.changed = True

    # --- what it comes to ----------------------------------------------------------------------

    @property
    def acceptance(self) -> float:
        """Posterior mean of the probability that a token is accepted, given that those before it were."""
        return (self.hits + PRIOR_HITS) / (self.hits + self.misses + PRIOR_HITS + PRIOR_MISSES)

    @property
    def trials(self) -> float:
        return self.hits + self.misses

    @property
    def finding(self) -> Finding:
        least = self.settings.least_yield / WHOLE
        share = self.gain / self.trials if self.trials else 0.0
        if self.compared_tokens < self.settings.prove_tokens:
            return Finding.OPEN
        if lower_bound(self.gain, self.trials) >= least:
            return Finding.GOOD
        return Finding.POOR if share < least * FALLS else Finding.OPEN

    @property
    def reliability(self) -> float:
        """Posterior mean of the probability that the node is still there when its stream ends."""
        return (self.kept + 4.0) / (self.kept + self.broken + 4.0)

    def response_ms(self, quantile: float) -> float | None:
        """Nearest-rank quantile; none when nothing was measured."""
        if not self._responses_ms:
            return None
        ranked = sorted(self._responses_ms)
        return ranked[max(math.ceil(quantile * len(ranked)) - 1, 0)]

    # --- storing -------------------------------------------------------------------------------

    def standing(self, node: NodeId, model: ModelName, at: int) -> Standing:
        p50, p90 = self.response_ms(0.5), self.response_ms(0.9)
        return Standing(
            node=node,
            model=model,
            stage=self.stage,
            hits=round(self.hits * MILLI),
            misses=round(self.misses * MILLI),
            gain=round(self.gain * MILLI),
            compared=self.compared_tokens,
            p50_ms=None if p50 is None else round(p50),
            p90_ms=None if p90 is None else round(p90),
            met=self.met,
            missed=self.missed,
            kept=self.kept,
            broken=self.broken,
            drafted=self.drafted,
            accepted=self.accepted,
            marginal=self.marginal,
            updated_at=at,
        )

    @classmethod
    def restored(cls, settings: MarketSettings, standing: Standing, at: float) -> "Reputation":
        """As it was stored, its evidence faded by the time since."""
        keep = 0.5 ** (max(at - standing.updated_at, 0.0) / HALF_LIFE_S)
        reputation = cls(
            settings,
            stage=standing.stage,
            hits=standing.hits * keep / MILLI,
            misses=standing.misses * keep / MILLI,
            gain=standing.gain * keep / MILLI,
            compared_tokens=standing.compared,
            met=standing.met,
            missed=standing.missed,
            kept=standing.kept,
            broken=standing.broken,
            drafted=standing.drafted,
            accepted=standing.accepted,
            marginal=standing.marginal,
        )
        if standing.p50_ms is not None:
            reputation._responses_ms.extend([float(standing.p50_ms)] * 7)
            reputation._responses_ms.append(float(standing.p90_ms or standing.p50_ms))
        return reputation


def lower_bound(hits: float, trials: float, margin: float = SURE) -> float:
    """Lower end of Wilson's score interval for a share of which `hits` of `trials` were seen; 0 without any."""
    if trials <= 0 or hits <= 0:
        return 0.0
    share, square = min(hits / trials, 1.0), margin * margin
    spread = margin * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    return max((share + square / (2 * trials) - spread) / (1 + square / trials), 0.0)
