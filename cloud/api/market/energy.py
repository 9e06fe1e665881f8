"""Energy: a node's joules shared out among its streams, watt-hours of tokens, and what an owner has left.

Joules come from the node's own counter (`Beat.energy`): they are shown, and set a default ask, and no payment follows
them. Money is integers: joules are rounded to millijoules before they meet a price.
"""

from dataclasses import dataclass

from cloud.api.accounts.money import Nano, Pico
from cloud.api.market.pricebook import WHOLE, Rates

MILLIJOULES_PER_KWH = 3_600_000_000
JOULES_PER_WH = 3_600.0
KEEP = 0.98
"""Weight that a meter's older readings keep at each further one."""


@dataclass(slots=True)
class Meter:
    """What a node's tokens take, from the readings of its counter and what it drafted between them.

    A stream is over before the next reading comes, so it is charged by the usual joules of a token instead of its part
    of one interval. Joules of an interval without drafts are the owner's own.
    """

    _reading: float | None = None
    _joules: float = 0.0
    _tokens: float = 0.0
    _accepted: float = 0.0
    _new_tokens: int = 0
    _new_accepted: int = 0

    def drafted(self, tokens: int) -> None:
        self._new_tokens += tokens

    def accepted(self, tokens: int) -> None:
        self._new_accepted += tokens

    def read(self, joules: float | None) -> float:
        """A reading of the node's counter, which counts from the beginning of its session; none = it has none. Gives
        the joules since the one before."""
        used = drawn(self._reading, joules)
        if self._new_tokens and used > 0:
            self._joules = self._joules * KEEP + used
            self._tokens = self._tokens * KEEP + self._new_tokens
            self._accepted = self._accepted * KEEP + self._new_accepted
        self._reading = joules
        self._new_tokens = self._new_accepted = 0
        return used

    @property
    def per_token(self) -> float | None:
        """Joules for a drafted token; none where nothing was measured."""
        return self._joules / self._tokens if self._tokens > 0 else None

    @property
    def millijoules_per_accepted(self) -> int | None:
        return round(self._joules * 1_000 / self._accepted) if self._accepted >= 1 else None


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
