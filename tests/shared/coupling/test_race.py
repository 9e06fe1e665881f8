"""The fast ways to a choice give what adding noise to every filtered logit gives."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.coupling import choice, head, race
from shared.coupling.choice import RowParameters, choose
from shared.coupling.filters import filter_logits
from shared.noise import gumbel


def plainly(logits: torch.Tensor, rows: RowParameters) -> torch.Tensor:
    """The definition: filter, scale, noise for every token, argmax."""
    tokens = torch.arange(logits.shape[1], dtype=torch.int32)
    noise = gumbel.noise(rows.seed.unsqueeze(1), rows.position.unsqueeze(1), tokens, torch)
    scaled = filter_logits(logits / rows.temperature.unsqueeze(1), rows.top_k, rows.top_p, rows.min_p)
    return (scaled + noise).argmax(dim=1)


def parameters(count: int, seed: int, top_k: int, top_p: float, min_p: float) -> RowParameters:
    """The filters in every second row; each row has its own temperature, seed and position."""
    on = torch.arange(count) % 2 == 0
    return RowParameters(
        temperature=torch.linspace(0.3, 1.8, count),
        seed=torch.arange(count) * 1_000_003 - seed,
        position=torch.arange(count) * 17 + seed,
        top_k=torch.where(on, top_k, 0),
        top_p=torch.where(on, torch.tensor(top_p), torch.tensor(1.0)),
        min_p=torch.where(on, torch.tensor(min_p), torch.tensor(0.0)),
    )


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    st.integers(0, 10_000),
    st.sampled_from([9, 300, 5003, 20_000]),
    st.sampled_from([0.01, 1.0, 4.0, 300.0]),
    st.sampled_from([0, 1, 3, 50, 900]),
    st.sampled_from([1.0, 0.999, 0.9, 0.3]),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.booleans(),
)
def test_choices_are_those_of_the_definition(
    seed: int, vocabulary: int, spread: float, top_k: int, top_p: float, min_p: float, coarse: bool
) -> None:
    """Flat and peaked logits, with ties (coarse) and masks, filters that keep one token or most of them."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, vocabulary, generator=generator) * spread
    if coarse:
        logits = logits.bfloat16().float()
    logits[3, : vocabulary - 4] = -math.inf
    rows = parameters(8, seed, top_k, top_p, min_p)
    assert choose(logits, rows).tolist() == plainly(logits, rows).tolist()


@pytest.mark.parametrize("block", [1 << 10, 1 << 12, 1 << 20])
def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """A vocabulary that no block size divides."""
    monkeypatch.setattr(race, "BLOCK", {"cpu": block})
    monkeypatch.setattr(race, "NARROWEST", 37)
    logits = torch.randn(8, 5003, generator=torch.Generator().manual_seed(2)) * 3
    rows = parameters(8, 2, 0, 1.0, 0.0)
    assert choose(logits, rows).tolist() == plainly(logits, rows).tolist()


def test_few_tokens_pass_to_the_logarithm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 rows of 20,000 tokens, less than one in a hundred: that is where the speed comes from."""
    seen = []
    noise = race._noise

    def counted(prefix: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        seen.append(tokens.numel())
        return noise(prefix, tokens)

    monkeypatch.setattr(race, "_noise", counted)
    logits = torch.randn(64, 20_000, generator=torch.Generator().manual_seed(3)) * 3
    choose(logits, RowParameters(torch.full((64,), 0.8), torch.arange(64), torch.arange(64)))
    assert 0 < sum(seen) < 64 * 20_000 / 100


def test_narrow_filters_never_touch_the_whole_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are decided on their head alone are not hashed otherwise; a head too narrow is noticed."""
    logits = torch.randn(6, 20_000, generator=torch.Generator().manual_seed(5)) * 4
    rows = RowParameters(torch.ones(6), torch.arange(6), torch.arange(6), top_k=torch.full((6,), 40))
    expected = plainly(logits, rows).tolist()

    def never(*_: object) -> torch.Tensor:
        raise AssertionError("hashed the whole vocabulary")

    with monkeypatch.context() as patch:
        patch.setattr(choice, "win_of_all", never)
        assert choose(logits, rows).tolist() == expected
    wide = RowParameters(torch.full((6,), 5.0), torch.arange(6), torch.arange(6), top_p=torch.full((6,), 0.99))
    kept = head.filtered_head(logits, wide.temperature, None, wide.top_p, None, head.WIDTH)
    assert not bool(kept.whole.any())
    assert choose(logits, wide).tolist() == plainly(logits, wide).tolist()
