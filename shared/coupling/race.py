"""The winner of each row once noise is added, without a logarithm for every token.

Both functions give the argmax over j of x(j) + G(j), where equal sums go to the lowest token id; they differ in how
many tokens there are to look at.
"""

import math

import torch

from shared.noise import gumbel

BLOCK = {"cpu": 1 << 18}
"""Logits that are worked on at a time, by kind of device: few enough for a CPU's cache."""
ELSEWHERE = 1 << 24
NARROWEST = 1024
"""Fewest columns of a block."""
MARGIN = 0.01
"""How much later than by exact arithmetic a token is given up, in units of the noise: far more than rounding errs."""
ROUNDING = 1e-6
"""The same relative to the score, in case of huge logits."""


def win_among(scaled: torch.Tensor, tokens: torch.Tensor, prefix: torch.Tensor) -> torch.Tensor:
    """The winner among some tokens of each row.

    Args:
        scaled: float32 [rows, some], logits divided by temperature; minus infinity for what is excluded.
        tokens: int64 [rows, some], their ids.
        prefix: int32 [rows], `gumbel.prefix` of each row.

    Returns:
        int64 [rows], token ids.
    """
    scores = scaled + _noise(prefix.unsqueeze(1), tokens)
    best = scores.amax(dim=1, keepdim=True)
    return torch.where(scores == best, tokens, torch.iinfo(torch.int64).max).amin(dim=1)


def win_of_all(logits: torch.Tensor, temperature: torch.Tensor, prefix: torch.Tensor) -> torch.Tensor:
    """The winner among all tokens of each row.

    Every token is hashed, in blocks. With u the hash as a number in (0, 1), noise is -log(-log(1 - u)), so a token
    beats a score s only if exp(x - s) > -log(1 - u) >= u. The score that the likeliest token has is a lower bound for
    the winner's; few tokens pass, and only for them the noise itself is computed.

    Args:
        logits: float32 [rows, vocabulary].
        temperature: float32 [rows], positive.
        prefix: int32 [rows], `gumbel.prefix` of each row.

    Returns:
        int64 [rows], token ids.
    """
    rows, vocabulary = logits.shape
    every, likeliest = torch.arange(rows, device=logits.device), logits.max(dim=1).indices
    temperature, column = temperature.unsqueeze(1), prefix.unsqueeze(1)
    to_beat = logits[every, likeliest] / temperature.squeeze(1) + _noise(prefix, likeliest)
    # u is compared by the upper 31 bits of the hash, as an integer: they are never more than u * 2**31.
    floor = (to_beat - (MARGIN + ROUNDING * to_beat.abs()) - 31 * math.log(2)).unsqueeze(1)
    found_rows, found_tokens = [every], [likeliest]
    width = max(NARROWEST, BLOCK.get(logits.device.type, ELSEWHERE) // rows)
    for start in range(0, vocabulary, width):
        part = logits[:, start : start + width]
        tokens = torch.arange(start, start + part.shape[1], dtype=torch.int32, device=logits.device)
        hashed = gumbel.hash_tokens(column, tokens)
        hashed >>= 1
        hashed &= 0x7FFFFFFF
        reach = (part / temperature).sub_(floor).exp_()
        row, place = (hashed <= reach).nonzero(as_tuple=True)
        found_rows.append(row)
        found_tokens.append(place + start)
    row, token = torch.cat(found_rows), torch.cat(found_tokens)
    scores = logits[row, token] / temperature.squeeze(1)[row] + _noise(prefix[row], token)
    best = torch.full((rows,), float("-inf"), device=logits.device).scatter_reduce(0, row, scores, "amax")
    # The likeliest token stands in for a row of minus infinities, where no score is more than another.
    winning = scores == best[row]
    winner = torch.full((rows,), vocabulary, dtype=torch.int64, device=logits.device)
    winner = winner.scatter_reduce(0, row[winning], token[winning], "amin")
    return torch.where(winner < vocabulary, winner, likeliest)


def _noise(prefix: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return gumbel.from_uniform(gumbel.uniform(gumbel.hash_tokens(prefix, tokens.int()), torch), torch)
