"""The entries that people and payouts make, each with its key. Amounts are positive nano-dollars."""

from cloud.api.accounts.money import Nano
from cloud.api.ledger.events import Entry, EventId
from cloud.api.ledger.places import ADJUSTMENTS, CASH, Place, available, paid, payable, paying, pending
from shared.ids import AccountId


def moved(amount: Nano, source: Place, target: Place) -> dict[Place, Nano]:
    """The postings that carry `amount` from one place to another."""
    return {source: Nano(-amount), target: amount}


def top_up(account: AccountId, amount: Nano, reference: str, *, actor: str = "") -> Entry:
    """A customer has paid; `reference` is the payment's own name, so that it counts once."""
    postings = moved(amount, CASH, available(account))
    return Entry(key=f"top_up:{reference}", kind="top_up", postings=postings, actor=actor)


def refund(account: AccountId, amount: Nano, reference: str, *, reason: str, actor: str = "") -> Entry:
    """Prepaid money is given back."""
    postings = moved(amount, available(account), CASH)
    return Entry(key=f"adjustment:{reference}", kind="adjustment", postings=postings, reason=reason, actor=actor)


def adjustment(place: Place, amount: Nano, reference: str, *, reason: str, actor: str = "") -> Entry:
    """A correction by hand: the house gives `amount` to a place, or takes it when it is negative."""
    postings = moved(amount, ADJUSTMENTS, place)
    return Entry(key=f"adjustment:{reference}", kind="adjustment", postings=postings, reason=reason, actor=actor)


def mature(owner: AccountId, amount: Nano, name: EventId) -> Entry:
    """Earnings whose hold is over. That they mature once lies in the rows of `maturing`, not in the key."""
    return Entry(key=f"mature:{name}", kind="mature", postings=moved(amount, pending(owner), payable(owner)))


def payout_asked(owner: AccountId, amount: Nano, payout: str, *, actor: str = "") -> Entry:
    postings = moved(amount, payable(owner), paying(owner))
    return Entry(key=f"payout_asked:{payout}", kind="payout_asked", postings=postings, actor=actor)


def payout_sent(owner: AccountId, amount: Nano, payout: str, *, actor: str = "") -> Entry:
    postings = moved(amount, paying(owner), paid(owner))
    return Entry(key=f"payout_sent:{payout}", kind="payout_sent", postings=postings, actor=actor)


def payout_failed(owner: AccountId, amount: Nano, payout: str, *, reason: str = "", actor: str = "") -> Entry:
    """The money did not go, and is payable again."""
    postings = moved(amount, paying(owner), payable(owner))
    key = f"payout_failed:{payout}"
    return Entry(key=key, kind="payout_failed", postings=postings, reason=reason, actor=actor)
