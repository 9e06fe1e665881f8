"""Value, spot price and payout bound: pure arithmetic on integers."""

import random
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.money import Nano, Pico
from cloud.api.accounts.prices import Price
from cloud.api.ledger.settlement import NodeWork
from cloud.api.market.bound import Claim, bounded, merged, most, output_cost, shares
from cloud.api.market.cost import StepCosts
from cloud.api.market.energy import Meter, cost_of, default_ask, net, plain_watt_hours_per_thousand
from cloud.api.market.minutes import NodeMinute, SpotMinute
from cloud.api.market.pricebook import PriceBook, PriceVersion, Rates, RatesVersion
from cloud.api.market.profile import read_profile
from cloud.api.market.spot import Offer, Spot, by_turns, clear
from cloud.api.market.surplus import Candidate, accepted_per_s, pick
from cloud.api.market.value import Load, saved_ns, token_value, worth
from shared.ids import AccountId, NodeId

H100 = Path(__file__).parents[4] / "bench/data/step-cost-2xh100-70b-fp8.json"
VERIFIER = Pico(4_400_000_000_000 // 3600)
"""$4.40 an hour."""


def offer(name: str, ask: int, streams: int = 8, owner: str | None = None) -> Offer:
    return Offer(NodeId(name), AccountId(owner or f"acct_{name}"), Pico(ask), streams)


def claim(node: str, marginal: int, price: int, owner: str | None = "acct_o", accepted: int | None = None) -> Claim:
    work = NodeWork(
        node=NodeId(node),
        drafted=marginal + 5,
        accepted=marginal if accepted is None else accepted,
        marginal=marginal,
        first=3,
        last=90,
    )
    return Claim(work, None if owner is None else AccountId(owner), Pico(price), "spot-1")


def test_the_price_of_its_time_counts() -> None:
    """Versions take effect at their time, the last added of several at once; a model without one is free."""
    one, two, three = (PriceVersion(name, "big", since, Price()) for name, since in (("a", 0), ("b", 10), ("c", 10)))
    book = PriceBook().adding(one, three, two)
    assert [book.price("big", at).version for at in (0, 9.9, 10)] == ["a", "a", "b"]
    assert book.price("small", 5).version == "free" and book.rate(5).rates == Rates()
    assert book.adding(RatesVersion("r", 20, Rates(share=1))).rate(20).rates.share == 1


def test_rates_that_cannot_be_are_refused() -> None:
    """A share is at most the whole."""
    with pytest.raises(ValueError, match="share"):
        Rates(share=10_001)
    with pytest.raises(ValueError, match="tariff"):
        Rates(tariff=Nano(-1))


def test_a_token_is_worth_the_verifier_time_that_it_saves() -> None:
    """By hand: 10 streams in 20 ms give 10 tokens; 5 accepted of 10 drafts in a step of 22 ms save 10 - 2 ms."""
    costs = StepCosts({10: 20_000_000, 20: 22_000_000})
    load = Load(streams=10, drafted=10, accepted=5)
    assert saved_ns(costs, load) == 5 * 2_000_000 - 2_000_000
    assert token_value(costs, Pico(10**9), load) == 10**9 * 8_000_000 // (5 * 10**9)


def test_value_falls_as_the_verifier_fills_and_never_below_nothing() -> None:
    """With the published profile of two H100: dollars a million at small batches, nothing where it computes all day."""
    costs = StepCosts(read_profile(H100))
    values = [token_value(costs, VERIFIER, Load(b, 4 * b, 2 * b)) for b in (1, 8, 32, 64, 128, 256, 512)]
    assert all(left >= right for left, right in pairwise(values))
    assert values[0] > 20_000_000 and 200_000 < values[3] < 400_000 and values[-1] == 0


def test_without_a_price_of_the_verifier_the_customers_counts() -> None:
    """The nodes' share of it; the same while no step has been seen."""
    price = Price(completion=Pico(500_000))
    assert worth(StepCosts({1: 1}), Rates(), price, Load(1, 1, 1)) == 300_000
    assert worth(StepCosts(), Rates(verifier=VERIFIER), price, Load(1, 1, 1)) == 300_000


def test_step_costs_are_learned_and_never_fall() -> None:
    """From steps of any size; one that was disturbed moves them little."""
    costs = StepCosts()
    assert not costs.known and costs.ns(5) == 0
    for _ in range(50):
        costs.observe(4, 20_000_000)
        costs.observe(60, 30_000_000)
    assert costs.ns(4) == 20_000_000 and 20_000_000 < costs.ns(30) < costs.ns(60) <= costs.ns(1000)
    before = costs.ns(4)
    costs.observe(4, 10**12)
    assert costs.ns(4) <= before * 5 // 4
    with pytest.raises(ValueError, match="positive"):
        StepCosts({0: 5})


@pytest.mark.parametrize("text", ["[]", "{}", '{"1": "x"}', '{"0": 1}', '{"1": -1}', "no"])
def test_a_wrong_profile_is_refused_in_words(tmp_path: Path, text: str) -> None:
    """It names the file."""
    path = tmp_path / "cost.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"cost\.json"):
        read_profile(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read_profile(tmp_path / "none.json")


# --- spot price ------------------------------------------------------------------------------------


def test_the_price_is_the_best_ask_that_is_not_served() -> None:
    """Two nodes carry the demand; the one that would have been the third to be needed sets their price."""
    spot = clear([offer("c", 60), offer("a", 20), offer("b", 40), offer("d", 80)], 20, Pico(100))
    assert (spot.price, spot.setter, spot.served) == (60, "c", {"a", "b"})


def test_the_value_is_the_price_where_all_are_needed() -> None:
    """Asks above it are not among them."""
    assert clear([offer("a", 20), offer("b", 400)], 20, Pico(100)) == Spot(
        Pico(100), Pico(100), frozenset({NodeId("a")})
    )
    assert clear([], 20, Pico(100)).price == 100


OFFERS = st.lists(st.tuples(st.integers(0, 120), st.integers(1, 9)), max_size=7)


@given(OFFERS, st.integers(0, 120), st.integers(0, 120), st.integers(1, 9), st.integers(1, 40), st.integers(0, 110))
def test_asking_the_true_cost_is_the_best_strategy(
    others: list[tuple[int, int]], cost: int, lie: int, streams: int, demand: int, value: int
) -> None:
    """Whatever the others ask: no other ask gets a node more than its cost would have got it."""

    def gain(ask: int) -> int:
        offers = [offer(f"o{place}", a, s) for place, (a, s) in enumerate(others)]
        spot = clear([*offers, offer("me", ask, streams)], demand, Pico(value))
        return spot.price - cost if "me" in spot.served else 0

    assert gain(lie) <= max(gain(cost), 0)


@given(OFFERS, st.integers(1, 40), st.integers(0, 110))
def test_who_is_served_is_paid_what_they_ask_and_nobody_more_than_the_value(
    asks: list[tuple[int, int]], demand: int, value: int
) -> None:
    """At least the ask, at most the value, the same for all."""
    offers = [offer(f"o{place}", a, s) for place, (a, s) in enumerate(asks)]
    spot = clear(offers, demand, Pico(value))
    assert spot.price <= value
    assert all(o.ask <= spot.price for o in offers if o.node in spot.served)


def test_many_keys_of_one_owner_win_no_more_ties_than_one() -> None:
    """Owners take turns: over many draws the owner of nine nodes is first as often as that of one."""
    offers = [offer(f"many-{n}", 5, owner="acct_many") for n in range(9)] + [offer("one", 5, owner="acct_one")]
    first = [by_turns(offers, random.Random(seed))[0].owner for seed in range(400)]
    assert 150 < first.count(AccountId("acct_one")) < 250
    turns = by_turns(offers, random.Random(1))
    assert {o.owner for o in turns[:2]} == {"acct_many", "acct_one"} and len(turns) == 10


# --- assignment ------------------------------------------------------------------------------------


def test_a_near_node_gives_more_tokens_a_second() -> None:
    """Acceptance and response time both count, prompt lookup's tokens do not."""
    near, far = (accepted_per_s(0.7, 4, 0.02, response_s) for response_s in (0.02, 0.2))
    assert near > 2 * far > 0
    assert accepted_per_s(0.8, 4, 0.02, 0.02) > near > accepted_per_s(0.7, 4, 0.02, 0.02, baseline=0.5)


def candidate(node: str, surplus: float = 1.0, owner: str = "acct_a", load: float = 0.0) -> Candidate:
    return Candidate(NodeId(node), AccountId(owner), surplus, load)


def choose(candidates: list[Candidate], streams: dict[Any, int] | None = None, seed: int = 0, cap: int = 5000) -> Any:
    return pick(candidates, streams or {}, cap=cap, good_share=0.7, rng=random.Random(seed))


def test_chance_decides_among_good_ones() -> None:
    """Those near the best are all drawn; a poor one never, nor one that asks more than a token is worth."""
    nodes = [candidate("a", 10, "acct_a"), candidate("b", 8, "acct_b"), candidate("c", 5, "acct_c")]
    assert {choose(nodes, seed=seed) for seed in range(50)} == {"a", "b"}
    assert choose([candidate("y", -1.0)]) is None and choose([candidate("x", 0.0), candidate("y", -1.0)]) == "x"


def test_an_owner_is_drawn_before_a_node() -> None:
    """Nine keys are no more likely than one; among an owner's nodes the least loaded comes first."""
    nodes = [candidate(f"many-{n}", owner="acct_many", load=n / 10) for n in range(9)] + [
        candidate("b", owner="acct_b")
    ]
    drawn = [choose(nodes, seed=seed) for seed in range(400)]
    assert 150 < drawn.count("b") < 250 and set(drawn) == {"b", "many-0"}


def test_an_owner_over_the_cap_gives_way_while_another_is_there() -> None:
    """The cap is no wall: where nobody else is free, the stream is drafted for."""
    nodes = [candidate("a", 10, "acct_a"), candidate("b", 1, "acct_b")]
    assert {choose(nodes, {"acct_a": 9, "acct_b": 1}, seed) for seed in range(20)} == {"b"}
    assert choose(nodes[:1], {"acct_a": 9}) == "a"
    assert choose(nodes, {"acct_a": 9, "acct_b": 1}, cap=10_000) == "a"


# --- payout bound ----------------------------------------------------------------------------------

PRICE = Price(Pico(100_000), Pico(100_000), Pico(500_000))


def test_shares_are_price_times_marginal_tokens_rounded_down(make_charge: Callable[..., Charge]) -> None:
    """Below the bound nothing is taken away; nodes without an owner get no share."""
    paid = shares([claim("a", 7, 33_333), claim("b", 5, 33_333, None)], PRICE, Rates(), make_charge())
    [share] = paid
    assert (share.work.node, share.amount, share.price, share.price_version) == (
        "a",
        7 * 33_333 // 1000,
        33_333,
        "spot-1",
    )


def test_shares_together_never_pass_the_bound(make_charge: Callable[..., Charge]) -> None:
    """60 % of what the output tokens cost, in proportion."""
    charge = make_charge(completion=100, cost=60_000)
    paid = shares([claim("a", 60, 10**6), claim("b", 20, 10**6)], PRICE, Rates(), charge)
    assert output_cost(PRICE, charge) == 50_000 and most(PRICE, Rates(), charge) == 30_000
    assert [share.amount for share in paid] == [22_500, 7_500]


@pytest.mark.parametrize(("fields", "bound"), [({"cost": 0, "outcome": "failed"}, 0), ({"cost": 1_000}, 600)])
def test_what_was_not_paid_pays_nobody(make_charge: Callable[..., Charge], fields: dict[str, Any], bound: int) -> None:
    """A failed answer costs nothing; one that a lost attempt had paid costs the rest only; a free model is free."""
    paid = shares([claim("a", 60, 10**6)], PRICE, Rates(), make_charge(**fields))
    assert sum(share.amount for share in paid) == bound
    assert shares([claim("a", 60, 10**6)], Price(), Rates(), make_charge(cost=0))[0].amount == 0


@given(st.lists(st.integers(0, 10**12), max_size=6), st.integers(0, 10**12))
def test_the_bound_holds_to_the_last_nano(due: list[int], bound: int) -> None:
    """Rounded down, so splitting a node in two never gets more."""
    amounts = bounded(due, bound)
    assert sum(amounts) <= bound and all(0 <= amount <= owed for amount, owed in zip(amounts, due, strict=True))
    if sum(due) <= bound:
        assert amounts == due
    if len(due) > 1:
        assert bounded([due[0] + due[1], *due[2:]], bound)[0] >= amounts[0] + amounts[1]


def test_choices_of_a_request_are_one_claim_for_each_node() -> None:
    """Work adds up, the lower price counts."""
    [one] = merged([claim("a", 5, 10), claim("a", 7, 9)])
    assert (one.work.marginal, one.work.drafted, one.price, one.work.first, one.work.last) == (12, 22, 9, 3, 90)


def test_money_is_never_a_float() -> None:
    """Prices, amounts and rates are integers by type."""
    for kind in (Rates, Offer, Spot, Price, SpotMinute, NodeMinute, PriceVersion, RatesVersion, Load):
        hints = get_type_hints(kind)
        assert not [f.name for f in fields(kind) if "float" in str(hints[f.name])], kind


# --- energy ----------------------------------------------------------------------------------------


def test_an_ask_covers_the_energy_and_a_margin() -> None:
    """730 mJ at 15 cents a kilowatt-hour are 3 cents for a million tokens; and a fifth on top."""
    assert default_ask(Rates()) == 36_500
    assert default_ask(Rates(margin=0), 1_000_000, Nano(360_000_000)) == 100_000_000
    assert cost_of(3_600_000_000, Nano(300_000_000)) == 300_000_000 and cost_of(1, Nano(1)) == 1
    assert net(Nano(5), 3_600_000_000, Nano(7)) == -2


def test_a_meter_spreads_joules_over_drafted_tokens() -> None:
    """Idle intervals are the owner's own; a counter that begins anew gives nothing."""
    meter = Meter()
    assert meter.read(100.0) == 0.0 and meter.per_token is None
    meter.drafted(50)
    meter.accepted(20)
    assert meter.read(200.0) == 100.0
    assert meter.per_token == 2.0 and meter.millijoules_per_accepted == 5_000
    assert meter.read(300.0) == 100.0 and meter.per_token == 2.0
    meter.drafted(50)
    assert meter.read(10.0) == 0.0 and meter.read(None) == 0.0 and meter.per_token == 2.0
    assert plain_watt_hours_per_thousand(1_400.0, 20_000_000, 10) == pytest.approx(0.7778, rel=1e-3)
