"""How soon a source's drafts come: from a commit that left its tape empty until the first guess behind it."""

import math
from collections import deque

WINDOW = 24
"""Responses that are remembered."""
QUANTILE = 0.8
"""A draft is expected when so many of the responses had come."""
SPACING_KEEP = 0.9
"""Weight that the time between tokens keeps at each further token."""
CAP_S = 30.0
"""Longer responses count as this: the node was away."""


class Responses:
    """One source's response times and the pace of its tokens, both in seconds."""

    def __init__(self) -> None:
        self._window: deque[float] = deque(maxlen=WINDOW)
        self._ranked: list[float] = []
        self.spacing = 0.0
        """Mean seconds from one token to the next, while they come."""

    def responded(self, seconds: float) -> None:
        """The first guess came so long after it was called for."""
        self._window.append(min(max(seconds, 0.0), CAP_S))
        self._ranked = sorted(self._window)

    def followed(self, tokens: int, seconds: float) -> None:
        """So many more tokens came within this time of the one before."""
        if tokens > 0 and seconds < CAP_S:
            self.spacing += (1.0 - SPACING_KEEP**tokens) * (seconds / tokens - self.spacing)

    def due(self, elapsed: float) -> float | None:
        """When the first guess is expected, in seconds after it was called for; none if it can't be told.

        Args:
            elapsed: seconds that have passed without it.
        """
        if not self._ranked:
            return None
        usual = self._ranked[max(math.ceil(QUANTILE * len(self._ranked)) - 1, 0)]
        if elapsed < usual:
            return usual
        return self._ranked[-1] if elapsed < self._ranked[-1] else None
