"""Sampling parameters that travel beside the engine's own, because it refuses them when it speculates."""

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
    """Reads a request's extra arguments; the gateway has checked them, and what is malformed counts as absent."""
    if not extra_args or not (extra_args.keys() & {MIN_P_ARG, LOGIT_BIAS_ARG}):
        return _NONE
    min_p = extra_args.get(MIN_P_ARG, 0.0)
    pairs = extra_args.get(LOGIT_BIAS_ARG, ())
    if not isinstance(min_p, int | float) or not isinstance(pairs, list | tuple):
        return _NONE
    return _extras(float(min_p), tuple(pairs))


@lru_cache(maxsize=1024)
def _extras(min_p: float, pairs: tuple[float, ...]) -> Extras:
    bias = {int(token): float(value) for token, value in zip(pairs[::2], pairs[1::2], strict=False)}
    return Extras(min_p=min_p, logit_bias=bias)
