"""What a step costs: seconds by the number of tokens that it computes, from a profile that goes on learning."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]

LEARN = 0.05
"""Weight of one measured step against what was known of steps of its size."""
DRIFT = 0.1
"""Weight of one measured step against the machine's speed as a whole: clocks and neighbours change it."""
OUTLIER = 4.0
"""A step that took so many times longer or shorter than expected counts as this many times: it was disturbed."""
UNPROFILED = {1: 1.0, 8: 1.1, 64: 1.8, 512: 9.0}
"""Relative costs that are assumed where nothing was profiled; measured steps correct them."""


class StepCost:
    """T(tokens) in seconds: linear between profiled sizes, never falling, scaled to the steps seen lately.

    A step has a fixed part, reading all weights, and a part for each token; which of them rules depends on the machine
    and on the model, so neither is assumed.
    """

    def __init__(self, profile: Mapping[int, float] | None = None) -> None:
        """
        Args:
            profile: seconds by tokens per step, at least one size; none where no profile could be made.

        Raises:
            ValueError: a size or a time is not positive.
        """
        self.profiled = bool(profile)
        points = sorted((profile or UNPROFILED).items())
        if any(tokens < 1 or not 0 < seconds < float("inf") for tokens, seconds in points):
            raise ValueError("a step-cost profile needs sizes of at least 1 and positive times")
        self._sizes = [tokens for tokens, _ in points]
        self._times: list[float] = [seconds for _, seconds in points]
        self._rising: list[float] = []
        self._rise()
        self._scale = 1.0
        self._measured = 0

    def seconds(self, tokens: int) -> float:
        """Expected seconds of a step that computes so many tokens."""
        return self._scale * self._shape(tokens)

    def curve(self, tokens: int, count: int) -> Numbers:
        """Expected seconds of steps of `tokens`, `tokens` + 1, … tokens: [count]."""
        return self._scale * self._shapes(np.arange(tokens, tokens + count))

    def table(self) -> dict[int, float]:
        """The profile as it stands now: seconds by tokens."""
        return {size: self._scale * time for size, time in zip(self._sizes, self._rising, strict=True)}

    def observe(self, tokens: int, seconds: float) -> None:
        """Learns from a step that was measured; prefill steps are not to be given."""
        if tokens < 1 or seconds <= 0:
            return
        expected = self.seconds(tokens)
        ratio = seconds / expected
        if self._measured or self.profiled:
            ratio = min(max(ratio, 1 / OUTLIER), OUTLIER)
            self._scale *= ratio**DRIFT
        else:
            self._scale *= ratio
            ratio = 1.0
        self._measured += 1
        self._reshape(tokens, ratio)

    def _reshape(self, tokens: int, ratio: float) -> None:
        """Moves the sizes beside `tokens` by what the change of speed does not explain."""
        right = bisect_right(self._sizes, tokens)
        for index in {max(right - 1, 0), min(right, len(self._sizes) - 1)}:
            near = 1.0 - min(abs(self._sizes[index] - tokens) / max(tokens, self._sizes[index]), 1.0)
            self._times[index] *= ratio ** (LEARN * near)
        self._rise()

    def _rise(self) -> None:
        """More tokens never cost less: a profile is noisy, and a dip in it would draw steps to that size."""
        self._rising = []
        for time in self._times:
            self._rising.append(max(time, self._rising[-1]) if self._rising else time)

    def _shape(self, tokens: int) -> float:
        return float(self._shapes(np.array([tokens]))[0])

    def _shapes(self, tokens: Numbers) -> Numbers:
        sizes, times = self._sizes, self._rising
        beyond = 0.0 if len(sizes) == 1 else (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
        shapes: Numbers = np.interp(tokens, sizes, times) + beyond * np.maximum(tokens - sizes[-1], 0)
        return shapes
