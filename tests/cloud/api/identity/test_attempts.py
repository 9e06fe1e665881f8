"""Bounded attempts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.identity import Clock

from cloud.api.identity import attempts as module
from cloud.api.identity.attempts import Attempts, network_of
from shared.errors import RateLimited


def test_attempts_run_out_and_come_back(clock):
    """Evenly; the refusal says when; others are not touched."""
    attempts = Attempts(3, 300, clock, "attempts to sign in")
    for _ in range(3):
        attempts.take("a")
    with pytest.raises(RateLimited, match=r"Too many attempts to sign in. Try again in 100 s") as caught:
        attempts.take("a")
    assert caught.value.retry_after_s == pytest.approx(100)
    attempts.take("b")
    clock.now += 100
    attempts.take("a")
    with pytest.raises(RateLimited):
        attempts.take("a")


def test_a_success_does_not_count(clock):
    """What was taken is given back, never more."""
    attempts = Attempts(2, 100, clock, "x")
    for _ in range(50):
        attempts.take("a")
        attempts.give_back("a")
    attempts.give_back("a")
    attempts.take("a")
    attempts.take("a")
    with pytest.raises(RateLimited):
        attempts.take("a")


def test_memory_is_bounded(clock, monkeypatch):
    """The name that has not tried for longest is forgotten first."""
    monkeypatch.setattr(module, "REMEMBERED", 3)
    attempts = Attempts(1, 100, clock, "x")
    for name in "abcd":
        attempts.take(name)
    assert len(attempts._tried) == 3
    attempts.take("a")
    with pytest.raises(RateLimited):
        attempts.take("d")


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(1, 5))))
def test_no_pattern_gets_more(steps):
    """In any time there are at most the limit and what came back meanwhile."""
    clock = Clock()
    attempts = Attempts(5, 100, clock, "x")
    began, taken = clock.now, 0
    for wait, tries in steps:
        clock.now += wait
        for _ in range(tries):
            try:
                attempts.take("a")
                taken += 1
            except RateLimited:
                pass
    assert taken <= 5 + (clock.now - began) * 5 / 100 + 1e-6


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("unknown", "unknown"),
        ("x" * 500, "x" * 64),
    ],
)
def test_what_counts_as_one_address(address, network):
    """A machine has a whole IPv6 network for itself, and one IPv4 address."""
    assert network_of(address) == network
