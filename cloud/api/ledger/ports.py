"""What the ledger needs from the books. Both adapters pass the same tests (tests/cloud/api/ledger)."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano
from cloud.api.ledger.audit import Audit
from cloud.api.ledger.events import Entry, Event, Kind
from cloud.api.ledger.places import Place
from cloud.api.ledger.posting import Posted, settle_key
from cloud.api.ledger.reservations import Reservation
from cloud.api.ledger.settlement import Settlement
from shared.ids import AccountId

C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """What a gateway tells the books in one transaction: reservations come first, then what ends them."""

    reservations: Sequence[Reservation] = ()
    settlements: Sequence[Settlement] = ()
    releases: Sequence[Reservation] = ()
    look_at: Sequence[AccountId] = ()
    """Accounts whose balance is asked for beside those that the batch concerns."""

    @property
    def customers(self) -> set[AccountId]:
        """Accounts that the batch concerns as customers."""
        known = {each.account for each in (*self.reservations, *self.releases)}
        return known | {each.account for each in self.settlements if each.account is not None} | set(self.look_at)

    @property
    def owners(self) -> set[AccountId]:
        """Accounts that the batch pays."""
        return {share.owner for settlement in self.settlements for share in settlement.shares}

    @property
    def requests(self) -> set[str]:
        told = {each.request_id for each in (*self.reservations, *self.releases)}
        return told | {each.charge.request_id for each in self.settlements}

    @property
    def keys(self) -> set[str]:
        """Of events that say whether something in the batch was told before, beside the reservations' own states."""
        told = {each.request_id for each in self.reservations}
        return {settle_key(request_id) for request_id in told | {s.charge.request_id for s in self.settlements}}


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch."""

    refused: frozenset[str] = frozenset()
    """Requests whose reservation was not made: the account has too little."""
    available: Mapping[AccountId, Nano] = field(default_factory=dict)
    """Of every account concerned, after the batch."""
    spending: Mapping[tuple[KeyId, str], Nano] = field(default_factory=dict)
    """New sums of the (key, month) pairs that were charged."""


class SettleHook(Protocol[C_contra]):
    """Writes more in the transaction of settlements, once for each. What it raises undoes the whole batch."""

    async def write(self, connection: C_contra, posted: Sequence[Posted]) -> None:
        """All of a batch; `connection` is the transaction's. Answers that moved no money and had no nodes are not among
        them.
        """
        ...


class Books(Protocol):
    """Every method may raise `shared.errors.Unavailable`; nothing was done then, or all of it: tell it again."""

    async def write(self, batch: Batch) -> Written:
        """Whatever was told before changes nothing."""
        ...

    async def post(self, entry: Entry) -> Event:
        """Write an entry; one that was written before is given as it is.

        Raises `NotCovered` when a place would go below zero, and `Conflict` when its key was used for something else.
        """
        ...

    async def renew(self, requests: Sequence[str], until: int) -> None:
        """Put off the expiry of what requests at work hold."""
        ...

    async def expire(self, limit: int) -> int:
        """Release reservations whose time is over, at most so many; how many there were."""
        ...

    async def mature(self, limit: int) -> int:
        """Make earnings payable whose hold is over, of at most so many owners and days; how many there were."""
        ...

    async def balances(self, accounts: Sequence[AccountId] | None = None) -> Mapping[Place, Nano]:
        """All places that were ever used, or those of some accounts."""
        ...

    async def events(
        self, *, account: AccountId | None = None, kind: Kind | None = None, limit: int = 100
    ) -> Sequence[Event]:
        """The latest, newest first."""
        ...

    def all_events(self) -> AsyncIterator[Event]:
        """Every event, oldest first. Those that are written meanwhile may come or not."""
        ...

    async def audit(self) -> Audit:
        """Compare everything that must agree, as it is at one moment."""
        ...
