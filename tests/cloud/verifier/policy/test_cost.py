"""What a step costs: interpolation, extrapolation, and learning from the steps that run."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.verifier.policy.cost import OUTLIER, StepCost

PROFILE = {1: 0.1, 4: 0.13, 8: 0.2}


@pytest.mark.parametrize(("tokens", "seconds"), [(1, 0.1), (2, 0.11), (4, 0.13), (6, 0.165), (8, 0.2), (16, 0.34)])
def test_between_sizes_it_is_linear_and_beyond_them_it_goes_on(tokens: int, seconds: float) -> None:
    """The last slope holds for more tokens than were profiled."""
    assert StepCost(PROFILE).seconds(tokens) == pytest.approx(seconds)


def test_more_tokens_never_cost_less() -> None:
    """A profile is noisy; a dip in it would draw steps to that size."""
    cost = StepCost({1: 0.1, 2: 0.09, 4: 0.12})
    assert cost.seconds(2) == cost.seconds(1)


def test_a_machine_that_slows_down_is_followed_at_every_size() -> None:
    """Only one size was seen; the others slow down with it, and the shape stays."""
    cost = StepCost(PROFILE)
    for _ in range(200):
        cost.observe(1, 0.2)
    assert cost.seconds(1) == pytest.approx(0.2, rel=0.02)
    assert cost.seconds(8) == pytest.approx(0.4, rel=0.35)


def test_a_wrong_shape_is_corrected() -> None:
    """The profile had no attention in it: long steps are dearer than it says."""
    cost = StepCost(PROFILE)
    for _ in range(300):
        cost.observe(1, 0.1)
        cost.observe(8, 0.3)
    assert cost.seconds(8) / cost.seconds(1) == pytest.approx(3.0, rel=0.1)


def test_one_disturbed_step_changes_little() -> None:
    """Another process took the cores for a minute."""
    cost = StepCost(PROFILE)
    cost.observe(1, 60.0)
    assert cost.seconds(1) <= 0.1 * OUTLIER**0.2


def test_without_a_profile_the_first_step_sets_the_scale() -> None:
    """Waiting is weighed in seconds, so they must be right soon."""
    cost = StepCost(None)
    assert not cost.profiled
    cost.observe(1, 0.025)
    assert cost.seconds(1) == pytest.approx(0.025)


@pytest.mark.parametrize("profile", [{0: 1.0}, {1: 0.0}, {1: -1.0}, {1: float("nan")}, {1: float("inf")}])
def test_an_impossible_profile_is_refused(profile: dict[int, float]) -> None:
    """It may come from a file that somebody wrote."""
    with pytest.raises(ValueError, match="step-cost profile"):
        StepCost(profile)


@given(
    st.dictionaries(st.integers(1, 512), st.floats(1e-4, 10.0), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 2000), st.floats(1e-5, 100.0)), max_size=30),
)
def test_it_stays_positive_and_rising(profile: dict[int, float], steps: list[tuple[int, float]]) -> None:
    """Whatever is measured."""
    cost = StepCost(profile)
    for tokens, seconds in steps:
        cost.observe(tokens, seconds)
    times = [cost.seconds(tokens) for tokens in (1, 2, 3, 5, 8, 13, 100, 512, 1000)]
    assert times[0] > 0
    assert all(left <= right * (1 + 1e-9) for left, right in itertools.pairwise(times))
