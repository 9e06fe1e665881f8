"""The target's token for each row: argmax of filtered, scaled logits plus shared Gumbel noise.

The verifier's sampler and the draft engines call the same code: whatever a drafter filters or hashes differently
only costs acceptance, but there is no reason to differ. Imports torch, as the one package of `shared` that does;
nothing else in `shared` may import it, so that a gateway needs no torch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from shared.coupling.filters import filter_logits
from shared.noise import gumbel

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy, as in the engine."""


@dataclass(frozen=True, slots=True)
class RowParameters:
    """What decides each row's token; all tensors on the logits' device, one entry per row."""

    temperature: torch.Tensor
    """float32; 0 is greedy."""
    seed: torch.Tensor
    """int64"""
    position: torch.Tensor
    """int64: index of the input token, one less than that of the token being chosen."""
    top_k: torch.Tensor | None = None
    top_p: torch.Tensor | None = None
    min_p: torch.Tensor | None = None

    def at(self, rows: torch.Tensor) -> "RowParameters":
        """The parameters of some rows only."""
        pick = {
            name: None if value is None else value[rows]
            for name in ("temperature", "seed", "position", "top_k", "top_p", "min_p")
            for value in (getattr(self, name),)
        }
        return RowParameters(**pick)


class Ranking(NamedTuple):
    """The choice of each row, and what it would have been without that token."""

    tokens: torch.Tensor
    """int64 [rows], as `choose` gives them."""
    runners_up: torch.Tensor
    """int64 [rows]; meaningless where the margin is infinite, because no second token is left by the filters."""
    margins: torch.Tensor
    """float32 [rows], 0 or more: how far the runner-up's scaled and noised logit (at temperature 0 its logit) is
    behind. The smaller, the likelier does a model with slightly other logits take the runner-up."""


def choose(logits: torch.Tensor, rows: RowParameters) -> torch.Tensor:
    """The target's token of each row.

    Args:
        logits: float32 [rows, vocabulary], after penalties, bias and grammar masks. Not modified.
        rows: one set of parameters per row.

    Returns:
        int64 [rows]. It depends on nothing but the row's own logits and parameters.
    """
    tokens = logits.argmax(dim=1)
    sampled = (rows.temperature >= GREEDY_BELOW).nonzero().squeeze(1)
    if sampled.numel():
        tokens[sampled] = _sample(logits[sampled], rows.at(sampled))
    return tokens


def rank(logits: torch.Tensor, rows: RowParameters) -> Ranking:
    """What `choose` chooses, with the runner-up of each row; arguments as there."""
    tokens = choose(logits, rows)
    scores = logits.clone()
    sampled = (rows.temperature >= GREEDY_BELOW).nonzero().squeeze(1)
    if sampled.numel():
        scores[sampled] = _noised(logits[sampled], rows.at(sampled))
    every = torch.arange(len(tokens), device=tokens.device)
    best = scores[every, tokens]
    scores[every, tokens] = float("-inf")
    second = scores.max(dim=1)
    return Ranking(tokens, second.indices, (best - second.values).clamp_min(0.0))


def _sample(logits: torch.Tensor, rows: RowParameters) -> torch.Tensor:
    return _noised(logits, rows).argmax(dim=1)


def _noised(logits: torch.Tensor, rows: RowParameters) -> torch.Tensor:
    """Filtered, scaled logits plus noise; minus infinity for what cannot win."""
    scaled = logits / rows.temperature.unsqueeze(1)
    scaled = filter_logits(scaled, rows.top_k, rows.top_p, rows.min_p)
    # Noise is bounded, so a token far enough below the best one cannot win: hash only the others.
    reach = scaled.amax(dim=1, keepdim=True) - gumbel.SPREAD
    row, token = (scaled >= reach).nonzero(as_tuple=True)
    prefix = gumbel.prefix(rows.seed, rows.position, torch)[row]
    noise = gumbel.from_uniform(gumbel.uniform(gumbel.hash_tokens(prefix, token.int()), torch), torch)
    noised = torch.full_like(scaled, float("-inf"))
    noised[row, token] = scaled[row, token] + noise
    return noised
