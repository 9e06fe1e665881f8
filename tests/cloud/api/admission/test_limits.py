"""A key's limits hold, and what is said about them is true."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.api.accounts.keys import Terms
from cloud.api.admission.bucket import Bucket
from cloud.api.admission.meter import Meter, duration
from shared.errors import InvalidInput, RateLimited

amounts = st.integers(1, 200)
gaps = st.floats(0, 100, allow_nan=False)


@given(st.integers(1, 100), st.lists(st.tuples(gaps, amounts), max_size=60))
def test_no_minute_gets_more_than_two_full_buckets(limit, wishes):
    """What was there plus what came in: never more than twice the limit in any 60 seconds."""
    bucket, now, taken = Bucket.full(limit, 0.0), 0.0, []
    for gap, amount in wishes:
        now += gap
        if amount <= limit and not bucket.wait_s(amount, now):
            bucket.take(amount, now)
            taken.append((now, amount))
    for start, _ in taken:
        assert sum(amount for at, amount in taken if start <= at < start + 60) <= 2 * limit + 1e-6


@given(st.integers(1, 1000), st.lists(st.tuples(gaps, st.integers(-50, 500)), max_size=20), st.integers(1, 3000))
def test_the_wait_is_true(limit, moves, amount):
    """After the time told there is enough, and just before it there is not."""
    bucket, now = Bucket.full(limit, 0.0), 0.0
    for gap, taken in moves:
        now += gap
        bucket.take(taken, now)
        assert bucket.left(now) <= limit
    wait = bucket.wait_s(amount, now)
    assert bucket.wait_s(amount, now + wait + 1e-6) < 1e-5
    if wait > 1e-3:
        assert bucket.wait_s(amount, now + wait - 1e-4) > 0


def test_a_clock_that_stands_or_goes_back_gives_nothing():
    """Time that does not pass refills nothing."""
    bucket = Bucket.full(60, 100.0)
    bucket.take(60, 100.0)
    assert bucket.left(100.0) == bucket.left(50.0) == 0
    bucket.take(0, 50.0)
    assert bucket.left(100.0) == 0 and bucket.left(101.0) == 1


def test_requests_and_tokens():
    """Each limit says when, and a refusal takes nothing."""
    meter = Meter(Terms(name="a", requests_per_minute=2, tokens_per_minute=600), 0.0)
    meter.take(1, 500, 0.0)
    with pytest.raises(RateLimited, match="600 tokens a minute") as refused:
        meter.take(1, 200, 0.0)
    assert refused.value.retry_after_s == 10.0
    meter.take(1, 100, 0.0)
    for _ in range(2):
        meter.count(0.0)
    for _ in range(3):
        with pytest.raises(RateLimited, match=r"2 requests a minute\. Try again in 30s") as refused:
            meter.count(0.0)
    assert refused.value.retry_after_s == 30.0
    meter.count(30.0)


def test_a_retry_counts_as_a_request_again():
    """A refusal over tokens or streams names a time at which the limit of requests lets the retry in, too."""
    meter = Meter(Terms(name="a", requests_per_minute=1, tokens_per_minute=600, concurrent_streams=1), 0.0)
    meter.take(1, 10, 0.0)
    meter.count(0.0)
    for tokens, word in ((600, "tokens"), (10, "choices")):
        with pytest.raises(RateLimited, match=word) as refused:
            meter.take(1, tokens, 0.0)
        assert refused.value.retry_after_s == 60.0
    meter.count(60.0)


def test_estimates_become_real():
    """What a request did not use comes back, what it used beyond is owed; a request larger than the limit goes when
    nothing is owed."""
    meter = Meter(Terms(name="a", tokens_per_minute=600), 0.0)
    meter.take(1, 5000, 0.0)
    assert dict(meter.headers(0.0))[b"x-ratelimit-remaining-tokens"] == b"0"
    meter.leave(1, 5000, 100, 0.0)
    assert dict(meter.headers(0.0))[b"x-ratelimit-remaining-tokens"] == b"500"
    meter.take(1, 100, 0.0)
    meter.leave(1, 100, 1000, 0.0)
    with pytest.raises(RateLimited) as refused:
        meter.take(1, 1, 0.0)
    assert refused.value.retry_after_s == pytest.approx(50.1)
    assert dict(meter.headers(0.0))[b"x-ratelimit-reset-tokens"] == b"1m50s"


def test_streams():
    """A request has as many as choices; one that asks for more than ever allowed is wrong, not early."""
    meter = Meter(Terms(name="a", concurrent_streams=3, tokens_per_minute=100), 0.0)
    meter.take(2, 1, 0.0)
    with pytest.raises(RateLimited, match="has 2"):
        meter.take(2, 1, 0.0)
    meter.take(1, 1, 0.0)
    meter.leave(2, 1, 1, 0.0)
    meter.take(2, 1, 0.0)
    with pytest.raises(InvalidInput) as refused:
        meter.take(4, 1, 0.0)
    assert refused.value.param == "n"
    assert dict(meter.headers(0.0))[b"x-ratelimit-remaining-tokens"] == b"97" and meter.streams == 3


def test_no_limit_no_header():
    """A key without limits hears of none."""
    meter = Meter(Terms(name="a"), 0.0)
    for _ in range(1000):
        meter.count(0.0)
        meter.take(8, 10**9, 0.0)
    assert meter.headers(0.0) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0001, "1ms"), (0.12, "120ms"), (1.5, "1.5s"), (59.9991, "1m0s"), (60, "1m0s"), (3661.2, "1h1m2s")],
)
def test_durations(seconds, text):
    """As OpenAI's API writes them, never shorter than the truth."""
    assert duration(seconds) == text
