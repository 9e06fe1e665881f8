"""Which seed a request samples with."""

from hypothesis import given
from hypothesis import strategies as st

from cloud.verifier.sampling.seed import effective_seed


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_requests_own_seed_is_taken_as_it_is(seed: int) -> None:
    """Whatever engine and request."""
    assert effective_seed(seed, 5, "a") == seed


@given(st.integers(2**63 - 8, 2**63 + 8))
def test_seeds_of_further_choices_wrap_around(seed: int) -> None:
    """The engine adds the choice's number; beyond 64 bits the step would fail, and the engine with it."""
    wrapped = effective_seed(seed, 0, "a")
    assert -(2**63) <= wrapped < 2**63
    assert (wrapped - seed) % 2**64 == 0
