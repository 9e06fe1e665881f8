"""The simulated day behind docs/economics.md."""

from dataclasses import replace

import numpy as np
import pytest

from bench.economics.day import BILLION, Asks, Scenario, run
from bench.economics.drafts import Recorded, beside, gains, tables
from bench.economics.nodes import Terms
from bench.economics.verifier import Drafting, by_name, steps
from cloud.api.market.pricebook import WHOLE, Rates

TINY = Scenario(peak=200, nodes=Terms(count=60), minutes=30)


def test_the_same_scenario_gives_the_same_day() -> None:
    """Nothing but the seed is chance; another seed is another day."""
    first, second, other = run(TINY), run(TINY), run(replace(TINY, seed=8))
    assert first.nexus.minute == second.nexus.minute
    assert first.nexus.earned.tolist() == second.nexus.earned.tolist()
    assert (first.nexus.cost, first.plain.cost) == (second.nexus.cost, second.plain.cost)
    assert first.nexus.earned.tolist() != other.nexus.earned.tolist()


@pytest.mark.parametrize("count", [5, 60])
def test_what_is_paid_for_drafts_is_what_the_nodes_get_within_the_bound(count: int) -> None:
    """To the nano-dollar, with nodes in plenty and with too few; and no more than a share of the output's price."""
    outcome = run(replace(TINY, nodes=Terms(count=count)))
    books = outcome.nexus
    assert books.drafts == int(books.earned.sum()) > 0
    most = books.tokens * outcome.scenario.token_price * 1e-6 * BILLION * Rates().share / WHOLE
    assert books.drafts <= most
    assert books.earned[books.served_min == 0].sum() == 0


def test_without_nodes_a_day_is_the_plain_day() -> None:
    """The comparison favours nobody: both sides are the same code."""
    outcome = run(replace(TINY, nodes=Terms(count=0)))
    assert outcome.nexus.cost == outcome.plain.cost
    assert outcome.nexus.tokens == outcome.plain.tokens
    assert outcome.nexus.minute == outcome.plain.minute
    assert outcome.nexus.drafts == 0 and outcome.saving == 0.0


def test_both_days_answer_the_same_demand() -> None:
    """Costs are compared at equal output."""
    outcome = run(TINY)
    assert outcome.nexus.tokens == outcome.plain.tokens
    assert outcome.nexus.short_min == outcome.plain.short_min == 0


def test_no_price_is_above_the_value_and_with_too_few_nodes_it_is_the_value() -> None:
    """The market's cap holds in every interval; where every node is needed, nothing but the cap sets the price."""
    minute = run(TINY).nexus.minute
    assert all(price <= value for price, value in zip(minute["price"], minute["value"], strict=True))
    assert np.mean(minute["price"]) < 0.5 * np.mean(minute["value"])
    few = run(replace(TINY, peak=600, nodes=Terms(count=3))).nexus.minute
    served = [pair for pair in zip(few["price"], few["value"], few["served"], strict=True) if pair[2]]
    assert served and all(price == value for price, value, _ in served)


def test_asks_at_the_wall_pay_for_the_electricity() -> None:
    """An owner who asks for what the PC draws has it at the end of the day; asks from the card alone do not suffice."""
    honest, blind = run(TINY), run(replace(TINY, asks=Asks.CARD))
    assert honest.hourly()[1] > 0
    assert honest.losing_share < 0.15 < blind.losing_share


def test_drafts_gain_less_from_afar_and_nothing_where_none_is_right() -> None:
    """The table of a stream's gains, by length, distance and pace."""
    table = tables()[1]
    assert (np.diff(table.accepted[4, :, 2]) <= 0.05).all()
    assert table.accepted[4, 0, 2] > 2 * table.accepted[4, -1, 2] > 0
    assert (table.accepted <= table.slots).all() and (table.marginal <= table.accepted).all()
    nothing = np.zeros(200, dtype=np.int64)
    assert not gains(Recorded(nothing, nothing, nothing)).accepted.any()


def test_a_draft_that_is_always_right_and_there_is_accepted_whole() -> None:
    """Beside the verifier k tokens of k; from afar as many as arrive in a step."""
    right = np.arange(900, 0, -1)
    of = Recorded(right, np.zeros(900, dtype=np.int64), np.zeros(900, dtype=np.int64))
    assert beside(of)[1].tolist() == pytest.approx(list(range(9)), abs=0.1)
    assert gains(of).accepted[4, 4, 0] == pytest.approx(4 * 0.95, rel=0.03)


def test_a_fuller_verifier_checks_shorter_drafts() -> None:
    """The length falls with the load, and nobody's drafts are checked where that brings less than the least gain."""
    table, verifier = tables()[1], by_name("table")
    near = Drafting(np.array([0.012]), np.array([0.004]), np.array([1.0]))
    lengths = [steps(verifier, streams, near, table).length for streams in (4, 32, 128, 1000)]
    assert lengths[0] >= 4 and lengths[1] >= lengths[2] >= lengths[3]
    assert steps(verifier, 1000, near, table).rate < 1.1 * verifier.plain(1000)
