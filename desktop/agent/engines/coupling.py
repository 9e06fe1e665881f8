"""Drafting with the target's noise: the same choice as the verifier's sampler makes, on the draft model's logits.

A drafter that adds the same noise matches the target with a probability of at least (1 - TV) / (1 + TV), where TV is
the total variation between the two distributions; argmax drafting matches only as often as the target picks its
likeliest token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shared.coupling.choice import Ranking, RowParameters, choose, rank
from shared.sampling import Sampling

EXTRA = "nexus_coupling"
"""Key in a draft request's extra arguments, whose value is a `Coupling`."""
SIGN = 1 << 63


@dataclass(frozen=True, slots=True)
class Coupling:
    """How a stream's tokens are chosen."""

    sampling: Sampling
    seed: int
    """As a signed 64-bit integer: the noise takes its bits."""


GREEDY = Coupling(Sampling(), 0)
"""Argmax, as a row among coupled ones."""


def coupling(sampling: Sampling, seed: int | None) -> Coupling | None:
    """None for greedy streams, and for sampled ones whose seed is not told: those are drafted by argmax."""
    if sampling.greedy or seed is None:
        return None
    return Coupling(sampling, (seed + SIGN) % (2 * SIGN) - SIGN)


def choose_rows(logits: torch.Tensor, rows: Sequence[tuple[Coupling, int]]) -> torch.Tensor:
    """The shared choice for each row.

    Args:
        logits: [rows, vocabulary].
        rows: each row's coupling, and how many tokens precede the one being chosen.
    """
    return choose(logits.float(), _parameters(rows, logits.device))


def rank_rows(logits: torch.Tensor, rows: Sequence[tuple[Coupling, int]]) -> Ranking:
    """The shared choice and its runner-up for each row; arguments as in `choose_rows`."""
    return rank(logits.float(), _parameters(rows, logits.device))


def _parameters(rows: Sequence[tuple[Coupling, int]], device: torch.device) -> RowParameters:
    def column(values: list[Any], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).to(device)

    filters = [row.sampling for row, _ in rows]
    return RowParameters(
        temperature=column([each.temperature for each in filters], torch.float32),
        seed=column([row.seed for row, _ in rows], torch.int64),
        position=column([length - 1 for _, length in rows], torch.int64),
        top_k=column([each.top_k for each in filters], torch.int64) if any(e.top_k for e in filters) else None,
        top_p=column([each.top_p for each in filters], torch.float32) if any(e.top_p < 1 for e in filters) else None,
        min_p=column([each.min_p for each in filters], torch.float32) if any(e.min_p for e in filters) else None,
    )
