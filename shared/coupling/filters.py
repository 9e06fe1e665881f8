"""Top-k, top-p and min-p over rows of logits, without sorting the vocabulary where that can be helped."""

import torch

NUCLEUS_GUESS = 256
"""Largest nucleus that is looked for with a partial sort; wider ones pay for a full sort."""


def filter_logits(
    scaled: torch.Tensor,
    top_k: torch.Tensor | None,
    top_p: torch.Tensor | None,
    min_p: torch.Tensor | None,
) -> torch.Tensor:
    """Sets what the filters exclude to minus infinity, in place, and returns the tensor.

    Filters apply in the order top-k, top-p, min-p; top-p and min-p see the distribution as the filters before left it.

    Args:
        scaled: float32 [rows, vocabulary], logits divided by temperature.
        top_k: int [rows]; 0 or at least the vocabulary keeps all.
        top_p: float32 [rows]; 1 keeps all.
        min_p: float32 [rows]; 0 keeps all.
    """
    if top_k is not None:
        _top_k(scaled, top_k)
    if top_p is not None:
        _top_p(scaled, top_p)
    if min_p is not None:
        _min_p(scaled, min_p)
    return scaled


def _top_k(scaled: torch.Tensor, top_k: torch.Tensor) -> None:
    vocabulary = scaled.shape[1]
    active = (top_k > 0) & (top_k < vocabulary)
    if not bool(active.any()):
        return
    wanted = torch.where(active, top_k, 1).long()
    best = scaled.topk(int(wanted.max()), dim=1).values
    floor = best.gather(1, (wanted - 1).unsqueeze(1))
    scaled.masked_fill_(active.unsqueeze(1) & (scaled < floor), float("-inf"))


def _top_p(scaled: torch.Tensor, top_p: torch.Tensor) -> None:
    rows = (top_p < 1.0).nonzero().squeeze(1)
    if rows.numel() == 0:
        return
    part, wanted = scaled[rows], top_p[rows].float()
    total = part.logsumexp(dim=1, keepdim=True)
    best = part.topk(min(NUCLEUS_GUESS, part.shape[1]), dim=1).values
    floor, size = nucleus(best, total, wanted)
    wide = (size == best.shape[1]).nonzero().squeeze(1)
    if wide.numel() and best.shape[1] < part.shape[1]:
        every = part[wide].sort(dim=1, descending=True).values
        floor[wide], _ = nucleus(every, total[wide], wanted[wide])
    scaled[rows] = part.masked_fill(part < floor, float("-inf"))


def nucleus(best: torch.Tensor, total: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Smallest logit inside each nucleus [rows, 1], and how many of `best` are inside [rows].

    The nucleus is the smallest set of likeliest tokens whose mass reaches `wanted`: a token is in it
    if the mass before it is still below. The likeliest token always is.
    """
    mass = (best - total).exp()
    before = mass.cumsum(dim=1) - mass
    inside = before < wanted.unsqueeze(1)
    inside[:, 0] = True
    size = inside.long().cumprod(dim=1).sum(dim=1)
    return best.gather(1, (size - 1).unsqueeze(1)), size


def _min_p(scaled: torch.Tensor, min_p: torch.Tensor) -> None:
    active = min_p > 0.0
    if not bool(active.any()):
        return
    floor = scaled.amax(dim=1) + torch.where(active, min_p, 1.0).log()
    scaled.masked_fill_(active.unsqueeze(1) & (scaled < floor.unsqueeze(1)), float("-inf"))
