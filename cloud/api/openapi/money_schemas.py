"""Schemas of answers about earnings, receipts, payouts, usage, books and disputes."""

from typing import Any, get_args

from cloud.api.market.reputation import Stage
from cloud.api.payouts.chain import NodeClass
from cloud.api.payouts.disputes import Side
from cloud.api.payouts.disputes import State as DisputeState
from cloud.api.payouts.payout import State
from cloud.conformance.schemas.shapes import BOOLEAN, COUNT, STRING, Schema, array, choice, const, nullable, record, ref
from shared.wire.messages import DemandReason

_TIME: Schema = {"type": "integer", "description": "Unix time, seconds."}
_NUMBER: Schema = {"type": "integer"}
_DOLLARS: Schema = {"type": "string", "description": "Dollars, as a decimal number."}
_HEX: Schema = {"type": "string", "pattern": "^[0-9a-f]*$"}


def _told(schema: Schema, description: str) -> dict[str, Any]:
    return {**schema, "description": description}


def _list(of: str) -> Schema:
    return record({"object": const("list"), "data": array(ref(of))})


_DAY = _told(STRING, "Like 2026-11-30, UTC.")
_EARNED: dict[str, Schema] = {
    "amount": _told(_DOLLARS, "What the receipts come to, dollars."),
    "receipts": COUNT,
    "drafted": COUNT,
    "accepted": COUNT,
    "marginal": _told(COUNT, "Accepted tokens beyond prompt lookup: what is paid for."),
    "joules": nullable(_told(STRING, "By the nodes' own counters; null where none has one.")),
    "electricity": nullable(_told(_DOLLARS, "What that costs at the owner's tariff, dollars.")),
    "net": nullable(_told(_DOLLARS, "What is left, dollars.")),
}
_PAYOUT: dict[str, Schema] = {
    "id": STRING,
    "object": const("payout"),
    "amount": _DOLLARS,
    "rail": _told(STRING, "`manual`: by bank transfer; `stripe`."),
    "destination": _told(STRING, "A bank account is masked."),
    "state": choice(*map(str, State)),
    "asked_at": _TIME,
    "approved_at": nullable(_TIME),
    "sent_at": nullable(_TIME),
    "ended_at": nullable(_TIME),
    "reference": nullable(_told(STRING, "The bank's or Stripe's own name for the payment.")),
    "reason": nullable(_told(STRING, "Why it failed or was cancelled.")),
}
_RECEIPT: dict[str, Schema] = {
    "id": STRING,
    "key": _told(STRING, "Name of the key that signs it."),
    "owner": STRING,
    "sequence": COUNT,
    "previous": _told(_HEX, "SHA-256 of the owner's receipt before this one."),
    "kind": choice("work", "adjustment"),
    "node": STRING,
    "request": STRING,
    "model": STRING,
    "first": COUNT,
    "last": COUNT,
    "drafted": COUNT,
    "accepted": COUNT,
    "marginal": COUNT,
    "price": _told(COUNT, "Pico-dollars for a marginal token."),
    "price_version": STRING,
    "amount": _told(_NUMBER, "Nano-dollars."),
    "at": _TIME,
    "reason": STRING,
}
_STATEMENT: dict[str, Schema] = {
    "key": STRING,
    "owner": STRING,
    "count": _told(COUNT, "How many receipts there are."),
    "head": _told(_HEX, "SHA-256 of the last one."),
    "total": _told(_NUMBER, "Nano-dollars."),
    "at": _TIME,
}
_PRICE_VERSION: dict[str, Schema] = {
    "version": STRING,
    "model": STRING,
    "since": _TIME,
    "prompt": _told(_DOLLARS, "For one token, dollars."),
    "cached_prompt": _DOLLARS,
    "completion": _DOLLARS,
}

MONEY_SCHEMAS: dict[str, Schema] = {
    "Balance": record(
        {
            "pending": _told(_DOLLARS, "Earned, within the hold period."),
            "payable": _DOLLARS,
            "paying": _told(_DOLLARS, "Asked for, and not yet arrived."),
            "paid": _DOLLARS,
        }
    ),
    "Tariff": record(
        {
            "object": const("tariff"),
            "dollars_per_kwh": _DOLLARS,
            "assumed": _told(BOOLEAN, "The owner has not said, and the deployment's is taken."),
        }
    ),
    "DayEarnings": record({"day": _DAY, **_EARNED}),
    "NodeEarnings": record({"node": STRING, **_EARNED}),
    "Earnings": record(
        {
            "object": const("earnings"),
            "balance": ref("Balance"),
            "tariff": ref("Tariff"),
            "days": array(ref("DayEarnings")),
            "nodes": array(ref("NodeEarnings")),
        }
    ),
    "Receipt": record(_RECEIPT),
    "SignedReceipt": record({"receipt": ref("Receipt"), "digest": _HEX, "signature": _HEX}),
    "SignedStatement": record({"statement": record(_STATEMENT), "signature": _HEX}),
    "ReceiptList": record(
        {
            "object": const("list"),
            "data": array(ref("SignedReceipt")),
            "statement": ref("SignedStatement"),
            "has_more": BOOLEAN,
            "last": nullable(_told(COUNT, "What the next page is asked for with.")),
        }
    ),
    "ReceiptKey": record(
        {
            "name": STRING,
            "object": const("receipt_key"),
            "public": _told(_HEX, "Ed25519, 32 bytes."),
            "since": _TIME,
            "until": nullable(_told(_TIME, "When another key took its place.")),
        }
    ),
    "ReceiptKeyList": _list("ReceiptKey"),
    "NodeMinute": record(
        {
            "node": STRING,
            "minute": _told(_TIME, "When it began."),
            "reason": choice(*map(str, DemandReason)),
            "words": _told(STRING, "The reason in words."),
            "streams": COUNT,
            "drafted": COUNT,
            "accepted": COUNT,
            "marginal": COUNT,
            "earned": _DOLLARS,
            "joules": nullable(STRING),
        }
    ),
    "NodeMinuteList": _list("NodeMinute"),
    "Destination": record({"object": const("destination"), "rail": STRING, "destination": nullable(STRING)}),
    "Onboarding": record(
        {
            "object": const("onboarding"),
            "url": _told({"type": "string", "format": "uri"}, "Good once, and for some minutes."),
            "ready": _told(BOOLEAN, "Whether Stripe lets money go to the owner."),
        }
    ),
    "Payout": record(_PAYOUT),
    "PayoutList": _list("Payout"),
    "AdminPayout": record(
        {
            **_PAYOUT,
            "owner": STRING,
            "reviewed_by": nullable(_told(STRING, "The first operator.")),
            "approved_by": nullable(_told(STRING, "The second operator.")),
            "batch": nullable(STRING),
            "tries": COUNT,
            "in_doubt": _told(BOOLEAN, "A try has begun whose outcome is not known."),
            "trouble": nullable(_told(STRING, "What the last try met.")),
        }
    ),
    "AdminPayoutList": _list("AdminPayout"),
    "Batch": record({"object": const("batch"), "id": STRING, "payouts": array(ref("AdminPayout"))}),
    "UsageOfKey": record(
        {
            "day": _DAY,
            "key": STRING,
            "model": STRING,
            "requests": COUNT,
            "prompt_tokens": COUNT,
            "cached_tokens": COUNT,
            "completion_tokens": COUNT,
            "cost": _DOLLARS,
        }
    ),
    "UsageReport": record({"object": const("usage"), "cost": _DOLLARS, "data": array(ref("UsageOfKey"))}),
    "KeyBudget": record(
        {
            "key": STRING,
            "name": STRING,
            "monthly_budget": nullable(_DOLLARS),
            "spent_this_month": _DOLLARS,
            "left": nullable(_DOLLARS),
        }
    ),
    "Budgets": record(
        {
            "object": const("budgets"),
            "available": _told(_DOLLARS, "Prepaid and free to be used."),
            "reserved": _told(_DOLLARS, "Set aside for requests at work."),
            "keys": array(ref("KeyBudget")),
        }
    ),
    "PromptViewers": record(
        {
            "verifier": _told(BOOLEAN, "Always: it runs the model."),
            "nodes": array(
                record(
                    {
                        "class": _told(choice(*get_args(NodeClass)), "Yours, a vetted owner's, or anybody's."),
                        "count": COUNT,
                    }
                )
            ),
        }
    ),
    "RequestRecord": record(
        {
            "id": STRING,
            "object": const("request"),
            "created_at": _TIME,
            "key": STRING,
            "model": STRING,
            "outcome": STRING,
            "completion_tokens": COUNT,
            "accepted_draft_tokens": _told(COUNT, "Of the output tokens, those that a node had drafted."),
            "cost": _DOLLARS,
            "seen_by": ref("PromptViewers"),
        }
    ),
    "RequestRecordList": _list("RequestRecord"),
    "Books": record(
        {
            "object": const("books"),
            "reconciled": BOOLEAN,
            "problems": array(STRING),
            "events": COUNT,
            "postings": COUNT,
            "overdue_reservations": COUNT,
            "owed_by_customers": _DOLLARS,
            "sums": array(record({"place": STRING, "amount": _DOLLARS})),
        }
    ),
    "PriceVersion": record(_PRICE_VERSION),
    "RatesVersion": record(
        {
            "version": STRING,
            "since": _TIME,
            "payout_share_basis_points": COUNT,
            "hold_days": COUNT,
            "verifier_dollars_per_second": _DOLLARS,
            "tariff_dollars_per_kwh": _DOLLARS,
        }
    ),
    "Prices": record(
        {"object": const("prices"), "prices": array(ref("PriceVersion")), "rates": array(ref("RatesVersion"))}
    ),
    "Standing": record(
        {
            "node": STRING,
            "model": STRING,
            "stage": choice(*map(str, Stage)),
            "drafted": COUNT,
            "accepted": COUNT,
            "marginal": COUNT,
            "drafts_in_time": COUNT,
            "drafts_late": COUNT,
            "updated_at": _TIME,
            "quarantined_until": nullable(_TIME),
            "quarantine_reason": nullable(STRING),
            "earned_today": _told(_DOLLARS, "In the last 24 hours, dollars."),
        }
    ),
    "StandingList": _list("Standing"),
    "Dispute": record(
        {
            "id": STRING,
            "object": const("dispute"),
            "account": STRING,
            "side": choice(*get_args(Side)),
            "request_id": nullable(STRING),
            "claim": STRING,
            "state": choice(*map(str, DisputeState)),
            "opened_by": STRING,
            "opened_at": _TIME,
            "resolved_by": nullable(STRING),
            "resolved_at": nullable(_TIME),
            "reason": nullable(STRING),
            "amount": nullable(_told(_DOLLARS, "Of the adjustment, dollars; to the account's favour when positive.")),
            "event": nullable(_told(STRING, "The adjustment in the ledger.")),
        }
    ),
    "DisputeList": _list("Dispute"),
    "WebhookTaken": record({"received": BOOLEAN}),
}
