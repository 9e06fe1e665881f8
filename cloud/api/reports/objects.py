"""Reports as JSON: money in dollars and energy in joules, both as decimal text, so that nothing is rounded."""

import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from cloud.api.accounts.money import PICO_PLACES, Nano, dollars
from cloud.api.ledger.audit import Audit
from cloud.api.ledger.places import sort_of
from cloud.api.market.energy import cost_of, net
from cloud.api.market.minutes import NodeMinute
from cloud.api.market.pricebook import PriceVersion, RatesVersion
from cloud.api.market.reputation import Quarantine, Standing
from cloud.api.reports.ports import Earned, Seen, Used
from shared.ids import NodeId


def day_of(at: int) -> str:
    """Like 2026-11-30, UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def earned_object(earned: Earned, tariff: Nano) -> dict[str, Any]:
    """With what is left after electricity, where the nodes have energy counters."""
    used = earned.millijoules
    return {
        "amount": dollars(earned.amount),
        "receipts": earned.receipts,
        "drafted": earned.drafted,
        "accepted": earned.accepted,
        "marginal": earned.marginal,
        "joules": None if used is None else decimal(used, 3),
        "electricity": None if used is None else dollars(cost_of(used, tariff)),
        "net": None if used is None else dollars(net(earned.amount, used, tariff)),
    }


def decimal(amount: int, places: int) -> str:
    """Of thousandths and the like; exact."""
    text = f"{Decimal(amount).scaleb(-places):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def minute_object(minute: NodeMinute) -> dict[str, Any]:
    return {
        "node": minute.node,
        "minute": minute.minute,
        "reason": minute.reason,
        "words": minute.words,
        "streams": minute.streams,
        "drafted": minute.drafted,
        "accepted": minute.accepted,
        "marginal": minute.marginal,
        "earned": dollars(minute.earned),
        "joules": None if minute.millijoules is None else decimal(minute.millijoules, 3),
    }


def used_object(used: Used) -> dict[str, Any]:
    return {
        "day": day_of(used.day),
        "key": used.key,
        "model": used.model,
        "requests": used.requests,
        "prompt_tokens": used.prompt_tokens,
        "cached_tokens": used.cached_tokens,
        "completion_tokens": used.completion_tokens,
        "cost": dollars(used.cost),
    }


def seen_object(seen: Seen) -> dict[str, Any]:
    """Who saw the prompt, by class and number: whose nodes they were is told to nobody."""
    return {
        "id": seen.request_id,
        "object": "request",
        "created_at": seen.at,
        "key": seen.key,
        "model": seen.model,
        "outcome": seen.outcome,
        "completion_tokens": seen.completion_tokens,
        "accepted_draft_tokens": seen.accepted,
        "cost": dollars(seen.cost),
        "seen_by": {
            "verifier": True,
            "nodes": [{"class": kind, "count": count} for kind, count in sorted(seen.nodes.items())],
        },
    }


def books_object(audit: Audit) -> dict[str, Any]:
    """Sums by sort of place; `problems` says what does not agree, and is empty in good books."""
    sums: dict[str, int] = {}
    for place, amount in audit.sums.items():
        sort = str(sort_of(place))
        sums[sort] = sums.get(sort, 0) + amount
    problems = audit.problems()
    return {
        "object": "books",
        "reconciled": not problems,
        "problems": problems,
        "events": audit.events,
        "postings": audit.postings,
        "overdue_reservations": audit.overdue,
        "owed_by_customers": dollars(audit.owed),
        "sums": [{"place": sort, "amount": dollars(sums[sort])} for sort in sorted(sums)],
    }


def standing_object(
    standing: Standing, held: Mapping[NodeId, Quarantine], day: Mapping[NodeId, Earned]
) -> dict[str, Any]:
    """`earned_today`: in the last 24 hours."""
    quarantine, earned = held.get(standing.node), day.get(standing.node)
    return {
        "node": standing.node,
        "model": standing.model,
        "stage": standing.stage,
        "drafted": standing.drafted,
        "accepted": standing.accepted,
        "marginal": standing.marginal,
        "drafts_in_time": standing.met,
        "drafts_late": standing.missed,
        "updated_at": standing.updated_at,
        "quarantined_until": None if quarantine is None else quarantine.until,
        "quarantine_reason": None if quarantine is None else quarantine.why,
        "earned_today": dollars(0 if earned is None else earned.amount),
    }


def price_object(version: PriceVersion) -> dict[str, Any]:
    price = version.price
    return {
        "version": version.version,
        "model": version.model,
        "since": version.since,
        "prompt": dollars(price.prompt, PICO_PLACES),
        "cached_prompt": dollars(price.cached, PICO_PLACES),
        "completion": dollars(price.completion, PICO_PLACES),
    }


def rates_object(version: RatesVersion) -> dict[str, Any]:
    rates = version.rates
    return {
        "version": version.version,
        "since": version.since,
        "payout_share_basis_points": rates.share,
        "hold_days": rates.hold_days,
        "verifier_dollars_per_second": dollars(rates.verifier, PICO_PLACES),
        "tariff_dollars_per_kwh": dollars(rates.tariff),
    }
