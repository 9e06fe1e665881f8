"""The runner-up: what the coupled choice would have been without the token that it chose."""

import math

import pytest
import torch

from shared.coupling.choice import RowParameters, choose, rank


def rows(count: int, temperature: float, **given: float) -> RowParameters:
    """Parameters of `count` rows that differ in their seed only."""
    return RowParameters(
        temperature=torch.full((count,), temperature),
        seed=torch.arange(count) * 7919 + 3,
        position=torch.full((count,), 11),
        top_k=torch.full((count,), int(given["top_k"])) if "top_k" in given else None,
        top_p=torch.full((count,), given["top_p"]) if "top_p" in given else None,
    )


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_the_choice_is_unchanged_and_the_runner_up_is_the_choice_without_it(temperature: float) -> None:
    """The margin is the score that the chosen token has to lose for the runner-up to win."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(200, 500, generator=generator) * 3
    parameters = rows(200, temperature)
    tokens, runners_up, margins = rank(logits, parameters)
    assert torch.equal(tokens, choose(logits, parameters))
    every = torch.arange(200)
    without = logits.clone()
    without[every, tokens] = float("-inf")
    assert torch.equal(runners_up, choose(without, parameters))
    assert bool((margins > 0).all())
    for factor, expected in ((0.99, tokens), (1.01, runners_up)):
        lowered = logits.clone()
        lowered[every, tokens] -= margins * (temperature or 1.0) * factor
        assert torch.equal(choose(lowered, parameters), expected)


def test_logits_are_not_modified() -> None:
    """The engine goes on with them."""
    logits = torch.randn(4, 50)
    before = logits.clone()
    rank(logits, rows(4, 0.8))
    rank(logits, rows(4, 0.0))
    assert torch.equal(logits, before)


def test_filters_that_leave_one_token_leave_no_runner_up() -> None:
    """Its margin is infinite."""
    logits = torch.randn(8, 50)
    assert all(math.isinf(margin) for margin in rank(logits, rows(8, 0.8, top_k=1)).margins.tolist())
    tokens, runners_up, margins = rank(logits, rows(8, 0.8, top_k=2))
    best = logits.topk(2, dim=1).indices.sort(dim=1).values
    assert torch.equal(torch.stack((tokens, runners_up), dim=1).sort(dim=1).values, best)
    assert bool(margins.isfinite().all())
