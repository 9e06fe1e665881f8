"""Every way in which a node can waste time: measured, demoted, refused; and honest nodes that are not."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.broker.budget import Budget
from cloud.api.broker.conduct import Record, Records, upper_bound
from cloud.api.broker.settings import BrokerSettings
from shared.errors import RateLimited
from shared.ids import NodeId
from shared.wire.messages import DemandReason

PROMPT = (1, 2, 3)
Strategy = Callable[["Run", str, int], None]
"""(run, stream, position): what the bad node sends before the target commits the token at that position."""


def only(kind: type, out: list[Any]) -> list[Any]:
    return [command for command in out if isinstance(command, kind)]


class Run:
    """Streams go by, each target token committed after the node `bad` has had its say.

    The verifier is played: it takes what was forwarded for the next position and commits the target's own token, which
    is a function of the position alone.
    """

    def __init__(self, play: Any, *, rng: random.Random | None = None) -> None:
        self.play = play
        self.rng = rng or random.Random(1)
        self.streams = 0
        self.epoch = 0
        self.answers: list[list[int]] = []

    @staticmethod
    def target(pos: int) -> int:
        return 10 + pos * 7 % 50

    def draft(self, stream: str, pos: int, tokens: tuple[int, ...], *, anew: bool = True) -> list[Any]:
        self.epoch += anew
        return list(self.play.draft("bad", stream, pos, tokens, epoch=self.epoch))

    def stream(self, strategy: Strategy, length: int = 120) -> None:
        self.streams += 1
        name = f"s{self.streams}"
        self.play.open(name)
        for pos in range(len(PROMPT), len(PROMPT) + length):
            self.play.now += 0.02
            before = len(self.play.log)
            strategy(self, name, pos)
            drafted, accepted = self.check(name, pos, self.play.log[before:])
            self.play.verified(name, pos, (self.target(pos),), drafted, accepted, "bad" if drafted else None)
        self.answers.append(self.play.broker.streams[name].tokens[len(PROMPT) :])
        self.play.closed(name)
        self.play.send(ev.StreamReleased(name))

    def check(self, stream: str, pos: int, out: list[Any]) -> tuple[int, int]:
        """Tokens drafted and accepted at this position, as a verifier that takes one token at a time would say."""
        guesses = [c.tokens[pos - c.pos] for c in only(do.ForwardDraft, out) if c.pos <= pos < c.pos + len(c.tokens)]
        return (1, int(guesses[-1] == self.target(pos))) if guesses else (0, 0)

    def until_refused(self, strategy: Strategy, streams: int = 40) -> RateLimited:
        """Runs streams until the node is turned away; gives why."""
        for _ in range(streams):
            self.stream(strategy)
            if rejected := only(do.RejectNode, self.play.log):
                assert rejected[0].node == "bad" and isinstance(rejected[0].error, RateLimited)
                assert NodeId("bad") not in self.play.broker.nodes
                return rejected[0].error
        raise AssertionError("never refused")


def wrong_tokens(run: Run, stream: str, pos: int) -> None:
    run.draft(stream, pos, tuple(run.rng.randrange(60, 99) for _ in range(4)))


def outside_the_vocabulary(run: Run, stream: str, pos: int) -> None:
    run.draft(stream, pos, (100,))


def wrong_positions(run: Run, stream: str, pos: int) -> None:
    run.draft(stream, run.rng.choice([0, pos + 40]), (5,))


def gaps(run: Run, stream: str, pos: int) -> None:
    run.draft(stream, pos + 2, (5,))


def shifted(run: Run, stream: str, pos: int) -> None:
    """The right tokens, one position too late."""
    run.draft(stream, pos, tuple(run.target(p + 1) for p in range(pos, pos + 4)))


def replays(run: Run, stream: str, pos: int) -> None:
    """One draft of long ago, again and again, as often as it likes."""
    for _ in range(40):
        run.draft(stream, len(PROMPT), (20, 20, 20, 20), anew=False)


def floods(run: Run, stream: str, pos: int) -> None:
    """Right tokens, but in a new epoch each time: every message replaces the one before."""
    for _ in range(60):
        run.draft(stream, pos, (run.target(pos), run.target(pos + 1)))


def anothers_stream(run: Run, stream: str, pos: int) -> None:
    """What the session makes of a stream that was never opened here."""
    run.play.send(ev.NodeBroke(NodeId("bad")))
    run.play.leave("bad")
    run.play.join("bad")


def pauses(run: Run, stream: str, pos: int) -> None:
    run.play.hold("bad")
    run.play.resume("bad")


def connects(run: Run, stream: str, pos: int) -> None:
    run.play.leave("bad")
    run.play.join("bad")


STRATEGIES: dict[Strategy, str] = {
    wrong_tokens: "agreed with only",
    outside_the_vocabulary: "invalid",
    wrong_positions: "invalid",
    gaps: "invalid",
    shifted: "agreed with only",
    replays: "more drafts",
    floods: "more drafts",
    anothers_stream: "invalid",
    pauses: "paused",
    connects: "connected too often",
}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.__name__)
def test_every_strategy_ends_in_a_refusal_and_changes_no_token(
    make_play: Callable[..., Any], strategy: Strategy
) -> None:
    """In words that name what was wrong and for how long; the key is remembered over connections."""
    play = make_play()
    play.join("bad")
    run = Run(play)
    error = run.until_refused(strategy)
    assert STRATEGIES[strategy] in error.message and "again in 60 s" in error.message
    assert all(answer == [run.target(pos) for pos in range(3, 123)] for answer in run.answers)
    [again] = only(do.RejectNode, play.join("bad"))
    assert STRATEGIES[strategy] in again.error.message
    assert not play.broker.nodes


@pytest.mark.parametrize("strategy", [wrong_tokens, shifted], ids=lambda strategy: strategy.__name__)
def test_a_bad_node_loses_its_streams_to_a_better_one_before_it_is_refused(
    make_play: Callable[..., Any], strategy: Strategy
) -> None:
    """As soon as it is measured, and one is free."""
    play = make_play()
    play.join("bad")
    run = Run(play)
    run.stream(strategy, length=60)
    play.open("t")
    assert play.assigned("t") == {"bad"}
    play.join("good")
    out = play.send(ev.Tick())
    assert play.assigned("t") == {"good"}
    assert [c.reason for c in only(do.CloseStream, out)] == ["low_acceptance"]
    assert play.broker.counts.nodes_demoted == 1 and NodeId("bad") in play.broker.nodes


@given(acceptance=st.floats(0.15, 0.95), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_an_honest_node_with_a_poor_model_is_never_refused(acceptance: float, seed: int) -> None:
    """However poor: it is at most told, and comes last."""
    rng = random.Random(seed)
    record = Record(BrokerSettings(), 0.0)
    for step in range(3_000):
        agreed = 0
        while agreed < 4 and rng.random() < acceptance:
            agreed += 1
        record.compared(agreed, missed=agreed < 4, counts=True, now=step * 0.02)
        assert not record.worthless(step * 0.02)


@given(share=st.floats(0.0, 0.01), seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_a_node_that_is_all_but_never_right_is_refused(share: float, seed: int) -> None:
    """A few lucky hits do not save it."""
    rng = random.Random(seed)
    record = Record(BrokerSettings(), 0.0)
    for step in range(3_000):
        hit = rng.random() < share
        record.compared(int(hit), missed=True, counts=True, now=step * 0.02)
        if record.worthless(step * 0.02):
            return
    raise AssertionError(f"not refused at {share}")


def test_one_odd_stream_does_not_refuse_a_node(make_play: Callable[..., Any]) -> None:
    """A prompt on which nothing can be guessed; other streams have to confirm it."""
    play = make_play()
    play.join("bad")
    run = Run(play)
    run.stream(wrong_tokens, length=2_000)
    assert not only(do.RejectNode, play.log)
    assert play.broker.nodes[NodeId("bad")].demand is DemandReason.LOW_ACCEPTANCE


def test_misses_that_nodes_cannot_help_are_not_counted(make_play: Callable[..., Any]) -> None:
    """Penalties, bias and grammars shape the target's choice, and nodes are not told of them."""
    play = make_play()
    play.join("bad")
    before = play.broker.nodes[NodeId("bad")].record.acceptance
    for name in "abcdef":
        play.open(name, shaped=True)
        for pos in range(3, 203):
            play.verified(name, pos, (9,), 4, 0, "bad")
        play.closed(name)
    assert play.broker.nodes[NodeId("bad")].record.acceptance == before
    assert not only(do.RejectNode, play.log)


def test_drafts_that_the_verifier_did_not_take_are_measured_too(make_play: Callable[..., Any]) -> None:
    """Else a node would be safe from the moment on that the verifier stops using it."""
    play = make_play()
    play.join("bad")
    run = Run(play)
    run.check = lambda *_: (0, 0)  # type: ignore[method-assign]
    assert "agreed with only" in run.until_refused(wrong_tokens).message


def test_drafts_that_came_after_the_step_prove_nothing(make_play: Callable[..., Any]) -> None:
    """A node could copy them from the `Advance`."""
    play = make_play()
    play.join("n")
    before = play.broker.nodes[NodeId("n")].record.acceptance
    play.open("s")
    for pos in range(3, 60):
        play.verified("s", pos, (7,))
        play.draft("n", "s", pos, (7,), epoch=pos)
    assert play.broker.nodes[NodeId("n")].record.acceptance == before


def test_a_node_that_begins_anew_after_each_step_is_no_flood(make_play: Callable[..., Any]) -> None:
    """The most that an honest node sends: all it may have outstanding, token by token, after every divergence."""
    play = make_play(acceptance_min_checked=10_000, refusal_min_checked=10_000)
    play.join("n")
    play.open("s")
    for step in range(300):
        for ahead in range(16):
            play.draft("n", "s", 3 + step + ahead, (99,), epoch=step)
        play.verified("s", 3 + step, (9,), 1, 0, "n")
    assert play.broker.counts.drafts_excess == 0 and play.broker.nodes


def test_refusals_grow_and_are_forgotten(make_play: Callable[..., Any]) -> None:
    """Twice as long each time, up to a limit; after a day of good conduct it begins at the first again."""
    play = make_play(max_refusal_s=300.0, record_s=1_000.0)

    def offend() -> float:
        play.join("bad")
        start = play.now
        play.open(f"s{start}")
        for _ in range(10):
            play.draft("bad", f"s{start}", 3, (100,))
        play.closed(f"s{start}")
        assert only(do.RejectNode, play.join("bad"))
        while only(do.RejectNode, play.join("bad")):
            play.now += 1
        play.leave("bad")
        return float(play.now - start)

    assert [offend() for _ in range(4)] == [60, 120, 240, 300]
    play.now += 1_001
    play.send(ev.Tick())
    assert offend() == 60


def test_records_are_bounded() -> None:
    """The oldest go first; those of connected nodes stay."""
    records = Records(BrokerSettings(max_records=3))
    for number in range(10):
        records.of(NodeId(f"n{number}"), float(number))
    records.forget({NodeId("n0")}, 10.0)
    assert len(records) == 4
    assert records.of(NodeId("n0"), 11.0).seen == 11.0


def test_what_was_measured_fades(make_play: Callable[..., Any]) -> None:
    """A node that was mended is tried again after some hours, without a new key."""
    play = make_play()
    play.join("bad")
    Run(play).stream(wrong_tokens, length=80)
    assert play.broker.nodes[NodeId("bad")].demand is DemandReason.LOW_ACCEPTANCE
    play.now += 3_600 * 4
    [told] = only(do.SendDemand, play.send(ev.Tick()))
    assert told.reason is DemandReason.NO_DEMAND


def test_only_nodes_that_an_event_concerns_are_looked_at(
    make_play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ten thousand nodes, a step of one stream must not look at all of them."""
    play = make_play()
    for number in range(50):
        play.join(f"n{number}")
    play.open("s")
    [node] = play.assigned("s")
    looked: list[str] = []

    def spy(node: Any, _: Any) -> DemandReason:
        looked.append(node.node)
        return DemandReason.SERVING

    monkeypatch.setattr("cloud.api.broker.broker.demand", spy)
    play.draft(node, "s", 3, (4, 5))
    play.verified("s", 3, (4,), 1, 1, node)
    assert set(looked) == {node}


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3)), max_size=60))
def test_a_budget_is_never_overdrawn(events: list[tuple[float, float]]) -> None:
    """At most its size at once, and its rate in the long run."""
    budget, now, spent = Budget(5, 2), 0.0, 0.0
    for wait, amount in events:
        now += wait
        if budget.spend(now, amount):
            spent += amount
        assert spent <= 5 + 2 * now + 1e-6


def test_the_upper_bound_shrinks_with_evidence() -> None:
    """Wilson's interval: 1 without evidence, above the share always, near it in the end."""
    assert upper_bound(0, 0) == 1.0
    assert upper_bound(0, 300) == pytest.approx(9 / 309)
    bounds = [upper_bound(n / 10, n) for n in (10, 100, 1_000, 100_000)]
    assert bounds == sorted(bounds, reverse=True) and 0.1 < bounds[-1] < 0.104
