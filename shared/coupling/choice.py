"""The target's token for each row: argmax of filtered, scaled logits plus shared Gumbel noise.

The verifier's sampler and the draft engines call the same code: whatever a drafter filters or hashes differently
only costs acceptance, but there is no reason to differ. Imports torch, as the one package of `shared` that does;
nothing else in `shared` may import it, so that a gateway needs no torch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from shared.coupling.filters import filter_logits
from shared.coupling.head import filtered_head, survives, width_for
from shared.coupling.race import win_among, win_of_all
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

    def filtered(self, vocabulary: int) -> torch.Tensor:
        """bool [rows]: whether any filter of the row can exclude a token."""
        some = torch.zeros_like(self.temperature, dtype=torch.bool)
        if self.top_k is not None:
            some |= (self.top_k > 0) & (self.top_k < vocabulary)
        if self.top_p is not None:
            some |= self.top_p < 1.0
        if self.min_p is not None:
            some |= self.min_p > 0.0
        return some

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
    filtered = rows.filtered(logits.shape[1])
    greedy = rows.temperature < GREEDY_BELOW
    tokens = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    for which, how in ((greedy, _greedy), (~greedy & filtered, _filtered), (~greedy & ~filtered, _open)):
        chosen = which.nonzero().squeeze(1)
        if chosen.numel() == which.numel():
            return how(logits, rows)
        if chosen.numel():
            tokens[chosen] = how(logits[chosen], rows.at(chosen))
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


def _greedy(logits: torch.Tensor, rows: RowParameters) -> torch.Tensor:
    return logits.max(dim=1).indices


def _open(logits: torch.Tensor, rows: RowParameters) -> torch.Tensor:
    """Without filters every token may win."""
    return win_of_all(logits, rows.temperature, gumbel.prefix(rows.seed, rows.position, torch))


def _filtered(logits: torch.Tensor, rows: RowParameters) -> torch.Tensor:
    """With filters the winner is in the head of the distribution, as a rule."""
    prefix = gumbel.prefix(rows.seed, rows.position, torch)
    width = width_for(rows.top_k, logits.shape[1])
    if width is None:
        left = torch.arange(logits.shape[0], device=logits.device)
        tokens = torch.empty_like(left)
    else:
        head = filtered_head(logits, rows.temperature, rows.top_k, rows.top_p, rows.min_p, width)
        tokens = win_among(head.scaled, head.tokens, prefix)
        left = (~head.whole).nonzero().squeeze(1)
    if left.numel():
        tokens[left] = _widely_filtered(logits[left], rows.at(left), prefix[left])
    return tokens


def _widely_filtered(logits: torch.Tensor, rows: RowParameters, prefix: torch.Tensor) -> torch.Tensor:
    """Filters only take tokens away: who wins of all wins of those kept, if it is one of them.

    Top-p keeps the winner with probability p, and whether it does takes one pass to see; sorting all is for the rest.
    """
    tokens = win_of_all(logits, rows.temperature, prefix)
    kept = survives(logits, rows.temperature, tokens, rows.top_p, rows.min_p)
    if rows.top_k is not None:
        kept &= (rows.top_k <= 0) | (rows.top_k >= logits.shape[1])
    left = (~kept).nonzero().squeeze(1)
    if left.numel():
        some = rows.at(left)
        scaled = logits[left] / some.temperature.unsqueeze(1)
        filter_logits(scaled, some.top_k, some.top_p, some.min_p)
        tokens[left] = win_of_all(scaled, torch.ones_like(some.temperature), prefix[left])
    return tokens


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
