"""The broker's rules, one by one."""

from collections.abc import Callable
from typing import Any

import pytest

from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.broker.settings import BrokerSettings
from shared.errors import RateLimited, TokenizerMismatch
from shared.ids import NodeId, StreamId
from shared.wire.messages import DemandReason, Receipt

PROMPT = (1, 2, 3)


def only(kind: type, out: list[Any]) -> list[Any]:
    return [command for command in out if isinstance(command, kind)]


def test_a_stream_is_opened_at_a_matching_node_with_all_its_tokens(play: Any) -> None:
    """The node gets the prompt, the seed, the target's name and what it may have outstanding."""
    play.join("n", vocabulary=90)
    [opened] = only(do.OpenStream, play.open("s"))
    assert opened.node == "n"
    assert opened.tokens == PROMPT
    assert (opened.model, opened.seed, opened.k, opened.ahead, opened.candidates) == ("big", 7, 4, 16, 1)


def test_a_node_with_another_tokenizer_is_refused_with_both_fingerprints(play: Any) -> None:
    """A mismatch is a refusal that names what was offered and what is served."""
    [rejected] = only(do.RejectNode, play.join("n", fingerprint="b" * 64))
    assert isinstance(rejected.error, TokenizerMismatch)
    assert "a" * 64 in rejected.error.message and "b" * 64 in rejected.error.message
    assert not play.broker.nodes


def test_a_node_is_checked_again_when_the_verifier_attaches(make_play: Callable[..., Any]) -> None:
    """Before any verifier is there a node is let in; it is refused when the verifier turns out not to match."""
    play = make_play(expected_verifiers=2)
    assert not only(do.RejectNode, play.join("n", fingerprint="b" * 64))
    assert play.broker.nodes[NodeId("n")].demand is DemandReason.NO_MATCHING_MODEL
    assert only(do.RejectNode, play.verifier("w"))


@pytest.mark.parametrize("why", ["unregistered", "privacy", "not draftable"])
def test_a_stream_that_nodes_must_not_see_gets_no_node(play: Any, why: str) -> None:
    """Without a registration, with privacy `verifier_only`, or where the verifier wants no drafts."""
    play.join("n")
    if why != "unregistered":
        play.register("s", allow_nodes=why != "privacy")
    out = play.opened("s", draftable=why != "not draftable")
    assert not only(do.OpenStream, out)
    assert play.broker.counts.streams_unregistered == (why == "unregistered")
    assert not only(do.OpenStream, play.join("m"))


def test_a_prompt_over_the_limit_gets_no_node(make_play: Callable[..., Any]) -> None:
    """Every node would have to prefill it."""
    play = make_play(max_open_tokens=3)
    play.join("n")
    assert only(do.OpenStream, play.open("fits"))
    assert not only(do.OpenStream, play.open("long", (*PROMPT, 4)))


def test_streams_are_spread_over_nodes_by_load(play: Any) -> None:
    """Two equal nodes and four streams: two each."""
    play.join("n")
    play.join("m")
    for stream in "abcd":
        play.open(stream)
    assert sorted(len(node.open) for node in play.broker.nodes.values()) == [2, 2]


def test_slots_are_never_exceeded_and_a_freed_slot_serves_a_waiting_stream(play: Any) -> None:
    """The waiting stream gets the slot in mid-answer, with the tokens so far."""
    play.join("n", streams=1)
    play.open("a")
    assert not only(do.OpenStream, play.open("b"))
    play.verified("b", 3, (4, 5))
    [opened] = only(do.OpenStream, play.closed("a"))
    assert opened.stream == "b" and opened.tokens == (*PROMPT, 4, 5)


def test_a_node_that_joins_in_mid_answer_takes_only_streams_without_node(play: Any) -> None:
    """A stream that has its node keeps it; the newcomer is used for what comes later."""
    play.join("n", streams=1)
    play.open("a")
    play.open("b")
    assert [o.stream for o in only(do.OpenStream, play.join("m"))] == ["b"]
    assert [o.node for o in only(do.OpenStream, play.open("c"))] == ["m"]


@pytest.mark.parametrize("event", ["leave", "hold"])
def test_a_lost_node_has_its_tape_dropped_and_another_takes_over(play: Any, event: str) -> None:
    """First the tape goes, then the stream is opened elsewhere with the tokens so far."""
    play.join("n")
    play.open("s")
    play.verified("s", 3, (4,))
    play.join("m")
    out = getattr(play, event)("n")
    [dropped], [opened] = only(do.DropTape, out), only(do.OpenStream, out)
    assert (dropped.stream, dropped.tape) == ("s", "n")
    assert opened.node == "m" and opened.tokens == (*PROMPT, 4)
    assert [c.node for c in only(do.CloseStream, out)] == (["n"] if event == "hold" else [])


def test_a_lost_node_without_successor_ends_the_wait(play: Any) -> None:
    """Nobody drafts any more, so the stream must not be held."""
    play.join("n")
    assert [p.wait_ms for p in only(do.SetPolicy, play.open("s"))] == [2_000.0]
    assert [p.wait_ms for p in only(do.SetPolicy, play.leave("n"))] == [0.0]


def test_holding_and_draining_nodes_get_nothing_new(play: Any) -> None:
    """A draining node keeps what it has; a held one is used again after it resumes."""
    play.join("n")
    play.open("a")
    play.send(ev.NodeDraining(NodeId("n")))
    assert not only(do.OpenStream, play.open("b"))
    assert play.assigned("a") == {"n"}
    play.join("m")
    play.hold("m")
    assert play.assigned("b") == set()
    assert [o.stream for o in only(do.OpenStream, play.resume("m"))] == ["b"]


def test_drafts_are_forwarded_on_the_nodes_own_tape(play: Any) -> None:
    """The tape is the node, so one node cannot write on another's."""
    play.join("n")
    play.open("s")
    [forwarded] = only(do.ForwardDraft, play.draft("n", "s", 3, (4, 5)))
    assert (forwarded.tape, forwarded.pos, forwarded.tokens) == ("n", 3, (4, 5))


def test_drafts_of_an_unassigned_node_are_counted_and_dropped(play: Any) -> None:
    """For another node's stream, and for one that is over."""
    play.join("n")
    play.open("s")
    play.join("m")
    assert not play.draft("m", "s", 3, (4,))
    play.closed("s")
    assert not play.draft("n", "s", 3, (4,))
    assert play.broker.counts.drafts_unassigned == 2
    assert play.broker.counts.drafts_invalid == 0


@pytest.mark.parametrize(
    ("pos", "tokens"), [(3, (100,)), (3, (-1,)), (3, ()), (3, (1,) * 17), (19, (1,)), (1, (1,)), (-3, (1,))]
)
def test_invalid_drafts_are_never_forwarded(play: Any, pos: int, tokens: tuple[int, ...]) -> None:
    """Ids outside the target's vocabulary, too many tokens, impossible positions."""
    play.join("n", vocabulary=1_000)
    play.open("s")
    assert not play.draft("n", "s", pos, tokens)
    assert play.broker.counts.drafts_invalid == 1


def test_a_node_with_too_many_faults_is_refused_for_a_while(play: Any) -> None:
    """Its streams go to others; it may come back after the refusal."""
    play.join("bad")
    play.open("s")
    play.join("good")
    outs = [play.draft("bad", "s", 3, (100,)) for _ in range(10)]
    [rejected] = only(do.RejectNode, outs[-1])
    assert rejected.node == "bad" and isinstance(rejected.error, RateLimited)
    assert play.assigned("s") == {"good"}
    assert only(do.RejectNode, play.join("bad"))
    play.now += 61
    assert not only(do.RejectNode, play.join("bad"))


def test_late_and_stale_drafts_are_ignored_and_counted(play: Any) -> None:
    """A draft for committed positions, one that contradicts them, and one of an old epoch."""
    play.join("n")
    play.open("s")
    play.verified("s", 3, (4, 5))
    assert not only(do.ForwardDraft, play.draft("n", "s", 3, (4, 5)))
    assert play.broker.counts.drafts_late == 1
    assert not play.draft("n", "s", 3, (4, 9, 9))
    assert not play.draft("n", "s", 6, (9,))
    assert play.broker.counts.drafts_stale == 2
    assert only(do.ForwardDraft, play.draft("n", "s", 5, (6,), epoch=1))
    assert not play.draft("n", "s", 6, (7,), epoch=0)
    assert play.broker.counts.drafts_stale == 3


def test_a_candidate_has_a_tape_of_its_own(make_play: Callable[..., Any]) -> None:
    """Its epochs and its divergences are not those of the main line; it begins at tokens that the node knows."""
    play = make_play(candidates=2)
    play.join("n")
    assert [o.candidates for o in only(do.OpenStream, play.open("s"))] == [2]
    play.draft("n", "s", 3, (4, 5, 6), epoch=0)
    [held] = only(do.ForwardDraft, play.draft("n", "s", 3, (4, 9, 8), epoch=5, candidate=1))
    assert (held.tape, held.epoch, held.pos, held.tokens) == ("n/1", 5, 3, (4, 9, 8))
    [advance] = only(do.AdvanceStream, play.verified("s", 3, (4, 9), 3, 1, "n"))
    assert advance.epoch == 0, "the main line's"
    assert not play.draft("n", "s", 6, (7,), epoch=0), "the main line has diverged"
    assert only(do.ForwardDraft, play.draft("n", "s", 6, (7,), epoch=5, candidate=1)), "the candidate has not"
    assert only(do.ForwardDraft, play.draft("n", "s", 4, (9, 8, 8), epoch=6, candidate=1)), "late in part"


def test_candidates_that_are_of_no_use_are_dropped_without_fault(make_play: Callable[..., Any]) -> None:
    """Late, contradicted, of an old epoch, or behind a gap: the main line is not touched."""
    play = make_play(candidates=2)
    play.join("n")
    play.open("s")
    play.verified("s", 3, (4, 5))
    for pos, tokens, epoch in ((3, (4,), 1), (3, (4, 9, 9), 1), (6, (9,), 1), (5, (9,), 0), (7, (9,), 2)):
        assert not play.draft("n", "s", pos, tokens, epoch=epoch, candidate=1)
    assert (play.broker.counts.drafts_late, play.broker.counts.drafts_stale) == (1, 4)
    assert play.broker.counts.drafts_invalid == 0
    assert play.assigned("s") == {"n"}


@pytest.mark.parametrize(("asked", "candidate"), [(1, 1), (2, 2), (2, -1)])
def test_a_candidate_beyond_those_asked_for_is_a_fault(
    make_play: Callable[..., Any], asked: int, candidate: int
) -> None:
    """A node cannot fill the verifier with tapes."""
    play = make_play(candidates=asked)
    play.join("n")
    play.open("s")
    assert not play.draft("n", "s", 3, (4,), candidate=candidate)
    assert play.broker.counts.drafts_invalid == 1


def test_all_tapes_of_a_node_go_with_it(make_play: Callable[..., Any]) -> None:
    """Those that it wrote on, and no others."""
    play = make_play(candidates=3)
    play.join("n")
    play.open("s")
    play.draft("n", "s", 3, (9,), candidate=2)
    assert [dropped.tape for dropped in only(do.DropTape, play.leave("n"))] == ["n", "n/2"]


def test_a_candidate_that_misses_is_no_evidence_against_its_node(make_play: Callable[..., Any]) -> None:
    """It counts as drafted, and as accepted when it hits; on the receipt as well."""
    play = make_play(candidates=2)
    play.join("n")
    play.open("s")
    node = play.broker.nodes[NodeId("n")]
    before = node.record.acceptance
    play.verified("s", 3, (5,), 4, 0, "n/1")
    assert node.record.acceptance == before
    play.verified("s", 4, (6, 7, 8), 4, 2, "n/1")
    assert node.record.acceptance > before
    assert play.broker.registrations[StreamId("s")].figures().accepted == 2
    [close] = only(do.CloseStream, play.closed("s"))
    assert close.receipt == Receipt(drafted=8, accepted=2)


def test_only_the_main_line_is_timed(make_play: Callable[..., Any]) -> None:
    """A candidate that is there at once does not make a slow node look prompt."""
    play = make_play(candidates=2)
    play.join("n")
    play.open("s")
    play.now += 0.01
    play.draft("n", "s", 3, (9, 9, 9, 9), candidate=1)
    node = play.broker.nodes[NodeId("n")]
    assert node.response_ms(1.0) is None
    play.now += 0.09
    play.draft("n", "s", 3, (4, 4, 4, 4))
    assert node.response_ms(1.0) == pytest.approx(100.0)


def test_advance_names_the_newest_epoch_seen(play: Any) -> None:
    """-1 before the first draft."""
    play.join("n")
    play.open("s")
    assert [a.epoch for a in only(do.AdvanceStream, play.verified("s", 3, (4,)))] == [-1]
    play.draft("n", "s", 4, (5,), epoch=2)
    [advance] = only(do.AdvanceStream, play.verified("s", 4, (5, 6), 1, 1, "n"))
    assert (advance.epoch, advance.pos, advance.tokens) == (2, 4, (5, 6))


def test_a_gap_asks_for_a_resync_and_the_answer_is_adopted(play: Any) -> None:
    """The node gets what was missed, without a gap, and the stream goes on."""
    play.join("n")
    play.open("s")
    out = play.verified("s", 5, (6,))
    assert len(only(do.RequestResync, out)) == 1 and not only(do.AdvanceStream, out)
    assert not play.verified("s", 6, (7,))
    [advance] = only(do.AdvanceStream, play.opened("s", (*PROMPT, 4, 5, 6, 7)))
    assert (advance.pos, advance.tokens) == (3, (4, 5, 6, 7))
    assert only(do.AdvanceStream, play.verified("s", 7, (8,)))


def test_an_unanswered_resync_is_repeated(play: Any) -> None:
    """The request or its answer may be lost with a connection."""
    play.open("s")
    play.verified("s", 5, (6,))
    assert not only(do.RequestResync, play.send(ev.Tick()))
    play.now += 3
    assert only(do.RequestResync, play.send(ev.Tick()))


def test_a_missed_opening_is_asked_for(play: Any) -> None:
    """Only for streams of ours."""
    play.register("s")
    assert only(do.RequestResync, play.verified("s", 3, (4,)))
    assert not play.verified("other", 3, (4,))


def test_a_stream_that_restarts_with_other_tokens_is_opened_anew(play: Any) -> None:
    """The node is told to forget the old one first."""
    play.join("n")
    play.open("s")
    out = play.opened("s", (9, 9, 9))
    assert [type(c) for c in out if isinstance(c, do.CloseStream | do.OpenStream)] == [
        do.CloseStream,
        do.OpenStream,
    ]


def test_the_wait_is_a_bound_that_is_sent_once(play: Any) -> None:
    """Whether waiting pays, the verifier decides; response times change nothing here."""
    play.join("n")
    assert [(p.wait_ms, p.k) for p in only(do.SetPolicy, play.open("s"))] == [(2_000.0, 4)]
    play.now += 0.1
    out = play.draft("n", "s", 3, (4, 5, 6, 7)) + play.verified("s", 3, (4, 5, 6, 7, 8), 4, 4, "n")
    assert not only(do.SetPolicy, out)


@pytest.mark.parametrize(
    ("wishes", "wait_ms", "k"),
    [
        ({}, 2_000.0, 4),
        ({"max_wait_ms": 50.0}, 50.0, 4),
        ({"max_wait_ms": 0.0}, 0.0, 4),
        ({"max_wait_ms": 9_000.0}, 2_000.0, 4),
        ({"max_draft_tokens": 2}, 2_000.0, 2),
        ({"max_draft_tokens": 99}, 2_000.0, 4),
    ],
)
def test_a_request_can_lower_the_deployments_bounds(play: Any, wishes: dict[str, Any], wait_ms: float, k: int) -> None:
    """Never raise them; the node is asked for no more than the verifier will take."""
    play.join("n")
    out = play.open("s", **wishes)
    assert [(p.wait_ms, p.k) for p in only(do.SetPolicy, out)] == [(wait_ms, k)]
    assert [(o.k, o.ahead) for o in only(do.OpenStream, out)] == [(k, 4 * k)]


def test_a_request_without_drafts_has_no_node_and_none_of_the_verifiers_own(play: Any) -> None:
    """k = 0 reaches the verifier; no prompt is shown for nothing."""
    play.join("n")
    out = play.open("s", max_draft_tokens=0)
    assert [(p.wait_ms, p.k) for p in only(do.SetPolicy, out)] == [(0.0, 0)]
    assert not only(do.OpenStream, out)


def test_a_private_request_never_waits(play: Any) -> None:
    """Nobody drafts for it, so there is nothing to wait for; the verifier's own drafts may go on."""
    play.join("n")
    out = play.open("s", allow_nodes=False)
    assert [(p.wait_ms, p.k) for p in only(do.SetPolicy, out)] == [(0.0, 4)]
    assert not only(do.OpenStream, out + play.join("m") + play.send(ev.Tick()))


@pytest.mark.parametrize(("default", "asked", "seen"), [(False, None, False), (False, True, True), (True, None, True)])
def test_the_deployment_decides_for_requests_that_do_not_say(
    make_play: Callable[..., Any], default: bool, asked: bool | None, seen: bool
) -> None:
    """A request that says so is served by nodes all the same."""
    play = make_play(nodes_by_default=default)
    play.join("n")
    assert bool(only(do.OpenStream, play.open("s", allow_nodes=asked))) is seen


def test_a_draft_that_comes_token_by_token_is_measured_to_its_kth(play: Any) -> None:
    """That is what a hold waits for: not the first token."""
    play.join("n")
    play.open("s")
    for pos in (3, 4, 5, 6):
        play.now += 0.02
        play.draft("n", "s", pos, (4,))
    assert play.broker.nodes[NodeId("n")].response_ms(1.0) == pytest.approx(80.0)


def test_a_draft_cut_short_by_a_verification_is_extrapolated(play: Any) -> None:
    """Two of four tokens after 60 ms: the whole would have taken about 120."""
    play.join("n")
    play.open("s")
    play.now += 0.03
    play.draft("n", "s", 3, (4,))
    play.now += 0.03
    play.draft("n", "s", 4, (4,))
    play.now += 0.01
    play.verified("s", 3, (4, 4, 4), 2, 2, "n")
    assert play.broker.nodes[NodeId("n")].response_ms(1.0) == pytest.approx(120.0)


def test_a_tape_that_is_ahead_is_not_measured(play: Any) -> None:
    """The response time is what a hold would have to wait: nothing, when the draft is there already."""
    play.join("n")
    play.open("s")
    play.draft("n", "s", 3, (4, 5, 6, 7))
    play.verified("s", 3, (4,), 1, 1, "n")
    play.now += 9
    play.draft("n", "s", 7, (8,))
    node = play.broker.nodes[NodeId("n")]
    assert node.response_ms(1.0) == 0.0


def test_a_gap_in_a_nodes_drafts_opens_the_stream_anew(play: Any) -> None:
    """A lost message would leave every later draft of its epoch without a predecessor."""
    play.join("n")
    play.open("s")
    play.draft("n", "s", 3, (4,))
    out = play.draft("n", "s", 6, (7,))
    assert not only(do.ForwardDraft, out)
    assert [type(command) for command in out if not isinstance(command, do.SetPolicy)] == [
        do.DropTape,
        do.CloseStream,
        do.OpenStream,
    ]
    assert only(do.ForwardDraft, play.draft("n", "s", 3, (4, 5)))


def test_a_divergence_is_measured_to_the_draft_of_a_new_epoch(play: Any) -> None:
    """Blocks of the old epoch that were on the way are no answer."""
    play.join("n")
    play.open("s")
    play.draft("n", "s", 3, (4, 5, 6, 7))
    play.verified("s", 3, (9,), 4, 0, "n")
    play.now += 0.01
    play.draft("n", "s", 7, (6, 7))
    play.now += 0.04
    play.draft("n", "s", 4, (8, 8, 8, 8), epoch=1)
    assert play.broker.nodes[NodeId("n")].response_ms(1.0) == pytest.approx(50.0)


def test_a_late_answer_counts_for_the_question_it_answers(play: Any) -> None:
    """Plain steps went on meanwhile: the node's time is not shortened by them."""
    play.join("n")
    play.open("s")
    for pos in (3, 4, 5):
        play.now += 0.1
        play.verified("s", pos, (4,))
    play.draft("n", "s", 3, (4, 4))
    assert play.broker.nodes[NodeId("n")].response_ms(1.0) == pytest.approx(300.0)
    play.now += 0.2
    play.draft("n", "s", 5, (4, 4, 4, 4, 4))
    assert play.broker.nodes[NodeId("n")].response_ms(1.0) == pytest.approx(300.0)
    assert play.broker.nodes[NodeId("n")].response_ms(0.5) == pytest.approx(200.0)


def test_a_node_with_low_acceptance_comes_last_and_is_told(play: Any) -> None:
    """At once, in words; it is still used when nobody else is there."""
    play.join("bad")
    play.open("s")
    told = [d for pos in range(3, 63) for d in only(do.SendDemand, play.verified("s", pos, (9,), 4, 0, "bad"))]
    assert [d.reason for d in told] == [DemandReason.LOW_ACCEPTANCE]
    assert "10%" in told[0].message and "draft model" in told[0].message
    assert not only(do.SendDemand, play.closed("s")), "said once"
    assert [o.node for o in only(do.OpenStream, play.open("t"))] == ["bad"]
    play.join("good", streams=2)
    assert {o.node for s in "uv" for o in only(do.OpenStream, play.open(s))} == {"good"}
    assert [o.node for o in only(do.OpenStream, play.open("w"))] == ["bad"]


def test_an_answer_that_ends_inside_a_draft_says_nothing_against_the_node(play: Any) -> None:
    """What was drafted behind the end was never compared."""
    play.join("n")
    play.open("s")
    before = play.broker.nodes[NodeId("n")].record.acceptance
    play.verified("s", 3, (4, 5), 4, 2, "n")
    assert play.broker.nodes[NodeId("n")].record.acceptance > before
    play.verified("s", 5, (6, 7, 8), 4, 2, "n")
    after = play.broker.nodes[NodeId("n")].record.acceptance
    play.verified("s", 8, (9,), 4, 0, "n")
    assert play.broker.nodes[NodeId("n")].record.acceptance < after


def test_a_node_that_never_answers_is_not_preferred_to_one_that_does(play: Any) -> None:
    """An unmeasured node counts as prompt; one that let its streams end without a draft does not."""
    play.join("silent", streams=100)
    play.open("a")
    play.now += 5
    play.closed("a")
    play.join("slow", streams=2)
    play.broker.nodes[NodeId("slow")].responded(400.0)
    assert {o.node for s in "bc" for o in only(do.OpenStream, play.open(s))} == {"slow"}


def test_a_stream_that_ends_soon_says_nothing_about_its_node(play: Any) -> None:
    """There was no time to answer."""
    play.join("n")
    play.open("a")
    play.now += 1.5
    play.closed("a")
    assert play.broker.nodes[NodeId("n")].response_ms(1.0) is None


def test_the_better_node_is_preferred(play: Any) -> None:
    """Acceptance times responsiveness, before load."""
    play.join("slow", streams=8)
    play.open("a")
    play.now += 1.5
    play.draft("slow", "a", 3, (4, 4, 4, 4))
    play.join("fast", streams=8)
    assert {o.node for s in "bcd" for o in only(do.OpenStream, play.open(s))} == {"fast"}


def test_demand_is_sent_when_the_reason_changes(play: Any) -> None:
    """No demand, serving, holding, and nothing twice."""
    assert [d.reason for d in only(do.SendDemand, play.join("n"))] == [DemandReason.NO_DEMAND]
    assert [d.reason for d in only(do.SendDemand, play.open("a"))] == [DemandReason.SERVING]
    assert not only(do.SendDemand, play.open("b"))
    assert [d.reason for d in only(do.SendDemand, play.hold("n"))] == [DemandReason.HOLDING]


def test_two_tapes_per_stream_open_two_nodes(make_play: Callable[..., Any]) -> None:
    """Each has its own tape; the wait is that of the faster one."""
    play = make_play(tapes_per_stream=2)
    for node in "nmo":
        play.join(node)
    assert len({o.node for o in only(do.OpenStream, play.open("s"))}) == 2
    first, second = sorted(play.assigned("s"))
    assert {a.node for a in only(do.AdvanceStream, play.verified("s", 3, (4,)))} == {first, second}
    play.leave(first)
    assert len(play.assigned("s")) == 2 and first not in play.assigned("s")


def test_a_closed_stream_gives_its_node_a_receipt(play: Any) -> None:
    """Drafted and accepted tokens of this node on this stream."""
    play.join("n")
    play.open("s")
    play.verified("s", 3, (4, 5, 6), 4, 2, "n")
    play.verified("s", 6, (7,))
    [close] = only(do.CloseStream, play.closed("s"))
    assert close.receipt == Receipt(drafted=4, accepted=2)
    assert not play.broker.streams and not play.broker.nodes[NodeId("n")].open


def test_figures_sum_over_choices_and_trace_choice_zero(play: Any) -> None:
    """`s` and `s/1` are one request; the origins are those of the first choice."""
    play.join("n")
    play.register("s", trace=True)
    play.opened("s")
    play.opened("s/1")
    play.verified("s", 3, (4, 5, 6), 4, 2, "n")
    play.verified("s", 6, (7, 8), 1, 1, "n")
    play.verified("s", 8, (9,))
    play.verified("s/1", 3, (4,))
    registration = play.broker.registrations[StreamId("s")]
    figures = registration.figures()
    assert (figures.drafted, figures.accepted, figures.verify_steps, figures.output_tokens) == (5, 3, 4, 7)
    assert figures.origins == ("accepted", "accepted", "corrected", "accepted", "bonus", "plain")
    assert figures.seed == 7 and figures.node_class == "any"
    play.closed("s")
    assert not registration.closed
    play.closed("s/1")
    assert registration.closed


def test_a_lost_verifier_ends_its_streams_and_a_reopened_stream_goes_on(play: Any) -> None:
    """The request's figures go on where the stream is admitted again."""
    play.join("n")
    play.open("s")
    play.verified("s", 3, (4,))
    assert [c.reason for c in only(do.CloseStream, play.send(ev.VerifierLost("v")))] == ["verifier_lost"]
    assert not play.broker.streams
    play.verifier()
    assert only(do.OpenStream, play.opened("s", (*PROMPT, 4)))
    play.verified("s", 4, (5,))
    assert play.broker.registrations[StreamId("s")].figures().output_tokens == 2


def test_a_silent_node_is_replaced_when_another_is_free(play: Any) -> None:
    """With nobody else there it keeps the stream."""
    play.join("silent")
    play.open("s")
    play.now += 31
    play.send(ev.Tick())
    assert play.assigned("s") == {"silent"}
    play.join("other")
    play.send(ev.Tick())
    assert play.assigned("s") == {"other"}


def test_a_released_stream_without_sign_of_life_is_forgotten(play: Any) -> None:
    """Its `Closed` was lost; the node is told, the tape dropped."""
    play.join("n")
    play.open("s")
    play.send(ev.StreamReleased(StreamId("s")))
    play.now += 30
    play.verified("s", 3, (4,))
    play.now += 31
    play.send(ev.Tick())
    assert play.broker.streams
    play.now += 30
    out = play.send(ev.Tick())
    assert only(do.CloseStream, out) and only(do.DropTape, out)
    assert not play.broker.streams and not play.broker.registrations


def test_a_released_stream_that_is_opened_anew_is_forgotten_too(play: Any) -> None:
    """Nobody would ask for it, and nothing else would end it."""
    play.open("s")
    play.send(ev.StreamReleased(StreamId("s")))
    play.opened("s", (9, 9, 9))
    play.now += 61
    play.send(ev.Tick())
    assert not play.broker.streams


@pytest.mark.parametrize(
    "wrong",
    [
        {"tapes_per_stream": 0},
        {"k": 0},
        {"k": 257},
        {"ahead": 0},
        {"ahead": 5_000},
        {"candidates": 0},
        {"candidates": 5},
        {"max_open_tokens": 1 << 21},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    """No node and no token makes no sense, and the protocol has its limits; the setting is named."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BrokerSettings(**wrong)
