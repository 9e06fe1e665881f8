"""Back-off delays: bounded, growing, random, without end."""

import random

import pytest

from shared.backoff import Backoff


class Highest(random.Random):
    """A source that always gives the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_ceilings_double_up_to_the_cap_and_never_stop() -> None:
    """0.5 s, 1 s, … 60 s, then 60 s for ever, without overflow."""
    backoff = Backoff(Highest())
    assert [backoff.next() for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert all(backoff.next() == 60 for _ in range(5000))


def test_delays_use_the_whole_range_below_the_ceiling() -> None:
    """Full jitter: anything from 0 to the ceiling."""
    backoff = Backoff(random.Random(1))
    for _ in range(10):
        backoff.next()
    delays = [backoff.next() for _ in range(2000)]
    assert 0 <= min(delays) < 2 and 58 < max(delays) <= 60
    assert 27 < sum(delays) / len(delays) < 33


def test_reset_begins_again() -> None:
    """After a success the next failure waits shortly."""
    backoff = Backoff(Highest())
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.next() == 0.5


def test_the_source_is_injected() -> None:
    """The same source gives the same delays."""
    one, two = Backoff(random.Random(7)), Backoff(random.Random(7))
    assert [one.next() for _ in range(20)] == [two.next() for _ in range(20)]


def test_senseless_bounds_are_refused() -> None:
    """A base of 0 would spin."""
    with pytest.raises(ValueError, match="base_s"):
        Backoff(random.Random(), base_s=0)
