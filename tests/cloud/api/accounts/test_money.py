"""Amounts and prices are exact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.api.accounts.money import Nano, dollars, nano, pico
from cloud.api.accounts.prices import Bounds, Price


@given(st.integers(0, 10**18))
def test_dollars_and_back(amount):
    """Any amount is written without loss and without an exponent."""
    text = dollars(amount)
    assert nano(text) == amount and "E" not in text


@pytest.mark.parametrize(
    ("text", "amount"),
    [("0", 0), ("12.50", 12_500_000_000), ("0.000000001", 1), ("1.0000000000", 10**9), ("1000000000", 10**18)],
)
def test_amounts(text, amount):
    """As people write them; zeros at the end do not matter."""
    assert nano(text) == amount


@pytest.mark.parametrize(
    "text", ["", "-1", "1e3", "1,5", ".5", "5.", "٣", "0.0000000001", "1000000001", "99999999999", " 1", "$1", "nan"]
)
def test_no_amounts(text):
    """Anything else is refused."""
    with pytest.raises(ValueError, match=r"dollars|places"):
        nano(text)


def test_cost():
    """Cached prompt tokens have their own price; the sum is rounded once."""
    price = Price(pico("0.0000025"), pico("0.00000125"), pico("0.00001"))
    assert price.cost(1000, 400, 50) == 600 * 2500 + 400 * 1250 + 50 * 10_000
    fine = Price(pico("0.0000000375"), pico("0"), pico("0"))
    assert (fine.cost(1, 0, 0), fine.cost(2, 0, 0), fine.cost(3, 3, 0)) == (38, 75, 0)
    assert Price().cost(10**6, 0, 10**6) == 0


sizes = st.integers(0, 300)


@given(st.builds(Price, *[st.integers(0, 5000)] * 3), sizes, sizes, sizes, st.data())
def test_the_worst_case_is_never_exceeded(price, most_prompt, most_completion, context, data):
    """Whatever an answer within its bounds takes, it costs no more than what was set aside."""
    bounds = Bounds(most_prompt, most_completion, data.draw(st.integers(1, 8)), context)
    tokens = data.draw(st.integers(0, min(most_prompt, context)))
    each = min(most_completion, context - tokens)
    outputs = sum(data.draw(st.integers(0, each)) for _ in range(bounds.choices))
    assert price.cost(tokens, data.draw(st.integers(0, tokens)), outputs) <= price.worst(bounds)


def test_the_worst_case_is_no_looser_than_the_context():
    """Prompt and output share the context: the dearer of the two is taken to fill it."""
    price = Price(pico("0.001"), pico("0.001"), pico("0.002"))
    assert price.worst(Bounds(100, 100, 1, 120)) == Nano(20 * 10**6 + 100 * 2 * 10**6)
    assert Price(pico("0.003")).worst(Bounds(100, 100, 1, 120)) == Nano(100 * 3 * 10**6)
    assert price.worst(Bounds(100, 50, 2, None)) == Nano(100 * 10**6 + 100 * 2 * 10**6)
