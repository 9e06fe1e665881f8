"""The books' own accounts, by name. They are called places here, since an account is a person's or a company's."""

from enum import StrEnum
from typing import Final, NewType

from shared.ids import AccountId

Place = NewType("Place", str)
"""`customer:{account}:…`, `owner:{account}:…` or `house:…`."""


class Sort(StrEnum):
    """What a place is for. A positive balance of a customer's or an owner's place is theirs; the house has the rest."""

    AVAILABLE = "customer:available"
    """Prepaid and free to be used. The only place that can be below zero, by what was really used (docs/ledger.md)."""
    RESERVED = "customer:reserved"
    """Set aside for requests at work."""
    PENDING = "owner:pending"
    """Earned, and held for some days."""
    PAYABLE = "owner:payable"
    PAYING = "owner:paying"
    """Asked to be paid out, and not yet known to have arrived."""
    PAID = "owner:paid"
    REVENUE = "house:revenue"
    CASH = "house:cash"
    """Money that came in (negative) or was given back."""
    USE = "house:use"
    """What keys without an account have used."""
    ADJUSTMENTS = "house:adjustments"


HOUSE: Final = "house"
REVENUE: Final = Place(Sort.REVENUE.value)
CASH: Final = Place(Sort.CASH.value)
USE: Final = Place(Sort.USE.value)
ADJUSTMENTS: Final = Place(Sort.ADJUSTMENTS.value)


def available(account: AccountId) -> Place:
    return Place(f"customer:{account}:available")


def reserved(account: AccountId) -> Place:
    return Place(f"customer:{account}:reserved")


def pending(owner: AccountId) -> Place:
    return Place(f"owner:{owner}:pending")


def payable(owner: AccountId) -> Place:
    return Place(f"owner:{owner}:payable")


def paying(owner: AccountId) -> Place:
    return Place(f"owner:{owner}:paying")


def paid(owner: AccountId) -> Place:
    return Place(f"owner:{owner}:paid")


def of_account(account: AccountId) -> tuple[Place, ...]:
    """Every place that an account can have."""
    return tuple(make(account) for make in (available, reserved, pending, payable, paying, paid))


def sort_of(place: Place) -> Sort:
    """Raises `ValueError` for what is no place."""
    side, _, rest = place.partition(":")
    return Sort(place if side == HOUSE else f"{side}:{rest.partition(':')[2]}")


def account_of(place: Place) -> AccountId | None:
    """Whose it is; none for the house's."""
    side, _, rest = place.partition(":")
    return None if side == HOUSE else AccountId(rest.partition(":")[0])


def in_locking_order(place: Place) -> tuple[bool, str]:
    """Key for sorting. Whoever changes several balances takes them so: the house's, which all share, last."""
    return place.startswith(HOUSE), place
