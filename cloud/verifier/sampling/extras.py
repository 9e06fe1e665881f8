"""Sampling parameters that travel beside the engine's own, because it refuses them when it speculates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from shared.draftport.messages import LOGIT_BIAS_ARG, MIN_P_ARG


@dataclass(frozen=True, slots=True)
class Extras:
    """What the engine does not know of a request."""

    min_p: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)


_NONE = Extras()


def extras_of(extra_args: Mapping[str, Any] | None) -> Extras:
    """Reads a request's extra arguments. What is malformed counts as absent: an error here would end the engine."""
    if not extra_args or not (extra_args.keys() & {MIN_P_ARG, LOGIT_BIAS_ARG}):
        return _NONE
    min_p = extra_args.get(MIN_P_ARG, 0.0)
    pairs = extra_args.get(LOGIT_BIAS_ARG, ())
    if not isinstance(pairs, list | tuple) or not all(isinstance(each, int | float) for each in (min_p, *pairs)):
        return _NONE
    return _extras(min_p, tuple(pairs))


@lru_cache(maxsize=1024)
def _extras(min_p: float, pairs: tuple[float, ...]) -> Extras:
    try:
        bias = {int(token): float(value) for token, value in zip(pairs[::2], pairs[1::2], strict=True)}
    except (ValueError, OverflowError):
        return _NONE
    if not 0 <= min_p <= 1 or not all(map(math.isfinite, bias.values())):
        return _NONE
    return Extras(min_p=float(min_p), logit_bias=bias)
