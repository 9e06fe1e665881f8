"""Coupled sampling follows the exact distribution, and nothing but logits, parameters, seed and position."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.coupling.choice import RowParameters, choose
from shared.coupling.filters import filter_logits
from shared.noise import gumbel

CHI_SQUARE_0_999 = {3: 16.27, 4: 18.47, 7: 24.32, 11: 31.26, 15: 37.70, 24: 51.18}
"""Quantiles of chi-square at 0.999 by degrees of freedom."""


def rows(count: int, **given: float) -> RowParameters:
    """Parameters of `count` rows that differ in their seed only."""
    return RowParameters(
        temperature=torch.full((count,), given.get("temperature", 1.0)),
        seed=torch.arange(count) * 7919 + 3,
        position=torch.full((count,), 11),
        top_k=torch.full((count,), int(given["top_k"])) if "top_k" in given else None,
        top_p=torch.full((count,), given["top_p"]) if "top_p" in given else None,
        min_p=torch.full((count,), given["min_p"]) if "min_p" in given else None,
    )


LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, 8),
        ({"temperature": 0.7}, 8),
        ({"top_k": 4}, 4),
        ({"top_p": 0.9}, 5),
        ({"min_p": 0.2}, 4),
        ({"temperature": 0.8, "top_k": 6, "top_p": 0.95}, 5),
    ],
)
def test_200_000_samples_follow_the_filtered_softmax(given: dict[str, float], kept: int) -> None:
    """Chi-square against the exact distribution, not rejected at 0.001."""
    count = 200_000
    tokens = choose(LOGITS.repeat(count, 1), rows(count, **given))
    scaled = filter_logits(
        (LOGITS / given.get("temperature", 1.0)).unsqueeze(0).clone(),
        *(rows(1, **given).__getattribute__(name) for name in ("top_k", "top_p", "min_p")),
    )
    exact = scaled.softmax(dim=1)[0]
    assert int((exact > 0).sum()) == kept
    seen = torch.bincount(tokens, minlength=8).double()
    assert seen[exact == 0].sum() == 0
    expected = exact[exact > 0].double() * count
    statistic = float(((seen[exact > 0] - expected) ** 2 / expected).sum())
    assert statistic < CHI_SQUARE_0_999[kept - 1] if kept - 1 in CHI_SQUARE_0_999 else statistic < 30


def test_two_positions_of_one_stream_are_independent() -> None:
    """The joint of two positions is the product: chi-square over 5 x 5 cells."""
    count, logits = 200_000, torch.tensor([1.0, 0.6, 0.2, -0.3, -1.0])
    first = choose(logits.repeat(count, 1), rows(count))
    later = RowParameters(
        temperature=torch.ones(count), seed=torch.arange(count) * 7919 + 3, position=torch.full((count,), 12)
    )
    second = choose(logits.repeat(count, 1), later)
    exact = logits.softmax(0).double()
    expected = torch.outer(exact, exact).flatten() * count
    seen = torch.bincount(first * 5 + second, minlength=25).double()
    assert float(((seen - expected) ** 2 / expected).sum()) < CHI_SQUARE_0_999[24]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**20), st.randoms())
def test_a_row_does_not_depend_on_its_batch(seed: int, position: int, random: object) -> None:
    """The same row alone, and among others in another place, chooses the same token."""
    generator = torch.Generator().manual_seed(seed % 2**31)
    logits = torch.randn(6, 500, generator=generator) * 3
    parameters = RowParameters(
        temperature=torch.tensor([0.8, 0.0, 1.0, 0.6, 1.2, 0.9]),
        seed=torch.tensor([seed, 1, 2, 3, 4, seed // 2]),
        position=torch.tensor([position, 5, 6, 7, 8, 9]),
        top_k=torch.tensor([0, 0, 40, 0, 3, 0]),
        top_p=torch.tensor([0.95, 1.0, 1.0, 0.5, 1.0, 0.999]),
        min_p=torch.tensor([0.0, 0.0, 0.05, 0.0, 0.0, 0.01]),
    )
    together = choose(logits, parameters)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert choose(logits[order], parameters.at(order)).tolist() == together[order].tolist()
    for row in range(6):
        alone = torch.tensor([row])
        assert int(choose(logits[alone], parameters.at(alone))[0]) == int(together[row])


def test_greedy_is_the_argmax() -> None:
    """Temperature 0 takes no noise."""
    assert choose(LOGITS.repeat(3, 1).flip(1), rows(3, temperature=0.0)).tolist() == [7, 7, 7]


def test_pruning_by_the_noise_bound_changes_no_choice() -> None:
    """Only tokens that can win are hashed; hashing all gives the same."""
    logits = torch.randn(20, 5000, generator=torch.Generator().manual_seed(1)) * 8
    parameters = rows(20, temperature=0.9)
    full = gumbel.noise(
        parameters.seed.unsqueeze(1), parameters.position.unsqueeze(1), torch.arange(5000, dtype=torch.int32), torch
    )
    assert choose(logits, parameters).tolist() == (logits / 0.9 + full).argmax(1).tolist()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999])
def test_a_wide_nucleus_is_found_as_well_as_a_narrow_one(p: float) -> None:
    """Beyond the partial sort's reach a full sort decides; both keep the smallest set that reaches p."""
    scaled = torch.stack([torch.linspace(0, -0.5, 2000), torch.linspace(0, -50, 2000)])
    kept = filter_logits(scaled.clone(), None, torch.full((2,), p), None)
    for row in range(2):
        mass = scaled[row].softmax(0)
        size = int((kept[row] > -math.inf).sum())
        assert float(mass[:size].sum()) >= p - 1e-5
        assert size == 1 or float(mass[: size - 1].sum()) < p
