"""Examples of requests and answers about earnings, receipts, payouts, usage, books and disputes."""

from typing import Any

Json = dict[str, Any]
_OWNER, _NODE, _KEY = "acct_0123456789abcdef", "0f" * 16, "rk_56475aa75463474c"
_DIGEST = "60acd372c195cf0d0f5e27cef5e2f4f5f82b4a40a0c0a4cc63617a34e4f66a45"
_BALANCE: Json = {"pending": "1.20", "payable": "34.567", "paying": "20", "paid": "80"}
_EARNED: Json = {
    "amount": "1.2",
    "receipts": 400,
    "drafted": 32000,
    "accepted": 21000,
    "marginal": 16000,
    "joules": "16800",
    "electricity": "0.0007",
    "net": "1.1993",
}
_PAYOUT: Json = {
    "id": "pay_0123456789abcdef",
    "object": "payout",
    "amount": "20",
    "rail": "manual",
    "destination": "Alice Example, DE89…3000",
    "state": "asked",
    "asked_at": 1796000000,
    "approved_at": None,
    "sent_at": None,
    "ended_at": None,
    "reference": None,
    "reason": None,
}
_ADMIN_PAYOUT: Json = {
    **_PAYOUT,
    "owner": _OWNER,
    "reviewed_by": "acct_00000000000000a1",
    "approved_by": None,
    "batch": None,
    "tries": 0,
    "in_doubt": False,
    "trouble": None,
}
_SENT: Json = {
    **_ADMIN_PAYOUT,
    "state": "sent",
    "approved_by": "acct_00000000000000b1",
    "approved_at": 1796000100,
    "sent_at": 1796000200,
    "batch": "batch_0123456789abcdef",
    "reference": "batch_0123456789abcdef",
}
_RECEIPT: Json = {
    "receipt": {
        "id": "rcpt_0000000000000001",
        "key": _KEY,
        "owner": _OWNER,
        "sequence": 1,
        "previous": "00" * 32,
        "kind": "work",
        "node": _NODE,
        "request": "req_1",
        "model": "qwen2.5-coder-1.5b",
        "first": 100,
        "last": 180,
        "drafted": 80,
        "accepted": 60,
        "marginal": 50,
        "price": 120000,
        "price_version": "spot-1",
        "amount": 6000,
        "at": 1796000001,
        "reason": "",
    },
    "digest": _DIGEST,
    "signature": "45c99f09…".replace("…", "00"),
}
_DISPUTE: Json = {
    "id": "dsp_0123456789abcdef",
    "object": "dispute",
    "account": _OWNER,
    "side": "owner",
    "request_id": "req_1",
    "claim": "Fewer tokens were counted than the node's log shows.",
    "state": "open",
    "opened_by": "acct_00000000000000a1",
    "opened_at": 1796000000,
    "resolved_by": None,
    "resolved_at": None,
    "reason": None,
    "amount": None,
    "event": None,
}
_DECIDED: Json = {
    **_DISPUTE,
    "state": "resolved",
    "resolved_by": "acct_00000000000000b1",
    "resolved_at": 1796000500,
    "reason": "A verifier restarted in mid-request.",
    "amount": "0.00001",
    "event": "evt_0123",
}
_REQUEST: Json = {
    "id": "req_1",
    "object": "request",
    "created_at": 1796000000,
    "key": "key_3f2a",
    "model": "qwen2.5-coder-1.5b",
    "outcome": "answered",
    "completion_tokens": 120,
    "accepted_draft_tokens": 71,
    "cost": "0.00006",
    "seen_by": {"verifier": True, "nodes": [{"class": "any", "count": 2}]},
}


def _one(value: Json) -> dict[str, Json]:
    return {"example": {"value": value}}


def _asked(summary: str, value: Json) -> dict[str, Json]:
    return {"example": {"summary": summary, "value": value}}


def _listed(*entries: Json, **more: Any) -> dict[str, Json]:
    return _one({"object": "list", "data": [*entries], **more})


EARNINGS = _one(
    {
        "object": "earnings",
        "balance": _BALANCE,
        "tariff": {"object": "tariff", "dollars_per_kwh": "0.15", "assumed": True},
        "days": [{"day": "2026-11-30", **_EARNED}],
        "nodes": [{"node": _NODE, **_EARNED}],
    }
)
RECEIPTS = _listed(
    _RECEIPT,
    statement={
        "statement": {
            "key": _KEY,
            "owner": _OWNER,
            "count": 1,
            "head": _DIGEST,
            "total": 6000,
            "at": 1796100000,
        },
        "signature": "00ff",
    },
    has_more=False,
    last=None,
)
RECEIPT_KEYS = _listed({"name": _KEY, "object": "receipt_key", "public": "0f" * 32, "since": 1790000000, "until": None})
ACTIVITY = _listed(
    {
        "node": _NODE,
        "minute": 1796000040,
        "reason": "ask_too_high",
        "words": "The node asks $0.20 per million tokens; the market pays $0.12 per million tokens. Ask less to be "
        "given streams.",
        "streams": 0,
        "drafted": 0,
        "accepted": 0,
        "marginal": 0,
        "earned": "0",
        "joules": None,
    }
)
TARIFF_REQUESTS = _asked("Thirty cents", {"dollars_per_kwh": "0.30"})
TARIFFS = _one({"object": "tariff", "dollars_per_kwh": "0.3", "assumed": False})
DESTINATION_REQUESTS = _asked("A bank account", {"name": "Alice Example", "iban": "DE89 3704 0044 0532 0130 00"})
DESTINATIONS = _one({"object": "destination", "rail": "manual", "destination": "Alice Example, DE89…3000"})
ONBOARDINGS = _one({"object": "onboarding", "url": "https://connect.stripe.com/setup/e/acct_1/x", "ready": False})
PAYOUT_REQUESTS = {
    "all": {"summary": "Everything that is payable", "value": {}},
    "some": {"summary": "Twenty dollars", "value": {"amount": "20"}},
}
PAYOUTS = _one(_PAYOUT)
PAYOUT_LISTS = _listed(_PAYOUT)
WITHDRAWN = _one({**_PAYOUT, "state": "cancelled", "ended_at": 1796000050, "reason": "Withdrawn by its owner."})
USAGES = _one(
    {
        "object": "usage",
        "cost": "0.0125",
        "data": [
            {
                "day": "2026-11-30",
                "key": "key_3f2a",
                "model": "qwen2.5-coder-1.5b",
                "requests": 210,
                "prompt_tokens": 40000,
                "cached_tokens": 9000,
                "completion_tokens": 25000,
                "cost": "0.0125",
            }
        ],
    }
)
BUDGETS = _one(
    {
        "object": "budgets",
        "available": "24.1",
        "reserved": "0.002",
        "keys": [
            {
                "key": "key_3f2a",
                "name": "my laptop",
                "monthly_budget": "12.5",
                "spent_this_month": "0.25",
                "left": "12.25",
            }
        ],
    }
)
REQUESTS = _one(_REQUEST)
REQUEST_LISTS = _listed(_REQUEST)
BOOKS = _one(
    {
        "object": "books",
        "reconciled": True,
        "problems": [],
        "events": 2,
        "postings": 5,
        "overdue_reservations": 0,
        "owed_by_customers": "0",
        "sums": [
            {"place": "customer:available", "amount": "9.4"},
            {"place": "house:cash", "amount": "-10"},
            {"place": "house:revenue", "amount": "0.24"},
            {"place": "owner:pending", "amount": "0.36"},
        ],
    }
)
PRICES = _one(
    {
        "object": "prices",
        "prices": [
            {
                "version": "settings-0123456789ab",
                "model": "qwen2.5-coder-1.5b",
                "since": 0,
                "prompt": "0.0000001",
                "cached_prompt": "0.00000005",
                "completion": "0.0000005",
            }
        ],
        "rates": [
            {
                "version": "settings-ba9876543210",
                "since": 0,
                "payout_share_basis_points": 6000,
                "hold_days": 7,
                "verifier_dollars_per_second": "0.0024",
                "tariff_dollars_per_kwh": "0.15",
            }
        ],
    }
)
STANDINGS = _listed(
    {
        "node": _NODE,
        "model": "qwen2.5-coder-1.5b",
        "stage": "proven",
        "drafted": 910000,
        "accepted": 640000,
        "marginal": 500000,
        "drafts_in_time": 39000,
        "drafts_late": 1000,
        "updated_at": 1796000000,
        "quarantined_until": None,
        "quarantine_reason": None,
        "earned_today": "1.2",
    }
)
DISPUTE_REQUESTS = _asked(
    "About an owner's money",
    {
        "account": _OWNER,
        "side": "owner",
        "claim": "Fewer tokens were counted than the node's log shows.",
        "request_id": "req_1",
    },
)
DISPUTES = _one(_DISPUTE)
DISPUTE_LISTS = _listed(_DISPUTE)
DECISION_REQUESTS = {
    "resolved": {
        "summary": "The owner is given what was missing",
        "value": {"amount": "0.00001", "reason": "A verifier restarted in mid-request."},
    },
    "rejected": {"summary": "It was right", "value": {"reason": "The node's log counts drafts, not accepted tokens."}},
}
DECISIONS = _one(_DECIDED)
ADMIN_PAYOUTS = _one(_ADMIN_PAYOUT)
ADMIN_PAYOUT_LISTS = _listed(_ADMIN_PAYOUT)
REASON_REQUESTS = _asked("With the reason", {"reason": "The account is being looked into."})
CANCELLED = _one({**_ADMIN_PAYOUT, "state": "cancelled", "ended_at": 1796000300, "reason": "The account is closed."})
BATCHES = _one({"object": "batch", "id": "batch_0123456789abcdef", "payouts": [_SENT]})
RESULT_REQUESTS = _asked(
    "One paid", {"csv": "payout,amount,result,reference\npay_0123456789abcdef,20.00,paid,bank-77\n"}
)
RESULTS = _listed({**_SENT, "state": "paid", "ended_at": 1796086400, "reference": "bank-77"})
TAKEN = _one({"received": True})
