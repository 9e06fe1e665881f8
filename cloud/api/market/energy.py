"""Energy: a node's joules shared out among its streams, watt-hours of tokens, and what an owner has left of them.

Joules come from the node's own counter (`Beat.energy`): they are shown, and set a default ask, and no payment follows
them. Money is integers: joules are rounded to millijoules before they meet a price.
"""

from collections.abc import Mapping
from typing import TypeVar

from cloud.api.accounts.money import Nano, Pico
from cloud.api.market.pricebook import WHOLE, Rates

MILLIJOULES_PER_KWH = 3_600_000_000
JOULES_PER_WH = 3_600.0
S = TypeVar("S")


def apportioned(joules: float, drafted: Mapping[S, int]) -> dict[S, float]:
    """Joules drawn in an interval, by the tokens that each stream was drafted in it; an idle node's go to nobody."""
    total = sum(drafted.values())
    return {stream: joules * count / total for stream, count in drafted.items()} if total else {}


def drawn(before: float | None, now: float | None) -> float:
    """Joules between two readings of a counter; a counter that begins anew, or is missing, gives nothing."""
    if before is None or now is None or now < before:
        return 0.0
    return now - before


def watt_hours_per_thousand(joules: float, tokens: int) -> float | None:
    """None without tokens."""
    return joules / JOULES_PER_WH * 1_000 / tokens if tokens > 0 else None


def plain_watt_hours_per_thousand(watts: float, step_ns: int, batch: int) -> float | None:
    """Estimate for plain decoding: a step gives `batch` tokens, and the verifier's machine draws `watts` meanwhile."""
    if batch < 1 or step_ns < 1:
        return None
    return watt_hours_per_thousand(watts * step_ns / 1e9, batch)


def cost_of(millijoules: int, tariff: Nano) -> Nano:
    """Of electricity at `tariff` nano-dollars for a kilowatt-hour, rounded up: an owner is never told too little."""
    return Nano(-(-millijoules * tariff // MILLIJOULES_PER_KWH))


def net(earned: Nano, millijoules: int, tariff: Nano) -> Nano:
    """What an owner has left after electricity; may be negative."""
    return Nano(earned - cost_of(millijoules, tariff))


def default_ask(rates: Rates, millijoules: int | None = None, tariff: Nano | None = None) -> Pico:
    """Pico-dollars for an accepted token: its energy at the tariff, and the margin, rounded up.

    Args:
        rates: assumptions for what is not known.
        millijoules: measured for one accepted token.
        tariff: the owner's.
    """
    energy = rates.millijoules if millijoules is None else millijoules
    rate = rates.tariff if tariff is None else tariff
    exact = energy * rate * 1_000 * (WHOLE + rates.margin)
    return Pico(-(-exact // (MILLIJOULES_PER_KWH * WHOLE)))
