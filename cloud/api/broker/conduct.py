"""What a node's key has earned: evidence about its drafts, budgets for what costs others, refusals that grow longer.

A node may send whatever the protocol allows; no token of an answer can change by it, only time be wasted. So nothing
here asks whether a node means harm. Its drafts are compared with what the target chose, and its messages are counted:

- a node whose drafts are seldom right, or late, comes last (`Record.acceptance`, `Node.poor`), and is told so;
- one whose drafts are all but never right, by a margin that chance does not explain, is refused for a time;
- so is one that uses a budget up: invalid drafts, drafts beyond those asked for, pauses, connections.

A record belongs to the node's key and outlives its connections. A new key begins anew: what it can waste before it is
measured is bounded by the same budgets, and by the verifier, which takes no long draft from a stranger.
"""

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from cloud.api.broker.budget import Budget
from cloud.api.broker.settings import BrokerSettings
from shared.ids import NodeId

MARGIN = 3.0
"""Standard deviations between a measured share and the bound that is used: chance alone crosses it once in 700."""


def upper_bound(hits: float, trials: float, margin: float = MARGIN) -> float:
    """Upper end of Wilson's score interval for a share of which `hits` of `trials` were seen; 1 without trials."""
    if trials <= 0:
        return 1.0
    share, square = hits / trials, margin * margin
    spread = margin * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    return (share + square / (2 * trials) + spread) / (1 + square / trials)


@dataclass(slots=True)
class Record:
    """One key's record. Times are monotonic seconds given by the caller.

    A trial is a drafted token that was compared with the target's, all before it having been right: what follows
    the first mismatch says nothing.
    """

    settings: BrokerSettings
    seen: float
    """When the node was last connected."""
    faults: Budget = field(init=False)
    excess: Budget = field(init=False)
    pauses: Budget = field(init=False)
    joins: Budget = field(init=False)
    refused_until: float = -math.inf
    refusals: int = 0
    why: str = ""
    """Why the node was refused last, in words for its owner."""
    _hits: float = 0.0
    _misses: float = 0.0
    _agreed: float = 0.0
    _trials: float = 0.0
    _aged: float = field(init=False)

    def __post_init__(self) -> None:
        self._aged = self.seen
        self._fill()

    def _fill(self) -> None:
        settings = self.settings
        # One fewer than the bound: the event that reaches it is refused.
        self.faults = Budget(settings.max_faults - 1, 1 / settings.fault_forgiven_s)
        self.excess = Budget(settings.max_excess - 1, 1 / settings.excess_forgiven_s)
        self.pauses = Budget(settings.max_pauses - 1, 1 / settings.pause_forgiven_s)
        self.joins = Budget(settings.max_joins - 1, 1 / settings.join_forgiven_s)

    # --- evidence ------------------------------------------------------------------------------

    def compared(self, agreed: int, *, missed: bool, counts: bool, now: float) -> None:
        """`agreed` drafted tokens were the target's, and then one was not if `missed`; whether the miss `counts` for
        a refusal: those of one stream do only up to a bound, since one odd stream must not decide."""
        self.age(now)
        keep = self.settings.posterior_decay
        self._hits = self._hits * keep + agreed
        self._misses = self._misses * keep + missed
        self._agreed += agreed
        self._trials += agreed + (missed and counts)

    def age(self, now: float) -> None:
        """Old evidence loses half its weight every `evidence_half_life_s`: an owner may have mended the node."""
        keep = 0.5 ** (max(now - self._aged, 0.0) / self.settings.evidence_half_life_s)
        self._aged = max(now, self._aged)
        self._hits *= keep
        self._misses *= keep
        self._agreed *= keep
        self._trials *= keep

    @property
    def acceptance(self) -> float:
        """Posterior mean of the probability that a token is accepted, given that those before it were."""
        hits = self._hits + self.settings.prior_accepted
        return hits / (hits + self._misses + self.settings.prior_rejected)

    @property
    def low_acceptance(self) -> bool:
        """Measured enough, and below the floor."""
        enough = self._hits + self._misses >= self.settings.acceptance_min_checked
        return enough and self.acceptance < self.settings.acceptance_floor

    def worthless(self, now: float) -> bool:
        """Drafts that are all but never right: even by a generous bound below what any draft model reaches."""
        self.age(now)
        settings = self.settings
        enough = self._trials >= settings.refusal_min_checked
        return enough and upper_bound(self._agreed, self._trials) < settings.refusal_floor

    def shares(self) -> str:
        """The long-run evidence in words."""
        return f"{self._agreed:.0f} of the last {self._trials:.0f} of its drafted tokens that were checked"

    # --- refusals ------------------------------------------------------------------------------

    def refuse(self, why: str, now: float) -> str:
        """The node is refused from now on, each time for longer. Gives the words for its owner.

        What led to it is forgotten: when the time is over, the node begins anew.
        """
        settings = self.settings
        period = min(settings.refusal_s * 2.0 ** min(self.refusals, 60), settings.max_refusal_s)
        self.refusals += 1
        self.refused_until = now + period
        self.why = why
        self._hits = self._misses = self._agreed = self._trials = 0.0
        self._fill()
        return self.refusal(now)

    def refused(self, now: float) -> bool:
        return now < self.refused_until

    def refusal(self, now: float) -> str:
        """Why, for how much longer, and what to do."""
        left = _duration(self.refused_until - now)
        return f"{self.why} It may connect again in {left}; if nothing has changed by then, the time doubles."

    def restore(self, until: float, refusals: int, why: str) -> None:
        """A refusal of before this gateway started; a newer one stays."""
        if not self.refusals:
            self.refused_until, self.refusals, self.why = until, refusals, why

    @property
    def matters_until(self) -> float:
        """From then on the record is of no interest, unless the node connects again."""
        return max(self.seen, self.refused_until) + self.settings.record_s


class Records:
    """Those of all keys that are or were connected, with a bound on their number."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._records: dict[NodeId, Record] = {}

    def of(self, node: NodeId, now: float) -> Record:
        """The node's record, a new one at first; notes that the node is here."""
        record = self._records.setdefault(node, Record(self._settings, now))
        record.seen = now
        return record

    def __len__(self) -> int:
        return len(self._records)

    def restore(self, node: NodeId, until: float, refusals: int, why: str, now: float) -> None:
        """Note a refusal that is known from before; times are monotonic seconds, and may lie before the start."""
        record = self._records.setdefault(node, Record(self._settings, min(until, now)))
        record.restore(until, refusals, why)

    def refusals(self) -> Iterator[tuple[NodeId, Record]]:
        """Records of nodes that were refused at some time."""
        return ((node, record) for node, record in self._records.items() if record.refusals)

    def forget(self, connected: Container[NodeId], now: float) -> None:
        """Drop those that matter no more, and the oldest beyond the bound, of nodes that are not connected."""
        away = sorted((record.matters_until, node) for node, record in self._records.items() if node not in connected)
        beyond = len(away) - self._settings.max_records
        for place, (until, node) in enumerate(away):
            if until < now or place < beyond:
                del self._records[node]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
