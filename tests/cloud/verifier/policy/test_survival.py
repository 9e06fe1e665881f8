"""How likely draft tokens are to be accepted."""

import random

import pytest

from cloud.verifier.policy.survival import LOOKUP_PRIOR, NODE_PRIOR, StreamSurvival, Survival, band, expected


def test_before_anything_is_seen_the_prior_holds() -> None:
    """Each token's chance includes that of all before it."""
    chances = StreamSurvival(Survival()).chances(3)
    assert chances == pytest.approx([NODE_PRIOR, NODE_PRIOR**2, NODE_PRIOR**3])


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.9])
def test_it_finds_the_rate(rate: float) -> None:
    """From drafts of four whose tokens are right with one probability."""
    rng, source = random.Random(3), Survival()
    for _ in range(2000):
        right = next((place for place in range(4) if rng.random() >= rate), 4)
        source.observe(right, mismatch=right < 4)
    assert source.mean == pytest.approx(rate, abs=0.08)
    assert source.rate(0) == pytest.approx(rate, abs=0.08)


def test_what_follows_a_mismatch_is_no_evidence() -> None:
    """Only the first wrong token counts, at its own place."""
    source = Survival()
    for _ in range(100):
        source.observe(1, mismatch=True)
    assert source.rate(0) > 0.85
    assert source.rate(1) < 0.15


def test_a_stream_that_does_worse_than_its_source_gets_shorter_drafts() -> None:
    """The same node drafts well for code and badly for verse."""
    source = Survival()
    good, bad = StreamSurvival(source), StreamSurvival(source)
    for _ in range(30):
        good.observe(4, mismatch=False)
        bad.observe(0, mismatch=True)
    assert expected(good.chances(8)) > 4 * expected(bad.chances(8))


def test_a_new_stream_starts_from_its_source() -> None:
    """What is known of a node is known at once."""
    source = Survival(LOOKUP_PRIOR)
    for _ in range(50):
        source.observe(4, mismatch=False)
    assert StreamSurvival(source).chances(1)[0] > 0.9


def test_a_source_that_turns_bad_is_found_out() -> None:
    """Old merit fades."""
    source = Survival()
    for _ in range(500):
        source.observe(4, mismatch=False)
    for _ in range(400):
        source.observe(0, mismatch=True)
    assert source.rate(0) < 0.35


def test_temperatures_have_bands() -> None:
    """Greedy is one of its own."""
    assert [band(t) for t in (0.0, 0.3, 0.5, 0.8, 1.0, 1.5)] == [0, 1, 1, 2, 2, 3]
