"""A token bucket: how often something may happen at once and in the long run."""

import math


class Budget:
    """Full at first; `size` units at once, and `per_s` more each second. Has no clock: the caller brings the time."""

    def __init__(self, size: float, per_s: float) -> None:
        self._size = size
        self.per_s = per_s
        self._left = size
        self._at = -math.inf

    def spend(self, now: float, amount: float = 1.0) -> bool:
        """Take `amount` at monotonic time `now` (seconds); false, and nothing is taken, when less is left."""
        if math.isfinite(self._at):
            self._left = min(self._size, self._left + max(now - self._at, 0.0) * self.per_s)
        self._at = now
        if amount > self._left:
            return False
        self._left -= amount
        return True
