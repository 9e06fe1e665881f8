"""What payouts need: the ledger, a store, rails. Every adapter passes the same tests (tests/cloud/api/payouts)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cloud.api.accounts.money import Nano
from cloud.api.payouts.payout import Move, Payout, PayoutId, State
from shared.errors import Conflict
from shared.ids import AccountId

Transaction = Any
"""The transaction that a ledger posts in: an `AsyncConnection`, or none for stores that keep nothing on disk."""


@dataclass(frozen=True, slots=True)
class Balance:
    """An owner's money. Nothing of it ever vanishes: each is a sum of the ledger's postings."""

    pending: Nano
    """Earned, within the hold period."""
    payable: Nano
    paying: Nano
    """Asked for, and not yet arrived."""
    paid: Nano


class InsufficientFunds(Conflict):
    """The owner asks for more than is payable."""


class PayoutLedger(Protocol):
    """The part of the ledger that payouts move. The ledger itself implements it."""

    async def move(self, transaction: Transaction, move: Move, payout: Payout, at: int) -> None:
        """Post, in `transaction`:

        - `PAYOUT_ASKED`: payable → paying. Raises `InsufficientFunds` when there is less payable than asked for.
        - `PAYOUT_SENT`: paying → paid, when it is known to have arrived.
        - `PAYOUT_FAILED`: paying → payable.

        Each at most once for a payout, by the key `move_key`: a second time changes nothing.
        """
        ...

    async def balance(self, owner: AccountId) -> Balance: ...


def move_key(move: Move, payout: PayoutId) -> str:
    """The idempotency key of a movement."""
    return f"{move}:{payout}"


Change = Callable[[Payout], Payout]


class PayoutStore(Protocol):
    """Keeps payouts. When the state of one changes, `PayoutLedger.move` is told in the same transaction."""

    async def add(self, payout: Payout) -> Payout:
        """Raises `InsufficientFunds`."""
        ...

    async def change(self, id: PayoutId, change: Change, at: int) -> Payout:
        """Read, `change` and write in one transaction, one at a time. Raises `NotFound`, and whatever `change` does."""
        ...

    async def change_all(self, ids: Sequence[PayoutId], change: Change, at: int) -> Sequence[Payout]:
        """As `change` for several: all or none."""
        ...

    async def get(self, id: PayoutId) -> Payout:
        """Raises `NotFound`."""
        ...

    async def find(
        self, *, owner: AccountId | None = None, state: State | None = None, batch: str | None = None, limit: int = 1000
    ) -> Sequence[Payout]:
        """Newest first."""
        ...

    async def due(self, now: int, limit: int) -> Sequence[Payout]:
        """Payouts whose errand is due, longest first."""
        ...

    async def unsettled(self, rail: str, limit: int) -> Sequence[Payout]:
        """Sent ones of which the rail has not said whether they arrived, longest first."""
        ...

    async def balance(self, owner: AccountId) -> Balance: ...

    async def destination(self, owner: AccountId, rail: str) -> str | None: ...

    async def set_destination(self, owner: AccountId, rail: str, destination: str, at: int) -> None: ...

    async def seen(self, event: str) -> bool:
        """Whether a rail's event of this name was dealt with before."""
        ...

    async def note_event(self, event: str, at: int) -> None:
        """It has been dealt with."""
        ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """The rail has the payment. `arrived`: and it needs nothing more."""

    reference: str
    arrived: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The rail will never make this payment, and has not."""

    reason: str


@dataclass(frozen=True, slots=True)
class Delayed:
    """The rail has not made the payment, for a reason that passes or that operators can mend."""

    trouble: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows whether the payment was made: no answer, or none that says."""

    trouble: str


Outcome = Accepted | Refused | Delayed | Unknown


class Rail(Protocol):
    """A service that pays. The same `payout.idempotency_key` never pays twice."""

    name: str

    async def send(self, payout: Payout, *, again: bool) -> Outcome:
        """`again`: an earlier try may have paid, so it looks for that first."""
        ...

    async def look(self, payout: Payout) -> Accepted | Refused | Unknown:
        """What has become of a payment that the rail accepted. `Refused`: it came back."""
        ...
