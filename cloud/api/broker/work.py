"""What one node did for one request, summed as the verifier tells it, and the price that was promised for it."""

from dataclasses import dataclass

from cloud.api.accounts.money import Pico
from cloud.api.ledger.settlement import NodeWork
from cloud.api.market.bound import UNPAID, Claim
from shared.ids import AccountId, NodeId

NO_PRICE = Pico(0)


@dataclass(slots=True)
class Work:
    """Kept by the request, so that a node which is gone when its draft is verified is paid for it all the same."""

    node: NodeId
    owner: AccountId | None = None
    price: Pico = NO_PRICE
    """Pico-dollars for a marginal token, of the minute in which the node was given its first stream of the request."""
    price_version: str = UNPAID
    drafted: int = 0
    accepted: int = 0
    balance: int = 0
    """Accepted tokens less those that prompt lookup would have had accepted from a draft as long."""
    first: int | None = None
    last: int = 0
    sent: int = 0
    """Draft tokens that the node sent, checked or not: what its energy went into."""

    def verified(self, pos: int, tokens: int, drafted: int, accepted: int, baseline: int) -> int:
        """A step checked `drafted` of the node's tokens from `pos` on and committed `tokens`. Gives the change of the
        balance, which is negative where prompt lookup would have done better."""
        self.drafted += drafted
        self.accepted += accepted
        change = accepted - min(baseline, drafted)
        self.balance += change
        self.first = pos if self.first is None else min(self.first, pos)
        self.last = max(self.last, pos + min(drafted, tokens) - 1)
        return change

    def claim(self, joules_per_token: float | None) -> Claim:
        work = NodeWork(
            node=self.node,
            drafted=self.drafted,
            accepted=self.accepted,
            marginal=max(self.balance, 0),
            first=self.first or 0,
            last=self.last,
            joules=None if joules_per_token is None else joules_per_token * self.sent,
        )
        return Claim(work, self.owner, self.price, self.price_version)
