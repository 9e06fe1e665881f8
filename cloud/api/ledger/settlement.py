"""What a request came to, for its customer and for the nodes that drafted for it: what is settled, once."""

from dataclasses import dataclass

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.money import Nano, Pico
from shared.ids import AccountId, ModelName, NodeId


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeWork:
    """What one node did for one request, as the verifier counted it; tokens, positions absolute."""

    node: NodeId
    drafted: int
    """Compared with the target's choice."""
    accepted: int
    marginal: int
    """Accepted beyond what the verifier's own prompt lookup would have had accepted: what is paid for."""
    first: int
    """First position that was verified with this node's draft."""
    last: int
    """Last such position."""
    joules: float | None = None
    """As the node reported; shown and never paid by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeShare:
    """A node's part of a settlement."""

    work: NodeWork
    owner: AccountId
    price: Pico
    """Pico-dollars for one marginal token, of the spot price `price_version`."""
    price_version: str
    amount: Nano
    """After the payout bound: at most `price` × `work.marginal`, rounded down."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """One request, its usage named by `charge.request_id`: settled once, whoever tells of it and however often."""

    charge: Charge
    account: AccountId | None
    """Who pays; none for keys of the deployment itself, which are charged and never asked for money."""
    target: ModelName
    price_version: str
    """The version of the customer's price."""
    rates_version: str = ""
    """The version of the rates that bounded the shares."""
    shares: tuple[NodeShare, ...] = ()

    @property
    def paid_out(self) -> Nano:
        return Nano(sum(share.amount for share in self.shares))
