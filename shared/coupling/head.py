"""The likeliest tokens of each row, and the filters decided on them alone where they decide everything.

Top-k, top-p and min-p keep few tokens as a rule. Whatever they keep lies in the head of the distribution, so the rest
of a vocabulary of 150,000 need not be scaled, sorted or masked.
"""

from typing import NamedTuple

import torch

from shared.coupling.filters import nucleus

WIDTH = 256
"""Likeliest tokens that are looked at; what a filter keeps beyond them costs a pass over the whole vocabulary."""
SPARE = 64
"""How many more than top-k: tokens that tie with the last one kept are kept as well."""
WIDEST = 2048
"""Above this many, the whole vocabulary is filtered at once."""
STRIDE = 16
"""Logits of which only the largest is looked at first."""
PIECE = 8192
"""Logits of a row that are added up at a time."""


class Head(NamedTuple):
    """What the filters leave of each row."""

    scaled: torch.Tensor
    """float32 [rows, width], logits divided by temperature, falling; minus infinity for what is excluded."""
    tokens: torch.Tensor
    """int64 [rows, width]"""
    whole: torch.Tensor
    """bool [rows]: all that the filters keep is here. False where they may keep more."""


def width_for(top_k: torch.Tensor | None, vocabulary: int) -> int | None:
    """How wide a head must be for these filters; none if they can't be decided on one."""
    wanted = WIDTH
    if top_k is not None:
        active = (top_k > 0) & (top_k < vocabulary)
        wanted = max(wanted, int(torch.where(active, top_k, 0).max()) + SPARE)
    return wanted if wanted <= min(WIDEST, vocabulary // STRIDE) else None


def filtered_head(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor | None,
    top_p: torch.Tensor | None,
    min_p: torch.Tensor | None,
    width: int,
) -> Head:
    """The same as `filters.filter_logits`, on the head only.

    Args:
        logits: float32 [rows, vocabulary].
        temperature: float32 [rows], positive.
        top_k, top_p, min_p: as for `filter_logits`.
        width: what `width_for` gave.
    """
    values, tokens = _largest(logits, width)
    scaled = values / temperature.unsqueeze(1)
    best, last = scaled[:, :1], scaled[:, -1:]
    floor = torch.full_like(best, float("-inf"))
    limited = None
    if top_k is not None:
        limited = ((top_k > 0) & (top_k < logits.shape[1])).unsqueeze(1)
        kth = scaled.gather(1, (torch.where(limited.squeeze(1), top_k, 1).long() - 1).unsqueeze(1))
        floor = torch.where(limited, kth, floor)
    if top_p is not None:
        kept = scaled.masked_fill(scaled < floor, float("-inf"))
        mass = (kept - best).exp()
        total = mass.cumsum(dim=1)[:, -1:]
        free = ~limited.squeeze(1) if limited is not None else torch.ones_like(top_p, dtype=torch.bool)
        rows = (free & (top_p < 1.0)).nonzero().squeeze(1)
        if rows.numel():
            total[rows] = _mass(logits[rows], temperature[rows].unsqueeze(1), best[rows])
        inside, _ = nucleus(kept, best + total.log(), top_p.float())
        floor = torch.where(top_p.unsqueeze(1) < 1.0, torch.maximum(floor, inside), floor)
    if min_p is not None:
        active = (min_p > 0.0).unsqueeze(1)
        share = torch.where(active, min_p.float().unsqueeze(1), 1.0).log()
        floor = torch.where(active, torch.maximum(floor, best + share), floor)
    return Head(
        scaled.masked_fill(scaled < floor, float("-inf")), tokens, ((floor > last) | (last == float("-inf"))).squeeze(1)
    )


def _largest(logits: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`logits.topk(width)`: the groups with the largest maxima hold the largest values, as many as there are groups."""
    rows, vocabulary = logits.shape
    groups = vocabulary // STRIDE
    grouped = logits[:, : groups * STRIDE].reshape(rows, STRIDE, groups)  # token = place * groups + group
    group = grouped.amax(dim=1).topk(width, dim=1).indices
    offsets = torch.arange(STRIDE, device=logits.device) * groups
    tokens = (group.unsqueeze(2) + offsets).flatten(1)
    rest = torch.arange(groups * STRIDE, vocabulary, device=logits.device).expand(rows, -1)
    tokens = torch.cat((tokens, rest), dim=1)
    best = logits.gather(1, tokens).topk(width, dim=1)
    return best.values, tokens.gather(1, best.indices)


def survives(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    tokens: torch.Tensor,
    top_p: torch.Tensor | None,
    min_p: torch.Tensor | None,
) -> torch.Tensor:
    """Whether top-p and min-p keep one given token of each row; bool [rows]. Other arguments as above."""
    scale = temperature.unsqueeze(1)
    best = logits.amax(dim=1, keepdim=True) / scale
    own = logits.gather(1, tokens.unsqueeze(1)) / scale
    kept = torch.ones_like(own, dtype=torch.bool)
    if top_p is not None:
        wanted = top_p.float().unsqueeze(1)
        before = _mass(logits, scale, best, above=own) / _mass(logits, scale, best)
        kept &= (before < wanted) | (own == best) | (wanted >= 1.0)
    if min_p is not None:
        share = min_p.float().unsqueeze(1)
        kept &= (share <= 0.0) | (own >= best + share.log())
    return kept.squeeze(1)


def _mass(
    logits: torch.Tensor, scale: torch.Tensor, best: torch.Tensor, above: torch.Tensor | None = None
) -> torch.Tensor:
    """Sum of exp(scaled - best) over the vocabulary [rows, 1], added up alike however many rows there are.

    Args:
        logits: float32 [rows, vocabulary].
        scale: float32 [rows, 1], the temperature.
        best: float32 [rows, 1], the largest scaled logit.
        above: float32 [rows, 1]; only what is larger than this counts.
    """
    pieces = []
    for piece in logits.split(PIECE, dim=1):
        scaled = piece / scale
        less = None if above is None else scaled <= above
        mass = scaled.sub_(best).exp_()
        pieces.append((mass if less is None else mass.masked_fill_(less, 0.0)).sum(dim=1, keepdim=True))
    return torch.cat(pieces, dim=1).double().cumsum(dim=1)[:, -1:].float()
