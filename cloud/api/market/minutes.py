"""A minute of the market as it is written down: each model's price, and for each node what it did and why not more."""

from dataclasses import dataclass, field

from cloud.api.accounts.money import Nano, Pico
from cloud.api.market.reasons import WORDS
from cloud.api.market.reputation import Quarantine, Standing
from shared.ids import AccountId, ModelName, NodeId
from shared.wire.messages import DemandReason

MINUTE_S = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotMinute:
    """A model's price in a minute; `minute` in seconds since 1970. `version` is what node shares name."""

    model: ModelName
    minute: int
    version: str
    price: Pico
    value: Pico
    setter: NodeId | None
    """Whose ask it was; none = the value was the price."""
    nodes: int
    demand: int
    rates_version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeMinute:
    """What a node came to in a minute, tokens as the verifier counted them, and why it was not more, for its owner."""

    node: NodeId
    owner: AccountId | None
    minute: int
    reason: DemandReason
    words: str
    streams: int
    """Most at once."""
    drafted: int
    accepted: int
    marginal: int
    earned: Nano
    """Of requests that were settled in this minute, after the payout bound."""
    millijoules: int | None
    """By the node's own counter."""


@dataclass(frozen=True, slots=True)
class MinuteReport:
    """All that is to be stored of a minute."""

    minute: int
    gateway: str
    spots: tuple[SpotMinute, ...] = ()
    nodes: tuple[NodeMinute, ...] = ()
    standings: tuple[Standing, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()


@dataclass(slots=True)
class Tally:
    """A node's minute while it runs."""

    owner: AccountId | None = None
    reason: DemandReason = DemandReason.NO_DEMAND
    """Why not more."""
    words: str = ""
    streams: int = 0
    drafted: int = 0
    accepted: int = 0
    marginal: int = 0
    """Balance: steps in which prompt lookup would have done better count against it."""
    earned: Nano = field(default=Nano(0))
    joules: float | None = None

    def explain(self, reason: DemandReason, words: str) -> None:
        """What holds now. A minute in which the node had work, once, says so."""
        if self.reason is not DemandReason.SERVING:
            self.reason, self.words = reason, words

    def row(self, node: NodeId, owner: AccountId | None, minute: int) -> NodeMinute:
        return NodeMinute(
            node=node,
            owner=owner,
            minute=minute,
            reason=self.reason,
            words=self.words or WORDS[self.reason],
            streams=self.streams,
            drafted=self.drafted,
            accepted=self.accepted,
            marginal=max(self.marginal, 0),
            earned=self.earned,
            millijoules=None if self.joules is None else round(self.joules * 1_000),
        )
