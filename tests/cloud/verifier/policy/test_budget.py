"""Which draft slots a step takes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.verifier.policy.budget import allocate
from cloud.verifier.policy.cost import StepCost

FLAT = StepCost({1: 1.0, 512: 1.0})
PER_TOKEN = StepCost({1: 1.0, 2: 2.0})


def powers(rate: float, count: int) -> list[float]:
    return [rate**place for place in range(1, count + 1)]


def test_where_tokens_are_free_all_are_taken() -> None:
    """A GPU below its knee."""
    assert allocate([powers(0.5, 8), powers(0.9, 4)], 0, FLAT).lengths == [8, 4]


def test_where_every_token_costs_the_same_none_is_taken() -> None:
    """Length 0 under load is a normal outcome: a draft can never beat a token that is certain."""
    assert allocate([powers(0.9, 8)] * 4, 0, PER_TOKEN).lengths == [0, 0, 0, 0]


def test_slots_go_to_those_who_use_them_best() -> None:
    """One budget for all streams."""
    cost = StepCost({1: 1.0, 8: 1.05, 9: 3.0, 64: 30.0})
    lengths = allocate([powers(0.95, 8), powers(0.5, 8)], 0, cost).lengths
    assert sum(lengths) == 6
    assert lengths[0] > lengths[1]


def test_what_else_the_step_computes_takes_the_cheap_slots() -> None:
    """A prefill of hundreds of tokens leaves none."""
    cost = StepCost({1: 1.0, 8: 1.0, 16: 2.0, 64: 8.0})
    assert allocate([powers(0.8, 4)] * 2, 0, cost).lengths == [3, 3]
    assert allocate([powers(0.3, 4)] * 2, 60, cost).lengths == [1, 1]
    assert allocate([powers(0.2, 4)] * 2, 60, cost).lengths == [0, 0]


def test_what_gains_next_to_nothing_is_not_tried() -> None:
    """Costs and chances are estimates: a promised two per cent may be a loss."""
    cost = StepCost({1: 1.0, 2: 1.5})
    assert allocate([[0.53]], 0, cost).lengths == [1]
    assert allocate([[0.53]], 0, cost, 1.05).lengths == [0]
    assert allocate([[0.6]], 0, cost, 1.05).lengths == [1]


def test_no_stream_is_no_step_to_plan() -> None:
    """Only prefill."""
    assert allocate([], 0, FLAT).lengths == []


chance_lists = st.lists(
    st.lists(st.floats(0.01, 0.99), max_size=3).map(
        lambda rates: list(itertools.accumulate(rates, lambda left, right: left * right))
    ),
    min_size=1,
    max_size=3,
)


@given(chance_lists, st.integers(0, 3), st.lists(st.floats(0.1, 5.0), min_size=13, max_size=13))
def test_no_other_choice_is_better(chances: list[list[float]], others: int, times: list[float]) -> None:
    """Against every combination of lengths, for any rising table of costs."""
    cost = StepCost(dict(enumerate(times, 1)))
    step = allocate(chances, others, cost)

    def rate(lengths: tuple[int, ...]) -> float:
        gain = len(chances) + sum(sum(draft[:length]) for draft, length in zip(chances, lengths, strict=True))
        sunk = cost.seconds(len(chances) + others) - cost.seconds(len(chances))
        return gain / (cost.seconds(len(chances) + others + sum(lengths)) - sunk)

    best = max(rate(lengths) for lengths in itertools.product(*(range(len(draft) + 1) for draft in chances)))
    assert step.rate == pytest.approx(best)
    assert rate(tuple(step.lengths)) == pytest.approx(best)
