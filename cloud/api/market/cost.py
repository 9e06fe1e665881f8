"""What a step of the verifier costs, as the gateway sees it: T(tokens) in whole nanoseconds, learned from `Verified`.

The gateway can't see the verifier's own table (cloud.verifier.policy.cost), but every `Verified` message carries the
number and the duration of the step that it came from. The messages of one step together tell how many streams it
carried and how many tokens it computed, so the same table is learned here, in integers, since money is computed from
it.
"""

from bisect import bisect_left
from collections.abc import Mapping

BILLION = 1_000_000_000
SIZES = tuple(2**power for power in range(15))
"""Tokens of a step that are told apart; what lies between is interpolated."""
FASTER, SLOWER = 16, 64
"""A measured step that was faster than known moves it by one part in so many, one that was slower by less: steps with a
prompt in them take longer and can't be told from here, so the lower part of what is seen counts."""
OUTLIER = 4
"""A step that took so many times longer than known counts as that: a prefill or another program was in it."""


class StepCosts:
    """Linear between sizes, never falling; sizes that were never seen follow their neighbours.

    Args:
        profile: nanoseconds by tokens, as `nexus verifier serve --step-cost` keeps them in seconds; none = learn all.
    """

    def __init__(self, profile: Mapping[int, int] | None = None) -> None:
        if any(tokens < 1 or ns < 1 for tokens, ns in (profile or {}).items()):
            raise ValueError("a step-cost profile needs sizes of at least 1 and positive times")
        self._seen: dict[int, int] = dict(profile or {})
        self._points: list[tuple[int, int]] = []
        self._settle()

    @property
    def known(self) -> bool:
        return bool(self._points)

    def observe(self, tokens: int, ns: int) -> None:
        """A step of so many tokens took so long."""
        if tokens < 1 or ns < 1:
            return
        size = min(SIZES, key=lambda s: abs(s - tokens))
        known = self._seen.get(size)
        if known is None:
            self._seen[size] = ns
        else:
            bounded = min(max(ns * known // self.ns(tokens), known // OUTLIER), known * OUTLIER)
            part = FASTER if bounded < known else SLOWER
            self._seen[size] = max(known + (bounded - known) // part, 1)
        self._settle()

    def ns(self, tokens: int) -> int:
        """Expected nanoseconds of a step of so many tokens; 0 while nothing is known."""
        points = self._points
        if not points or tokens < 1:
            return 0
        place = bisect_left(points, (tokens, 0))
        if place == 0:
            return points[0][1]
        if place == len(points):
            if len(points) == 1:
                return points[0][1]
            (left, low), (right, high) = points[-2:]
            return high + (high - low) * (tokens - right) // (right - left)
        (left, low), (right, high) = points[place - 1], points[place]
        return low + (high - low) * (tokens - left) // (right - left)

    def table(self) -> dict[int, int]:
        return dict(self._points)

    def _settle(self) -> None:
        rising: list[tuple[int, int]] = []
        for size, ns in sorted(self._seen.items()):
            rising.append((size, max(ns, rising[-1][1]) if rising else ns))
        self._points = rising
