"""How a stream's seed and parameters become its noise."""

import pytest
import torch

from desktop.agent.engines.coupling import choose_rows, coupling
from shared.sampling import Sampling

SAMPLED = Sampling(temperature=1.0)


@pytest.mark.parametrize("seed", [0, -1, -(1 << 63), (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_every_seed_that_the_protocol_allows_can_be_drafted_with(seed: int) -> None:
    """Signed or unsigned: the same 64 bits give the same noise."""
    other = seed - (1 << 64) if seed >= 0 else seed + (1 << 64)
    logits = torch.zeros(1, 50)
    picks = [
        int(choose_rows(logits, [(how, length)]))
        for length in range(1, 20)
        if (how := coupling(SAMPLED, seed)) is not None
    ]
    assert len(set(picks)) > 5
    assert coupling(SAMPLED, seed) == coupling(SAMPLED, other)


def test_without_noise_there_is_nothing_to_couple() -> None:
    """Greedy streams, and sampled ones whose seed is not told."""
    assert coupling(Sampling(), 5) is None
    assert coupling(SAMPLED, None) is None
