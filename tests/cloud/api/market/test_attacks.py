"""Attacks on the market, each with its profit at most zero, against the broker, market and prompt lookup that run.

Profit is what the attacker's accounts receive as owners, less what they pay as customers, less the electricity of the
tokens that they draft, compared with the best that they could do honestly with the same machines (docs/market.md).
"""

import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trading import BIG, PRICE, RATES, Drafter, Place, confident, model, ngram, nothing, oracle

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano, Pico
from cloud.api.accounts.prices import Price
from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.ledger.settlement import NodeWork
from cloud.api.market.bound import Claim, shares
from cloud.api.market.energy import cost_of
from cloud.api.market.pricebook import Rates
from cloud.api.market.spot import Offer, clear
from shared.ids import AccountId, NodeId, StreamId, TapeId

MILLIJOULES = 300
"""Of a drafted token."""


def electricity(tokens: int) -> int:
    return cost_of(tokens * MILLIJOULES, RATES.tariff)


def echo(length: int, seed: int, prompt: int = 40) -> dict[str, Any]:
    """A request to say again what it begins with."""
    rng = random.Random(seed)
    said = [rng.randrange(10, 50_000) for _ in range(prompt)]
    return {"prompt_tokens": [*said, 1, 2, 3], "tokens": (said * (length // prompt + 1))[:length]}


def echoing(trace: dict[str, Any], at: int, k: int) -> list[int]:
    """Knows that the prompt is said again."""
    said = trace["prompt_tokens"][:-3]
    return [said[place % len(said)] for place in range(at, at + k)]


# --- self-dealing ----------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10**9)), max_size=5),
    st.tuples(*[st.integers(0, 10**8)] * 3),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.integers(0, 10**9),
)
def test_dealing_with_oneself_loses_whatever_the_prices_are(
    work: list[tuple[int, int]], prices: tuple[int, int, int], completion: int, prompt: int, credit: int
) -> None:
    """Nodes get at most their share of what the output cost, however much they claim and at whatever spot price."""
    price = Price(Pico(prices[0]), Pico(prices[1]), Pico(prices[2]))
    cost = max(price.cost(prompt, 0, completion) - credit, 0)
    claims = [
        Claim(
            NodeWork(node=NodeId(f"n{i}"), drafted=tokens, accepted=tokens, marginal=tokens, first=0, last=tokens),
            AccountId("acct_me"),
            Pico(spot),
            "spot",
        )
        for i, (tokens, spot) in enumerate(work)
    ]
    paid = sum(share.amount for share in shares(claims, price, Rates(), _charge(completion, cost)))
    assert paid <= 0.6 * cost and (paid < cost or cost == 0)


def test_dealing_with_oneself_loses_with_every_node_in_hand(traces: Any) -> None:
    """Customer and owner of the only nodes, who knows each answer in advance, and is alone in setting the price."""
    place = Place()
    node = place.join("n", oracle, owner="acct_me", ask=300_000, proven=True)
    place.play(traces[0])
    place.market.traders[node].ask = Pico(10_000_000)
    place.minute()
    assert place.market.spot(BIG).price == 10_000_000 > 10 * PRICE.completion
    for trace in traces:
        played = place.play(trace)
        assert 0 < played.earned("acct_me") * 10_000 <= 6_000 * played.charge.cost


# --- drafts that need no model ---------------------------------------------------------------------

NO_MODEL = {
    "the verifier's own": ngram(2, 4),
    "single tokens too": ngram(1, 4),
    "longer": ngram(1, 8),
    "longer only": ngram(2, 12),
    "the oldest occurrence": ngram(1, 4, oldest=True),
}


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("how", NO_MODEL)
def test_a_node_without_a_model_earns_nothing(traces: Any, how: str, k: int) -> None:
    """Real answers, real prompt lookup: no rule of n-grams proves itself, and a long trial ends in a refusal."""
    place = Place(k=k)
    node = place.join("n", NO_MODEL[how], owner="acct_me", ask=0)
    earned = 0
    for trace in traces * 3:
        earned += place.play(trace).earned("acct_me")
        assert not place.market.proven(node, BIG)
    assert earned == 0


def test_a_long_trial_without_a_gain_is_ended() -> None:
    """With the reason, for a time that doubles; so the canary streams are not filled with such nodes."""
    place = Place()
    place.join("n", echoing)
    for seed in range(80):
        place.play(echo(120, seed))
        if NodeId("n") not in place.broker.nodes:
            break
    [refused] = [c for c in place.commands if isinstance(c, do.RejectNode)]
    assert "no better than prompt lookup" in refused.error.message


@pytest.mark.parametrize("length", [30, 120, 400])
def test_echoing_the_prompt_earns_nothing(length: int) -> None:
    """Other people's requests that say their prompt again, or the same over and over; copying is what lookup does."""
    place = Place()
    place.join("n", echoing, owner="acct_me", ask=0)
    assert sum(place.play(echo(length, seed)).earned("acct_me") for seed in range(60)) == 0


def test_a_bought_reputation_costs_more_than_it_brings(traces: Any) -> None:
    """Short echoes, asked for and paid by the attacker itself, make a node without a model look proven, since lookup
    is behind at each beginning. What it then earns from other people's requests, until it falls back, is less."""
    place = Place()
    node = place.join("n", echoing, owner="acct_me", ask=300_000)
    profit, seed = 0, 0
    while not place.market.proven(node, BIG) and seed < 400:
        played = place.play(echo(12, seed, prompt=12))
        profit += played.earned("acct_me") - played.charge.cost
        seed += 1
    assert place.market.proven(node, BIG)
    place.drafters[node] = ngram(1, 4)
    place.minute()
    earned = sum(place.play(trace).earned("acct_me") for trace in traces * 4)
    assert not place.market.proven(node, BIG)
    assert 0 < earned < -profit


# --- which tokens are drafted ----------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("least", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_drafting_the_easy_tokens_only_earns_less(traces: Any, least: float, k: int) -> None:
    """The margin of a token is known when it has been computed, so what is held back has cost its electricity too."""

    def profit(drafter: Drafter) -> int:
        place = Place(k=k)
        place.join("n", drafter, owner="acct_me", ask=25_000, streams=4, proven=True)
        place.join("other", nothing, owner="acct_x", ask=60_000, proven=True)
        place.market.floor(BIG).sample(12)
        place.minute()
        assert place.market.spot(BIG).price == 60_000
        total = 0
        for trace in traces:
            played = place.play(trace)
            assert played.drafted_for == {"n"}
            total += played.earned("acct_me") - electricity(played.sent["n"])
        return total

    assert profit(confident(least)) <= profit(model)


def test_easy_streams_cannot_be_chosen(traces: Any) -> None:
    """Streams are the coordinator's to give; who drafts for some only comes later, and earns less."""
    place, honest = Place(), Place()

    def picky(trace: Any, at: int, k: int) -> Any:
        return model(trace, at, k) if trace["kind"] == "code" else []

    place.join("n", picky, owner="acct_me", proven=True)
    honest.join("n", model, owner="acct_me", proven=True)
    assert sum(place.play(t).earned("acct_me") for t in traces) < sum(honest.play(t).earned("acct_me") for t in traces)


# --- many identities -------------------------------------------------------------------------------


def gains(mine: list[tuple[int, int]], others: list[tuple[int, int]], demand: int, cost: int, value: int) -> Fraction:
    """What an attacker gains in a minute by nodes of (ask, streams): those served share the demand by their size, and
    the price setter takes what is left over."""
    offers = [Offer(NodeId(f"o{i}"), AccountId(f"acct_{i}"), Pico(a), s) for i, (a, s) in enumerate(others)]
    offers += [Offer(NodeId(f"me{i}"), AccountId("acct_me"), Pico(a), s) for i, (a, s) in enumerate(mine)]
    spot = clear(offers, demand, Pico(value))
    sizes = {offer.node: offer.streams for offer in offers}
    carried = sum(sizes[node] for node in spot.served)
    total = Fraction(0)
    for i in range(len(mine)):
        node = NodeId(f"me{i}")
        if node in spot.served:
            total += Fraction(sizes[node] * min(demand, carried), carried) * (spot.price - cost)
        elif node == spot.setter:
            total += max(demand - carried, 0) * (spot.price - cost)
    return total


ASKS = (0, 10, 20, 30, 40, 50, 60)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(ASKS), st.integers(1, 4)), max_size=4),
    st.integers(1, 16),
    st.sampled_from(ASKS),
    st.integers(2, 4),
)
def test_sybils_gain_nothing_over_one_identity(
    others: list[tuple[int, int]], demand: int, cost: int, streams: int
) -> None:
    """Every way to split a machine in two with any two asks, against the best that it can do as one node, which may
    ask what it likes and offer less than it has. (The second identity's unpaid trial comes on top.)"""
    value = 55
    single = max(gains([(ask, size)], others, demand, cost, value) for ask in ASKS for size in range(1, streams + 1))
    for first in range(1, streams):
        for asks in ((a, b) for a in ASKS for b in ASKS):
            split = [(asks[0], first), (asks[1], streams - first)]
            assert gains(split, others, demand, cost, value) <= max(single, 0)


def test_a_new_identity_is_worth_less_than_the_old_one(traces: Any) -> None:
    """Whoever comes back under a new key is on trial again, unpaid."""

    def earned(renew_every: int) -> int:
        place, total = Place(), 0
        node = place.join("key0", model, owner="acct_me")
        for number, trace in enumerate(traces * 2):
            if number and number % renew_every == 0:
                place.send(ev.NodeLeft(node))
                node = place.join(f"key{number}", model, owner=f"acct_me{number}")
            total += sum(share.amount for share in place.play(trace).paid)
        return total

    keeps = earned(10**9)
    assert keeps > 0 and all(earned(every) < keeps for every in (2, 8, 24))


# --- asks ------------------------------------------------------------------------------------------


def test_asking_above_the_value_earns_nothing(traces: Any) -> None:
    """Neither served nor part of the price: what others are paid is no more than the value."""
    place = Place()
    value = place.market.value(BIG)
    place.join("greedy", oracle, owner="acct_me", ask=value + 1, proven=True)
    place.join("fair", model, owner="acct_x", ask=20_000, streams=1, proven=True)
    place.minute()
    assert place.market.spot(BIG).price <= value
    assert sum(place.play(trace).earned("acct_me") for trace in traces[:8]) == 0


# --- settlements -----------------------------------------------------------------------------------


def test_a_step_that_is_told_twice_is_paid_once(traces: Any) -> None:
    """Nor is a draft that is sent again for positions that are committed."""
    once, twice = Place(), Place()
    for place in (once, twice):
        place.join("n", model, owner="acct_me", proven=True)
    handle = twice.broker.handle

    def again(event: ev.Event, now: float) -> Any:
        out = handle(event, now)
        if isinstance(event, ev.StreamVerified | ev.NodeDraft):
            repeated = handle(event, now)
            assert not [c for c in repeated if isinstance(c, do.ForwardDraft)] or isinstance(event, ev.NodeDraft)
        return out

    twice.broker.handle = again  # type: ignore[method-assign]
    assert twice.play(traces[0]).earned("acct_me") <= once.play(traces[0]).earned("acct_me")


def test_work_that_the_verifier_did_not_see_is_not_paid(traces: Any) -> None:
    """A node is paid for the steps in which the verifier names its tape: not for another's, nor for one it invents."""
    place = Place()
    place.join("n", model, owner="acct_me", ask=0, proven=True)
    stream = place.open(traces[0])
    prompt = len(traces[0]["prompt_tokens"])
    figures = place.broker.registrations[stream]
    for at, source in enumerate(("lookup", "m", "m/1", "n-forged")):
        verified = ev.StreamVerified("v", stream, prompt + 2 * at, (1, 2), 1, 1, TapeId(source), 0, 1.0)
        place.send(verified)
    assert not figures.figures().claims
    elsewhere = ev.StreamVerified("v", StreamId("not-mine"), 0, (1,), 1, 1, TapeId("n"), 0, 1.0)
    place.send(elsewhere)
    assert not figures.figures().claims


# --- deadlines -------------------------------------------------------------------------------------


def test_a_node_that_goes_away_before_each_deadline_earns_nothing(traces: Any) -> None:
    """It takes every stream and gives it back undrafted: nothing to be paid for, and after a while it is refused."""
    place = Place()
    node = place.join("n", model, owner="acct_me", ask=0, proven=True)
    earned = 0
    for number in range(60):
        if node not in place.broker.nodes:
            break
        stream = place.open(traces[number % len(traces)])
        place.hold(node)
        place.send(ev.NodeResumed(node))
        place.hold(node)
        place.now += 1
        place.send(ev.NodeResumed(node))
        earned += sum(claim.work.marginal for claim in place.broker.registrations[stream].figures().claims)
        place.send(ev.StreamClosed("v", stream, "finished"))
    assert earned == 0
    [refused] = [c for c in place.commands if isinstance(c, do.RejectNode)]
    assert "paused and resumed too often" in refused.error.message


def test_a_node_that_leaves_in_mid_answer_is_paid_for_what_was_accepted(traces: Any) -> None:
    """No more than that: the other one who takes over gets the rest."""
    place = Place()
    node = place.join("n", model, owner="acct_me", proven=True)
    place.join("m", model, owner="acct_x", proven=True)
    stayed = place.play(traces[0])
    whole = sum(share.work.marginal for share in stayed.paid)

    def leave(_: StreamId, at: int) -> None:
        if at > 30 and node in place.broker.nodes:
            place.send(ev.NodeLeft(node))

    parts = place.play(traces[0], leave).paid
    assert sum(share.work.marginal for share in parts) <= whole + 4
    assert all(share.work.marginal <= share.work.accepted for share in parts)


def _charge(completion: int, cost: int) -> Charge:
    return Charge(
        request_id="req",
        key_id=KeyId("key_a"),
        at=0,
        model="big",
        path="/v1/completions",
        streamed=False,
        outcome="answered",
        prompt_tokens=0,
        cached_tokens=0,
        completion_tokens=completion,
        cost=Nano(cost),
    )


def test_the_prices_here_are_those_of_the_market() -> None:
    """$0.60 a million for output, of which nodes get at most 36 cents."""
    assert PRICE.completion == 600_000 and RATES.share == 6_000
