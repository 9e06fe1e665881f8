"""The noise: one definition, two array libraries, vectors for other languages."""

import json
import math
from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from shared.noise import gumbel, seeds

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())


def reference_hash(seed: int, position: int, token: int) -> int:
    """MurmurHash3 x86 32-bit over four words with length word 16, in plain integers."""
    mask = 0xFFFFFFFF

    def rotate(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & mask

    state = 0
    for word in (seed & mask, (seed >> 32) & mask, position & mask, token):
        word = rotate(word * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
        state = (rotate(state ^ word, 13) * 5 + 0xE6546B64) & mask
    state ^= 16
    state = (state ^ (state >> 16)) * 0x85EBCA6B & mask
    state = (state ^ (state >> 13)) * 0xC2B2AE35 & mask
    return state ^ (state >> 16)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31 - 1))
def test_both_libraries_give_the_reference_hash(seed: int, position: int, token: int) -> None:
    """Vectorised code against plain integer arithmetic."""
    expected = reference_hash(seed % 2**64, position, token)
    in_numpy = gumbel.hash_tokens(
        gumbel.prefix(np.array([seed]), np.array([position]), np), np.array([token], dtype=np.int32)
    )
    in_torch = gumbel.hash_tokens(
        gumbel.prefix(torch.tensor([seed]), torch.tensor([position]), torch), torch.tensor([token], dtype=torch.int32)
    )
    assert int(in_numpy[0]) & 0xFFFFFFFF == expected
    assert int(in_torch[0]) & 0xFFFFFFFF == expected


def test_the_vectors_hold() -> None:
    """The file that other languages are tested with, in plain integers, NumPy and torch."""
    vectors = VECTORS["vectors"]
    rows = [(int(each["seed"]), int(each["position"]), each["token"]) for each in vectors]
    for (seed, position, token), each in zip(rows, vectors, strict=True):
        assert reference_hash(seed, position, token) == each["hash"]
    seed, position, token = (list(column) for column in zip(*rows, strict=True))
    in_numpy = gumbel.hash_tokens(
        gumbel.prefix(np.array(seed), np.array(position), np), np.array(token, dtype=np.int32)
    )
    in_torch = gumbel.hash_tokens(
        gumbel.prefix(torch.tensor(seed), torch.tensor(position), torch), torch.tensor(token, dtype=torch.int32)
    )
    for hashed, xp in ((in_numpy, np), (in_torch, torch)):
        uniform = gumbel.uniform(hashed, xp)
        noise = gumbel.from_uniform(uniform, xp)
        for index, each in enumerate(vectors):
            assert int(hashed[index]) & 0xFFFFFFFF == each["hash"]
            assert float(uniform[index]) == float(np.float32(each["uniform"]))
            assert math.isclose(float(noise[index]), each["noise"], rel_tol=1e-6, abs_tol=1e-6)


def test_the_vectors_cover_what_implementations_get_wrong() -> None:
    """Long and negative seeds, long and negative positions, and the ends of the uniform."""
    vectors = VECTORS["vectors"]
    seeds_there = [int(each["seed"]) for each in vectors]
    positions = [int(each["position"]) for each in vectors]
    assert min(seeds_there) == -(2**63) and max(seeds_there) == 2**63 - 1
    assert min(positions) < 0 and max(positions) > 2**32
    assert min(each["hash"] for each in vectors) < 2**10 and max(each["hash"] for each in vectors) > 2**32 - 2**10
    assert all(gumbel.SMALLEST < each["noise"] < gumbel.LARGEST for each in vectors)


def test_noise_is_standard_gumbel() -> None:
    """Mean, variance and distribution over a million draws (Kolmogorov-Smirnov at 0.001)."""
    count = 1_000_000
    noise = gumbel.noise(np.array([[12345]]), np.array([[77]]), np.arange(count, dtype=np.int32)[None], np)[0]
    assert abs(float(noise.mean()) - 0.5772) < 0.01
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.02
    ordered = np.sort(noise.astype(np.float64))
    distribution = np.exp(-np.exp(-ordered))
    distance = float(np.abs(distribution - np.arange(1, count + 1) / count).max())
    assert distance < 1.95 / math.sqrt(count)


def test_seeds_and_positions_do_not_correlate() -> None:
    """Neighbouring seeds and neighbouring positions look unrelated."""
    tokens = np.arange(50_000, dtype=np.int32)
    base = gumbel.noise(np.array([[5]]), np.array([[9]]), tokens[None], np)[0]
    for seed, position in ((6, 9), (5, 10), (5 + 2**32, 9), (9, 5)):
        other = gumbel.noise(np.array([[seed]]), np.array([[position]]), tokens[None], np)[0]
        assert abs(float(np.corrcoef(base, other)[0, 1])) < 0.02


def test_the_bounds_hold_at_the_ends_of_the_uniform() -> None:
    """Pruning relies on them."""
    ends = np.array([2.0**-33, 1.0 - 2.0**-24, 1.0], dtype=np.float32)
    noise = gumbel.from_uniform(ends, np)
    assert float(noise.max()) < gumbel.LARGEST
    assert float(noise.min()) > gumbel.SMALLEST


def test_seeds_are_valid_for_engines_and_clients() -> None:
    """Non-negative, below 2**63, the same on every rank."""
    assert all(0 <= seeds.fresh() < 2**63 for _ in range(100))
    assert seeds.derived(0, "a") == seeds.derived(0, "a") != seeds.derived(0, "b")
    assert seeds.derived(0, "a") != seeds.derived(1, "a")
