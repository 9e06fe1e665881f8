"""The broker under random histories of nodes, streams, steps and drafts."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cloud.api.accounts.money import Pico
from cloud.api.accounts.prices import Price
from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.market.pricebook import PriceBook, PriceVersion
from cloud.api.market.settings import MarketSettings
from cloud.api.market.state import Market
from shared.errors import RateLimited
from shared.ids import NodeId, StreamId

PROMPT = (1, 2, 3)
SLOTS = {"n": 1, "m": 2, "o": 3}
NODES = st.sampled_from(sorted(SLOTS))
STREAMS = st.sampled_from("abcdef")


class Machine(RuleBasedStateMachine):
    """Plays both sides; `told` is what each node knows of each stream, built from the commands alone."""

    make_play: Callable[..., Any]

    def __init__(self) -> None:
        super().__init__()
        self.play = self.make_play(tapes_per_stream=2, candidates=2, max_faults=5, max_excess=20)
        self.truth: dict[str, list[int]] = {}
        self.joined: dict[str, bool] = {}
        """Node to whether it may be given streams."""
        self.told: dict[tuple[str, str], list[int]] = {}
        self.tapes: set[tuple[str, str]] = set()
        """(stream, node) whose tape the verifier has to expect."""

    def carry(self, out: list[Any]) -> None:
        self.play.now += 0.05
        for command in out:
            match command:
                case do.OpenStream():
                    key = (command.node, command.stream)
                    assert key not in self.told, "opened twice"
                    assert self.joined.get(command.node), "opened at a node that is not available"
                    # Less than the truth only while a lost `Verified` is not noticed.
                    assert list(command.tokens) == self.truth[command.stream][: len(command.tokens)]
                    self.told[key] = list(command.tokens)
                    self.tapes.add((command.stream, command.node))
                    assert sum(node == command.node for node, _ in self.told) <= SLOTS[command.node]
                case do.AdvanceStream():
                    tokens = self.told[command.node, command.stream]
                    assert command.pos == len(tokens), "a gap"
                    tokens.extend(command.tokens)
                    assert tokens == self.truth[command.stream][: len(tokens)]
                case do.CloseStream():
                    del self.told[command.node, command.stream]
                case do.RejectNode():
                    assert isinstance(command.error, RateLimited)
                    self.joined.pop(command.node, None)
                    self.forget(command.node)
                case do.ForwardDraft():
                    node, _, candidate = command.tape.partition("/")
                    assert (node, command.stream) in self.told, "draft of an unassigned node"
                    assert candidate in ("", "1")
                    assert (command.stream, node) in self.tapes
                    self.tapes.add((command.stream, command.tape))
                    assert all(0 <= token < 100 for token in command.tokens)
                case do.DropTape():
                    # A candidate of which nothing was fit to be passed on may be dropped as well.
                    self.tapes.discard((command.stream, command.tape))

    def forget(self, node: str) -> None:
        self.told = {key: value for key, value in self.told.items() if key[0] != node}

    @rule(node=NODES)
    def join(self, node: str) -> None:
        self.forget(node)
        self.joined[node] = True
        self.carry(self.play.join(node, SLOTS[node]))

    @rule(node=NODES)
    def leave(self, node: str) -> None:
        self.joined.pop(node, None)
        self.forget(node)
        self.carry(self.play.leave(node))

    @rule(node=NODES)
    def hold(self, node: str) -> None:
        if node in self.joined:
            self.joined[node] = False
            self.carry(self.play.hold(node))
            assert not any(key[0] == node for key in self.told)

    @rule(node=NODES)
    def resume(self, node: str) -> None:
        if node in self.joined:
            self.joined[node] = True
            self.carry(self.play.resume(node))

    @rule(node=NODES)
    def break_the_protocol(self, node: str) -> None:
        if node in self.joined:
            self.carry(self.play.send(ev.NodeBroke(NodeId(node))))

    @rule(node=NODES, stream=STREAMS, epoch=st.integers(0, 3))
    def flood(self, node: str, stream: str, epoch: int) -> None:
        for _ in range(40):
            self.carry(self.play.draft(node, stream, len(self.truth.get(stream, PROMPT)), (1, 2), epoch))

    @rule(stream=STREAMS)
    def open(self, stream: str) -> None:
        if stream not in self.truth:
            self.truth[stream] = list(PROMPT)
            self.carry(self.play.open(stream))

    @rule(stream=STREAMS, tokens=st.lists(st.integers(0, 3), min_size=1, max_size=5), lost=st.booleans())
    def verify(self, stream: str, tokens: list[int], lost: bool) -> None:
        if stream not in self.truth:
            return
        pos = len(self.truth[stream])
        self.truth[stream] += tokens
        if not lost:
            self.carry(self.play.verified(stream, pos, tuple(tokens)))

    @rule(stream=STREAMS)
    def answer_resync(self, stream: str) -> None:
        if stream in self.truth:
            self.carry(self.play.opened(stream, tuple(self.truth[stream])))

    @rule(
        node=NODES,
        stream=STREAMS,
        ahead=st.integers(-3, 9),
        tokens=st.lists(st.integers(0, 101), max_size=4),
        epoch=st.integers(0, 3),
        candidate=st.sampled_from([0, 0, 0, 1, 1, 2]),
    )
    def draft(self, node: str, stream: str, ahead: int, tokens: list[int], epoch: int, candidate: int) -> None:
        pos = len(self.truth.get(stream, PROMPT)) + ahead
        self.carry(self.play.draft(node, stream, pos, tuple(tokens), epoch, candidate))

    @rule(stream=STREAMS)
    def close(self, stream: str) -> None:
        if self.truth.pop(stream, None) is not None:
            self.tapes = {key for key in self.tapes if key[0] != stream}
            self.carry(self.play.closed(stream))
            self.play.send(ev.StreamReleased(StreamId(stream)))

    @rule(seconds=st.sampled_from([1, 40]))
    def tick(self, seconds: int) -> None:
        self.play.now += seconds
        self.carry(self.play.send(ev.Tick()))
        self.carry(self.play.send(ev.MinuteBegan(int(self.play.now))))

    @rule()
    def verifier_restarts(self) -> None:
        self.truth.clear()
        self.tapes.clear()
        self.carry(self.play.send(ev.VerifierLost("v")))
        assert not self.told
        for stream in list(self.play.broker.registrations):
            self.carry(self.play.send(ev.StreamReleased(stream)))
        self.carry(self.play.verifier())

    @invariant()
    def both_sides_agree(self) -> None:
        broker = self.play.broker
        assigned = {(n, s) for s, stream in broker.streams.items() for n in stream.tapes}
        assert assigned == set(self.told)
        assert {(s, n.partition("/")[0]) for s, n in self.tapes} == {(s, n) for n, s in assigned}, "a node that is gone"
        assert {tape for tape in self.tapes if "/" not in tape[1]} == {(s, n) for n, s in assigned}
        assert assigned == {(n, s) for n, node in broker.nodes.items() for s in node.open}
        assert {NodeId(n) for n in self.joined} == set(broker.nodes)

    @invariant()
    def nothing_is_left_of_closed_streams(self) -> None:
        broker = self.play.broker
        assert set(broker.streams) <= set(self.truth)
        assert set(broker.registrations) == set(self.truth)

    @invariant()
    def no_slot_is_idle_while_a_stream_waits(self) -> None:
        broker = self.play.broker
        waiting = [s for s in broker.streams.values() if not s.tapes]
        assert not waiting or not any(node.available for node in broker.nodes.values())


def market() -> Market:
    """New nodes are tried, proven ones are paid: with asks of 0 each may draft."""
    book = PriceBook((PriceVersion("p", "big", 0, Price(completion=Pico(600_000))),))
    return Market(MarketSettings(prove_tokens=3, least_yield=100), book)


@pytest.mark.parametrize("traded", [False, True])
def test_the_broker_keeps_its_rules(make_play: Callable[..., Any], traded: bool) -> None:
    """Slots, contiguous advances, dropped tapes, no draft from a stranger, nothing left behind."""

    def play(**settings: Any) -> Any:
        return make_play(**settings, market=market() if traded else None)

    kind = type("BoundMachine", (Machine,), {"make_play": staticmethod(play)})
    run_state_machine_as_test(
        kind,
        settings=settings(
            max_examples=30,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
