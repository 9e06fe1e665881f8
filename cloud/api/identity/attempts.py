"""How often something may be tried: so many times at once, and again as time passes. Each gateway counts for itself."""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.errors import RateLimited

REMEMBERED: Final = 10_000
"""Names at a time; those that have not tried for longest are forgotten first."""


@dataclass(slots=True)
class _Tried:
    left: float
    at: float


class Attempts:
    """`limit` attempts for each name, which come back evenly within `window_s`. `clock` does not go back.

    An attempt is taken before it is made, so that many at once are no way round, and given back when it succeeded.
    """

    def __init__(self, limit: int, window_s: float, clock: Callable[[], float], what: str) -> None:
        """`what` begins the refusal: "Too many … "."""
        self._limit = limit
        self._window_s = window_s
        self._clock = clock
        self._what = what
        self._tried: OrderedDict[str, _Tried] = OrderedDict()

    def take(self, name: str) -> None:
        """Raises `RateLimited`, with the time until the next attempt, when there is none left."""
        tried = self._now(name)
        if tried.left < 1:
            wait_s = (1 - tried.left) * self._window_s / self._limit
            raise RateLimited(f"Too many {self._what}. Try again in {_span(wait_s)}.", retry_after_s=wait_s)
        tried.left -= 1

    def give_back(self, name: str) -> None:
        """The attempt that was taken succeeded, so it does not count."""
        tried = self._now(name)
        tried.left = min(tried.left + 1, self._limit)

    def _now(self, name: str) -> _Tried:
        now = self._clock()
        tried = self._tried.setdefault(name, _Tried(self._limit, now))
        self._tried.move_to_end(name)
        tried.left = min(tried.left + max(now - tried.at, 0) * self._limit / self._window_s, self._limit)
        tried.at = now
        while len(self._tried) > REMEMBERED:
            self._tried.popitem(last=False)
        return tried


def network_of(address: str) -> str:
    """What attempts of one machine are counted by: its IPv4 address, or the /64 that an IPv6 machine has for itself."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


def _span(seconds: float) -> str:
    whole = max(round(seconds), 1)
    return f"{whole} s" if whole < 120 else f"{-(-whole // 60)} min"
