"""Bodies of requests about owners' money, and how payouts, receipts and disputes are shown; dollars are text."""

from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from cloud.api.accounts.money import dollars
from cloud.api.payouts.destinations import NAME_MAX, BankAccount
from cloud.api.payouts.disputes import TEXT_MAX, Dispute, Side
from cloud.api.payouts.payout import Payout
from cloud.api.payouts.ports import Balance
from cloud.api.payouts.receipt_store import PublicKey
from shared.receipts import SignedReceipt, SignedStatement, to_line

Words = Annotated[str, Field(min_length=1, max_length=TEXT_MAX - 60)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PayoutInput(_Body):
    """How much is to be paid out; without `amount` all that is payable."""

    amount: Annotated[str, Field(max_length=30)] | None = None


class DestinationInput(_Body):
    """The bank account to pay to."""

    name: Annotated[str, Field(min_length=1, max_length=NAME_MAX)]
    iban: Annotated[str, Field(min_length=15, max_length=42)]
    bic: Annotated[str, Field(max_length=11)] = ""


class TariffInput(_Body):
    """What a kilowatt-hour costs."""

    dollars_per_kwh: Annotated[str, Field(max_length=30)]


class ReasonInput(_Body):
    """Why, in words that the owner will read."""

    reason: Words


class ResultsInput(_Body):
    """The bank's results, as a CSV file's text."""

    csv: Annotated[str, Field(max_length=1 << 20)]


class DisputeInput(_Body):
    """What is said to be wrong, and with whose money."""

    account: Annotated[str, Field(min_length=1, max_length=40)]
    side: Side
    claim: Words
    request_id: Annotated[str, Field(min_length=1, max_length=60)] | None = None


class DecisionInput(_Body):
    """`amount` goes to the account, or is taken when it begins with a minus; without it the dispute is rejected."""

    reason: Words
    amount: Annotated[str, Field(max_length=30)] | None = None


def balance_object(balance: Balance) -> dict[str, Any]:
    return {
        "pending": dollars(balance.pending),
        "payable": dollars(balance.payable),
        "paying": dollars(balance.paying),
        "paid": dollars(balance.paid),
    }


def payout_object(payout: Payout) -> dict[str, Any]:
    """As its owner sees it."""
    return {
        "id": payout.id,
        "object": "payout",
        "amount": dollars(payout.amount),
        "rail": payout.rail,
        "destination": destination_text(payout.rail, payout.destination),
        "state": payout.state,
        "asked_at": payout.asked_at,
        "approved_at": payout.approved_at,
        "sent_at": payout.sent_at,
        "ended_at": payout.ended_at,
        "reference": payout.reference,
        "reason": payout.reason,
    }


def admin_payout_object(payout: Payout) -> dict[str, Any]:
    """As operators see it: with people, and what a rail has said."""
    errand = payout.errand
    return {
        **payout_object(payout),
        "owner": payout.owner,
        "reviewed_by": payout.reviewed_by,
        "approved_by": payout.approved_by,
        "batch": payout.batch,
        "tries": errand.tries if errand is not None else 0,
        "in_doubt": errand is not None and errand.in_doubt,
        "trouble": (errand.trouble or None) if errand is not None else None,
    }


def destination_text(rail: str, destination: str) -> str:
    """For somebody who knows it: a bank account is masked."""
    return BankAccount.from_text(destination).masked() if rail == "manual" else destination


def dispute_object(dispute: Dispute) -> dict[str, Any]:
    return {
        "id": dispute.id,
        "object": "dispute",
        "account": dispute.account,
        "side": dispute.side,
        "request_id": dispute.request_id,
        "claim": dispute.claim,
        "state": dispute.state,
        "opened_by": dispute.opened_by,
        "opened_at": dispute.opened_at,
        "resolved_by": dispute.resolved_by,
        "resolved_at": dispute.resolved_at,
        "reason": dispute.reason,
        "amount": None if dispute.amount is None else dollars(dispute.amount),
        "event": dispute.event_id,
    }


def receipt_object(entry: SignedReceipt | SignedStatement) -> dict[str, Any]:
    """As a line of a file of receipts."""
    return msgspec.json.decode(to_line(entry), type=dict[str, Any])


def key_object(key: PublicKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "object": "receipt_key",
        "public": key.public.hex(),
        "since": key.since,
        "until": key.until,
    }
