"""Both ends joined by two byte queues, in every interleaving of legal traffic."""

from collections import deque

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shared.sampling import Sampling
from shared.wire.limits import Limits
from shared.wire.messages import (
    Advance,
    Beat,
    Close,
    CloudMessage,
    Demand,
    DemandReason,
    Draft,
    Drain,
    Earnings,
    Hello,
    Hold,
    HoldReason,
    ModelOffer,
    NodeMessage,
    Open,
    Proof,
    Resume,
    Welcome,
)
from shared.wire.session import CloudSession, Ignored, NodeSession
from shared.wire.states import State

TOKENS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4).map(tuple)
STREAMS = 3


class Traffic(RuleBasedStateMachine):
    """Each rule is something an application may do in the state it sees; no rule may raise."""

    def __init__(self) -> None:
        super().__init__()
        limits = Limits(closed_streams=10_000)
        self.node = NodeSession(limits)
        self.cloud = CloudSession(limits, cloud_id="g", nonce=bytes(32))
        self.to_cloud: deque[bytes] = deque()
        self.to_node: deque[bytes] = deque()
        self.opened = 0
        self.epochs: dict[tuple[str, int], int] = {}
        self.seen: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.candidates: dict[str, int] = {}

    def say(self, message: NodeMessage | CloudMessage) -> None:
        if isinstance(message, NodeMessage):
            self.to_cloud.append(self.node.send(message))
        else:
            self.to_node.append(self.cloud.send(message))

    @initialize(handshake=st.booleans())
    def begin(self, handshake: bool) -> None:
        """Most runs begin after the handshake, so that they have time for streams."""
        self.say_hello()
        if handshake:
            self.deliver_to_cloud()
            self.deliver_to_node()
            self.prove()
            self.deliver_to_cloud()
            self.deliver_to_node()

    def say_hello(self) -> None:
        offer = ModelOffer(name="m", fingerprint="f", vocabulary=10)
        self.say(Hello(versions=(1,), key=bytes(32), engine="e", models=(offer,), streams=STREAMS))

    @precondition(lambda self: self.to_cloud)
    @rule()
    def deliver_to_cloud(self) -> None:
        event = self.cloud.receive(self.to_cloud.popleft())
        match event:
            case Hello():
                self.say(self.cloud.challenge())
            case Proof():
                self.say(Welcome(node="n", beat_s=5.0, frame_limit=65536))
            case Draft():
                assert event.stream in self.cloud.open_streams
                if event.candidate == 0:
                    self.seen[event.stream] = event.epoch
            case Ignored():
                assert isinstance(event.message, Draft)
                assert event.message.stream not in self.cloud.open_streams

    @precondition(lambda self: self.to_node)
    @rule()
    def deliver_to_node(self) -> None:
        event = self.node.receive(self.to_node.popleft())
        match event:
            case Open() | Advance():
                assert event.stream in self.node.open_streams
            case Close():
                assert event.stream not in self.node.open_streams

    @precondition(lambda self: self.node.state is State.CHALLENGED)
    @rule()
    def prove(self) -> None:
        self.say(Proof(signature=bytes(64)))

    @precondition(lambda self: self.node.open_streams)
    @rule(data=st.data(), tokens=TOKENS, pos=st.integers(0, 50), step=st.integers(0, 2))
    def draft(self, data: st.DataObject, tokens: tuple[int, ...], pos: int, step: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.node.open_streams)))
        candidate = data.draw(st.integers(0, self.candidates[stream] - 1))
        epoch = self.epochs.get((stream, candidate), 0) + step
        self.epochs[stream, candidate] = epoch
        self.say(Draft(stream=stream, epoch=epoch, pos=pos, tokens=tokens, candidate=candidate))

    @precondition(lambda self: self.node.state in (State.OPEN, State.HOLDING, State.DRAINING))
    @rule(seq=st.integers(0, 9))
    def beat(self, seq: int) -> None:
        self.say(Beat(seq=seq))

    @precondition(lambda self: self.node.state in (State.OPEN, State.HOLDING, State.DRAINING))
    @rule(reason=st.sampled_from(HoldReason))
    def hold(self, reason: HoldReason) -> None:
        self.say(Hold(reason=reason))

    @precondition(lambda self: self.node.state is State.HOLDING)
    @rule()
    def resume(self) -> None:
        self.say(Resume())

    @precondition(lambda self: self.node.state in (State.OPEN, State.HOLDING))
    @rule(sure=st.integers(0, 4))
    def drain(self, sure: int) -> None:
        if sure == 0:
            self.say(Drain())

    @precondition(
        lambda self: (
            self.cloud.state is State.OPEN and len(self.cloud.open_streams | self.cloud.streams_to_close) < STREAMS
        )
    )
    @rule(tokens=TOKENS, candidates=st.integers(1, 3))
    def open(self, tokens: tuple[int, ...], candidates: int) -> None:
        self.opened += 1
        stream = f"s{self.opened}"
        self.ends[stream] = len(tokens)
        self.candidates[stream] = candidates
        self.say(
            Open(
                stream=stream,
                model="m",
                fingerprint="f",
                tokens=tokens,
                sampling=Sampling(),
                seed=None,
                k=4,
                ahead=8,
                candidates=candidates,
            )
        )

    @precondition(lambda self: self.cloud.state in (State.OPEN, State.DRAINING) and self.cloud.open_streams)
    @rule(data=st.data(), tokens=TOKENS)
    def advance(self, data: st.DataObject, tokens: tuple[int, ...]) -> None:
        stream = data.draw(st.sampled_from(sorted(self.cloud.open_streams)))
        epoch = self.seen.get(stream, -1)
        self.say(Advance(stream=stream, epoch=epoch, pos=self.ends[stream], tokens=tokens))
        self.ends[stream] += len(tokens)

    @precondition(lambda self: self.cloud.open_streams | self.cloud.streams_to_close)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        streams = self.cloud.open_streams | self.cloud.streams_to_close
        self.say(Close(stream=data.draw(st.sampled_from(sorted(streams))), reason="finished"))

    @precondition(lambda self: self.cloud.state in (State.OPEN, State.HOLDING, State.DRAINING))
    @rule()
    def inform(self) -> None:
        self.say(Demand(reason=DemandReason.SERVING))
        self.say(Earnings(pending=1, payable=2, paid=3))

    @invariant()
    def bounded(self) -> None:
        """Neither end ever has more streams than the node offered."""
        assert len(self.node.open_streams) <= STREAMS
        assert len(self.cloud.open_streams | self.cloud.streams_to_close) <= STREAMS

    def teardown(self) -> None:
        """When all is delivered and the ended streams are closed, both know the same state and streams."""
        while self.to_cloud or self.to_node or self.cloud.streams_to_close:
            while self.to_cloud:
                self.deliver_to_cloud()
            for stream in sorted(self.cloud.streams_to_close):
                self.say(Close(stream=stream, reason="hold"))
            while self.to_node:
                self.deliver_to_node()
        assert self.node.state is self.cloud.state
        if self.node.state is State.DRAINING:
            assert self.node.open_streams <= self.cloud.open_streams
        else:
            assert self.node.open_streams == self.cloud.open_streams


Traffic.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestTraffic = Traffic.TestCase
