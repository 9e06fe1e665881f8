"""Whether a step waits for drafts on their way."""

import pytest

from cloud.verifier.policy.cost import StepCost
from cloud.verifier.policy.response import Responses
from cloud.verifier.policy.waiting import LOOKS, Outlook, best_wait

COST = StepCost({1: 1.0, 5: 1.1, 9: 1.2, 16: 2.0, 32: 4.0})
CHANCES = [0.85**place for place in range(1, 9)]


def away(first_in: float, spacing: float = 0.02, patience: float = 100.0) -> Outlook:
    """A stream that has nothing and expects a whole draft."""
    return Outlook(later=CHANCES, first_in=first_in, spacing=spacing, patience=patience)


HERE = Outlook(now=CHANCES)


@pytest.mark.parametrize(("first_in", "waits"), [(0.05, True), (0.4, True), (1.5, False), (4.0, False)])
def test_alone_it_waits_only_for_what_is_near(first_in: float, waits: bool) -> None:
    """A step of plain decoding takes 1 s: for a draft that is further away, that is the better use of the time."""
    wait, step = best_wait([away(first_in)], 0, COST, 1.0)
    assert (wait > 0) is waits
    assert step.lengths[0] > 0 if waits else step.lengths == [0]


def test_it_waits_until_a_useful_part_is_there() -> None:
    """Not for the first token only, when the others follow closely."""
    wait, step = best_wait([away(0.1)], 0, COST, 1.0)
    assert wait >= 0.1 + 4 * 0.02
    assert step.lengths[0] >= 5


def test_tokens_that_trickle_are_not_waited_for() -> None:
    """One right token just in time would make a stream stand still for the rest."""
    assert best_wait([away(0.1, spacing=2.0)], 0, COST, 1.0)[0] == pytest.approx(0.1)
    assert best_wait([Outlook(CHANCES[:1], CHANCES, 1, 2.0, 2.0, 100.0)], 0, COST, 1.0)[0] == 0


def test_seven_streams_do_not_wait_for_the_eighth() -> None:
    """Their time is worth more than its draft; the same wait alone pays."""
    assert best_wait([away(0.4)], 0, COST, 1.0)[0] > 0
    assert best_wait([HERE] * 7 + [away(0.4)], 0, COST, 1.0)[0] == 0


def test_all_wait_briefly_for_one_another() -> None:
    """A step is run once for all of them: gathering."""
    assert best_wait([away(0.02), away(0.05), HERE], 0, COST, 1.0)[0] >= 0.05


def test_nobody_waits_while_there_is_other_work() -> None:
    """A prompt is to be computed."""
    assert best_wait([away(0.1)], 1, COST, 0.0)[0] == 0


def test_a_price_of_nothing_waits_for_everything_within_patience() -> None:
    """And no longer than that."""
    assert best_wait([away(50.0)], 0, COST, 0.0)[0] == pytest.approx(50.0 + 7 * 0.02)
    assert best_wait([away(50.0, patience=50.05)], 0, COST, 0.0)[0] == pytest.approx(50.04)
    assert best_wait([away(50.0, patience=10.0)], 0, COST, 0.0)[0] == 0


def test_a_source_that_is_always_wrong_is_never_waited_for() -> None:
    """Whenever it answers."""
    wrong = Outlook(later=[1e-3] * 8, first_in=0.01, spacing=0.01, patience=10.0)
    assert best_wait([wrong], 0, COST, 0.5)[0] == 0


def test_many_streams_cost_no_more_looks() -> None:
    """The scheduler runs between steps; 200 streams have 1,600 moments."""
    calls = 0

    class Counted(StepCost):
        def seconds(self, tokens: int) -> float:
            nonlocal calls
            calls += 1
            return super().seconds(tokens)

    best_wait([away(0.001 * index) for index in range(1, 201)], 0, Counted({1: 1.0, 2000: 9.0}), 1.0)
    assert calls <= (LOOKS + 2) * (1600 + 2)


def test_a_response_is_expected_when_most_have_come() -> None:
    """Of ten, the eighth; past it the slowest; past that nobody knows."""
    responses = Responses()
    assert responses.due(0.0) is None
    for tenth in range(1, 11):
        responses.responded(tenth / 10)
    assert responses.due(0.0) == pytest.approx(0.8)
    assert responses.due(0.85) == pytest.approx(1.0)
    assert responses.due(1.1) is None


def test_the_pace_of_tokens_is_measured() -> None:
    """Blocks count by their tokens."""
    responses = Responses()
    for _ in range(50):
        responses.followed(4, 0.2)
    assert responses.spacing == pytest.approx(0.05, rel=0.01)
