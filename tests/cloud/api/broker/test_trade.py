"""Where drafts are paid: who is asked, what their work comes to, and what they are told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trading import BIG, Place, model, nothing, oracle

from cloud.api.accounts.money import Pico
from cloud.api.accounts.prices import Price
from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.market.bound import UNPAID
from cloud.api.market.reputation import Quarantine, Stage
from cloud.api.market.settings import MarketSettings
from shared.ids import NodeId
from shared.wire.messages import DemandReason


def text(*tokens: int, prompt: tuple[int, ...] = (5, 6, 7)) -> dict[str, Any]:
    """An answer without any repetition, unless it is given."""
    return {"prompt_tokens": list(prompt), "tokens": list(tokens), "guess": list(tokens), "margin": [9.0] * len(tokens)}


PLAIN = text(*range(100, 140))


def told(place: Place, node: str) -> list[do.SendDemand]:
    return [c for c in place.commands if isinstance(c, do.SendDemand) and c.node == node]


def test_what_a_node_did_is_counted_with_its_positions() -> None:
    """Drafted, accepted and marginal tokens, the first and the last position that its drafts were checked at."""
    place = Place()
    place.join("n", oracle, proven=True)
    [share] = place.play(PLAIN).paid
    work = share.work
    assert (work.drafted, work.accepted, work.marginal) == (32, 32, 32)
    assert (work.first, work.last) == (3, 41)
    assert share.price_version == f"spot-{place.at}-gw" and share.amount == 32 * share.price // 1000


def test_tokens_of_prompt_lookup_are_not_marginal() -> None:
    """An answer that repeats its prompt earns only what came before lookup had found its place."""
    prompt = tuple(range(50, 90))
    place = Place()
    place.join("n", oracle, proven=True)
    [share] = place.play(text(*prompt, prompt=prompt)).paid
    assert share.work.accepted == 32 and share.work.marginal <= 4


def test_steps_in_which_lookup_was_better_count_against_a_node() -> None:
    """The balance of a request counts: being right where lookup is not does not pay for being in its way elsewhere."""
    place = Place()
    loop = [1, 2, 3, 4] * 5
    place.join("n", lambda trace, at, k: [9_999] * k if at > 8 else oracle(trace, at, k), proven=True)
    paid = place.play(text(*loop, prompt=(7, 8))).paid
    assert paid[0].work.accepted > 0 and paid[0].work.marginal == 0


def test_work_of_a_node_whose_owner_took_it_back_is_paid() -> None:
    """The draft was on its way when the hold came; what the target accepts of it counts."""
    place = Place()
    node = place.join("n", oracle, proven=True)
    played = place.play(PLAIN, lambda stream, at: place.hold(node) if at == 5 else None)
    assert played.paid[0].work.accepted == 8
    reputation = place.market.reputation(node, BIG)
    assert (reputation.kept, reputation.broken) == (1, 0) and reputation.stage is Stage.PROVEN


def test_who_leaves_without_a_word_breaks_a_promise() -> None:
    """And comes later in the ranking; draining first does not."""
    place = Place()
    for node, drains in (("a", True), ("b", False)):
        place.join(node, oracle, proven=True)
        place.open(PLAIN)
        if drains:
            place.send(ev.NodeDraining(NodeId(node)))
        place.send(ev.NodeLeft(NodeId(node)))
    reputations = [place.market.reputation(NodeId(node), BIG) for node in "ab"]
    assert (reputations[0].kept, reputations[0].broken, reputations[1].kept) == (1, 0, 0)
    assert reputations[1].broken > 0
    assert reputations[0].reliability > reputations[1].reliability


def test_a_new_node_is_tried_unpaid_and_then_proven(traces: Any) -> None:
    """The recorded draft model needs a few answers; no stream waits for it meanwhile."""
    place = Place()
    node = place.join("n", model)
    first = place.play(traces[0])
    assert [(s.amount, s.price_version) for s in first.paid] == [(0, UNPAID)] and first.paid[0].work.marginal > 0
    assert {c.wait_ms for c in place.commands if isinstance(c, do.SetPolicy)} == {0.0}
    assert told(place, "n")[-1].reason is DemandReason.PROBATION
    needed = 1
    while not place.market.proven(node, BIG):
        place.play(traces[needed])
        needed += 1
    assert needed < 8
    place.minute()
    assert place.play(traces[needed]).paid[0].amount > 0
    assert {c.wait_ms for c in place.commands if isinstance(c, do.SetPolicy)} == {0.0, 2000.0}


def test_proven_nodes_come_first_and_canaries_are_few() -> None:
    """A node on probation gets its share of the streams while a proven one is free."""
    place = Place(settings=MarketSettings(canary_share=1_000))
    place.join("old", oracle, proven=True)
    place.join("new", nothing)
    served = [place.play(PLAIN).drafted_for for _ in range(300)]
    assert 10 < served.count({"new"}) < 60 and served.count({"old"}) == 300 - served.count({"new"})


def test_who_asks_more_than_the_price_is_told_so() -> None:
    """In words with both figures, and gets no stream."""
    place = Place()
    place.join("cheap", oracle, ask=20_000, proven=True)
    place.join("dear", oracle, ask=900_000, proven=True)
    place.join("fair", oracle, ask=30_000, proven=True)
    place.minute()
    assert place.play(PLAIN).drafted_for <= {"cheap", "fair"}
    asked = told(place, "dear")[-1]
    assert asked.reason is DemandReason.ASK_TOO_HIGH
    assert "$0.9 per million tokens" in asked.message


@pytest.mark.parametrize(
    ("owner", "price", "reason"),
    [(None, 600_000, DemandReason.NOT_PAIRED), ("acct_o", 0, DemandReason.FREE_MODEL)],
)
def test_who_could_not_be_paid_is_not_asked(owner: str | None, price: int, reason: DemandReason) -> None:
    """A node without an account, or a model that costs nothing; an ask of 0 says that it may be asked all the same."""
    place = Place(price=Price(completion=Pico(price)))
    place.join("n", oracle, owner=owner, proven=True)
    assert not place.play(PLAIN).drafted_for
    assert told(place, "n")[-1].reason is reason
    if not price:
        place.join("gift", oracle, ask=0, proven=True)
        assert place.play(PLAIN).drafted_for == {"gift"}


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=6), st.booleans())
def test_many_nodes_are_sorted_as_each_of_them_is(nodes: list[tuple[bool, bool, int]], free: bool) -> None:
    """Paid are those that nothing is objected to; tried are those that are on probation."""
    place = Place(price=Price(completion=Pico(0 if free else 600_000)))
    names = [NodeId(f"n{number}") for number in range(len(nodes))]
    for name, (owned, proven, ask) in zip(names, nodes, strict=True):
        place.join(name, owner="acct_o" if owned else None, ask=ask * 200_000, proven=proven)
    objections = {name: place.market.objection(name, BIG) for name in names}
    paid, tried = place.market.able(names, BIG)
    assert paid == [name for name in names if objections[name] is None]
    assert tried == [name for name in names if objections[name] is DemandReason.PROBATION]


def test_each_minute_says_why_a_node_earned_nothing() -> None:
    """One row for each node, with words; a minute with work has its tokens and what was settled in it."""
    place = Place()
    place.join("served", oracle, proven=True)
    place.join("idle", oracle, owner="acct_p", ask=800_000, proven=True)
    place.minute()
    amount = place.play(PLAIN).paid[0].amount
    rows = {row.node: row for row in place.minute().nodes}
    served, idle = rows[NodeId("served")], rows[NodeId("idle")]
    assert (served.reason, served.marginal, served.earned, served.owner) == (DemandReason.SERVING, 32, amount, "acct_o")
    assert (idle.reason, idle.marginal, idle.earned) == (DemandReason.ASK_TOO_HIGH, 0, 0)
    assert idle.words.startswith("The node asks $0.8 per million")
    place.hold(NodeId("served"))
    assert {row.node: row.reason for row in place.minute().nodes}[NodeId("served")] is DemandReason.HOLDING


def test_who_was_passed_over_is_told_that_others_gave_more() -> None:
    """There is work, and it goes to others."""
    place = Place()
    place.join("near", oracle, ask=20_000, proven=True)
    place.join("third", oracle, ask=20_000, proven=True, owner="acct_q")
    far = place.join("far", oracle, owner="acct_p", ask=20_000, proven=True)
    for _ in range(60):
        place.market.reputation(far, BIG).responded(1_900.0)
    place.minute()
    place.open(PLAIN)
    place.minute()
    assert {row.node: row.reason for row in place.reports[-1].nodes}[far] is DemandReason.OUTRANKED


def test_records_outlive_a_restart_of_the_gateway(traces: Any) -> None:
    """What was stored comes back with the node: its stage, its evidence, and the rest of a refusal."""
    place = Place()
    node = place.join("n", model)
    for trace in traces[:10]:
        place.play(trace)
    standings = place.minute().standings
    again = Place()
    until = again.at + 600
    quarantine = Quarantine(NodeId("bad"), until, 3, "This node sent too many invalid drafts.")
    again.send(ev.RecordsLoaded(standings, (quarantine,), float(again.at)))
    again.join("n", model)
    assert again.market.proven(node, BIG)
    assert again.market.reputation(node, BIG).acceptance == pytest.approx(
        place.market.reputation(node, BIG).acceptance, abs=0.01
    )
    again.join("bad", model)
    [refused] = [c for c in again.commands if isinstance(c, do.RejectNode)]
    assert "invalid drafts" in refused.error.message and "10 min" in refused.error.message
    again.now += 601
    again.join("bad", model)
    assert NodeId("bad") in again.broker.nodes
    assert again.broker.records.of(NodeId("bad"), again.now).refusals == 3


def test_a_refusal_is_stored_with_its_end_and_its_reason() -> None:
    """So that a restart does not end it early."""
    place = Place()
    place.join("n", nothing)
    for _ in range(4):
        place.send(ev.NodeBroke(NodeId("n")))
    place.send(ev.MinuteBegan(place.at + 60))
    [quarantine] = place.reports[-1].quarantines
    assert (quarantine.node, quarantine.until, quarantine.refusals) == ("n", place.at + 120, 1)
    assert "invalid drafts" in quarantine.why


def test_joules_follow_the_drafts() -> None:
    """By the node's own counter; the request's share is what it drafted."""
    place = Place()
    node = place.join("n", oracle, proven=True)
    place.send(ev.NodeBeat(node, 100.0))
    place.play(PLAIN)
    place.send(ev.NodeBeat(node, 132.0))
    played = place.play(PLAIN)
    assert played.paid[0].work.joules == pytest.approx(32.0)
    assert place.minute().nodes[0].millijoules == 32_000
    assert place.market.ask(node) == 20_000


def test_without_an_ask_the_measured_energy_is_asked() -> None:
    """Joules of an accepted token at the assumed tariff, and the margin."""
    place = Place()
    node = place.join("n", oracle, ask=None, proven=True)
    assert place.market.ask(node) == 36_500
    place.send(ev.NodeBeat(node, 0.0))
    place.play(PLAIN)
    place.send(ev.NodeBeat(node, 64.0))
    place.minute()
    assert place.market.ask(node) == 100_000


def test_the_price_promised_is_the_price_paid() -> None:
    """A price that changes while an answer runs changes nothing for its nodes."""
    place = Place()
    place.join("n", oracle, proven=True)
    before = place.market.spot(BIG).price

    def change(_: object, at: int) -> None:
        if at == 5:
            place.market.traders[NodeId("n")].ask = Pico(1)
            place.minute()

    [share] = place.play(PLAIN, change).paid
    assert share.price == before and place.market.spot(BIG).price == 1
