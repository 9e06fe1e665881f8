"""Exponential back-off with full jitter, so that many nodes do not come back at the same moment."""

import random
from typing import Final

BASE_S: Final = 0.5
CAP_S: Final = 60.0


class Backoff:
    """Delays for one thing that is tried again without end.

    Each delay is uniform between 0 and a ceiling that starts at `base_s` and doubles up to `cap_s`
    ("full jitter", Brooker, AWS Architecture Blog, 2015).
    """

    def __init__(self, rng: random.Random, *, base_s: float = BASE_S, cap_s: float = CAP_S) -> None:
        if not 0 < base_s <= cap_s:
            raise ValueError("base_s must be above 0 and at most cap_s.")
        self._rng = rng
        self._base_s = base_s
        self._cap_s = cap_s
        self._ceiling_s = base_s

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        delay = self._rng.uniform(0.0, self._ceiling_s)
        self._ceiling_s = min(self._cap_s, self._ceiling_s * 2)
        return delay

    def reset(self) -> None:
        """The attempt succeeded: the next delay is short again."""
        self._ceiling_s = self._base_s
