"""Acceptance: a draft token counts if and only if it equals the target's own choice."""

import torch

REJECTED = -1
"""Fills the output behind a request's last token; the engine drops it."""


def accept(chosen: torch.Tensor, drafted: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Tokens that each request commits: the agreeing draft, then the target's correction or bonus.

    Args:
        chosen: int64 [sum(lengths + 1)], the target's token of each row; a request's rows lie together, its draft
            positions first and the bonus position last.
        drafted: int [sum(lengths)], draft tokens in the same order.
        lengths: int64 [requests], draft tokens of each request.

    Returns:
        int32 [requests, max(lengths) + 1], `REJECTED` behind the last committed token.
    """
    width = int(lengths.max()) + 1
    device = chosen.device
    column = torch.arange(width, device=device)
    row_start = torch.cumsum(lengths + 1, 0) - (lengths + 1)
    draft_start = torch.cumsum(lengths, 0) - lengths
    has_row = column <= lengths.unsqueeze(1)
    own = chosen[(row_start.unsqueeze(1) + column).clamp(max=chosen.numel() - 1)]
    has_draft = column[: width - 1] < lengths.unsqueeze(1)
    if width > 1:
        index = (draft_start.unsqueeze(1) + column[: width - 1]).clamp(max=drafted.numel() - 1)
        agrees = (drafted[index].long() == own[:, : width - 1]) & has_draft
        accepted = agrees.long().cumprod(dim=1).sum(dim=1)
    else:
        accepted = torch.zeros_like(lengths)
    committed = has_row & (column <= accepted.unsqueeze(1))
    return torch.where(committed, own, REJECTED).int()
