"""Sample messages and sessions brought to any state, shared by the tests of the node protocol."""

from collections.abc import Callable

import pytest

from shared.sampling import Sampling
from shared.wire.limits import Limits
from shared.wire.messages import (
    Advance,
    Beat,
    Challenge,
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
    NodeStats,
    Open,
    Proof,
    Receipt,
    Refuse,
    Resume,
    Welcome,
)
from shared.wire.session import CloudSession, NodeSession
from shared.wire.states import Role, State

NONCE = bytes(range(32))
CLOUD = "gateway-1"

SAMPLES: dict[str, NodeMessage | CloudMessage] = {
    "hello": Hello(
        versions=(1,),
        key=bytes(range(32)),
        engine="vllm 0.32.0",
        models=(ModelOffer(name="qwen2.5-coder-0.5b", fingerprint="ab" * 32, vocabulary=151665),),
        streams=4,
        agent="nexus 0.1.0",
        ask=120,
    ),
    "proof": Proof(signature=bytes(64)),
    "draft": Draft(stream="s1", epoch=0, pos=3, tokens=(7, 300, 70000, 2**31 - 1)),
    "beat": Beat(seq=3, stats=NodeStats(streams=1, drafted_tokens=40, tokens_per_s=31.5), energy=12.25),
    "hold": Hold(reason=HoldReason.BATTERY),
    "resume": Resume(),
    "drain": Drain(),
    "challenge": Challenge(version=1, nonce=NONCE, cloud=CLOUD),
    "welcome": Welcome(node="0f" * 16, beat_s=5.0, frame_limit=65536),
    "open": Open(
        stream="s1",
        model="qwen2.5-coder-1.5b",
        fingerprint="ab" * 32,
        tokens=(1, 2, 3),
        sampling=Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
        seed=42,
        k=4,
        ahead=16,
    ),
    "advance": Advance(stream="s1", epoch=0, pos=3, tokens=(7, 300)),
    "close": Close(stream="s1", reason="finished", receipt=Receipt(drafted=40, accepted=31)),
    "demand": Demand(reason=DemandReason.NO_DEMAND, message="No requests at the moment."),
    "earnings": Earnings(pending=1_000_000, payable=250, paid=0),
    "refuse": Refuse(code="proof_failed", message="The signature does not fit the key in Hello."),
}
"""One of each message, by its tag."""

_PATHS: dict[State, tuple[str, ...]] = {
    State.CONNECTING: (),
    State.GREETED: ("hello",),
    State.CHALLENGED: ("hello", "challenge"),
    State.PROVING: ("hello", "challenge", "proof"),
    State.OPEN: ("hello", "challenge", "proof", "welcome", "open"),
    State.HOLDING: ("hello", "challenge", "proof", "welcome", "open", "hold"),
    State.DRAINING: ("hello", "challenge", "proof", "welcome", "open", "drain"),
    State.CLOSED: ("hello", "refuse"),
}
"""Messages that lead to each state; where streams may be, `s1` was opened."""


def pass_on(node: NodeSession, cloud: CloudSession, message: NodeMessage | CloudMessage) -> object:
    """Send `message` from its own end and read it at the other; the event."""
    if isinstance(message, NodeMessage):
        return cloud.receive(node.send(message))
    return node.receive(cloud.send(message))


def sessions_in(state: State) -> tuple[NodeSession, CloudSession]:
    """Two connected sessions that have both reached `state`."""
    node, cloud = NodeSession(Limits()), CloudSession(Limits(), (1,), cloud_id=CLOUD, nonce=NONCE)
    for tag in _PATHS[state]:
        pass_on(node, cloud, SAMPLES[tag])
    return node, cloud


@pytest.fixture(scope="session")
def samples() -> dict[str, NodeMessage | CloudMessage]:
    """One of each message, by its tag."""
    return SAMPLES


@pytest.fixture(scope="session")
def sessions() -> Callable[[State], tuple[NodeSession, CloudSession]]:
    """Makes two connected sessions that have both reached a state."""
    return sessions_in


@pytest.fixture(scope="session")
def by_role() -> Callable[[Role, State], NodeSession | CloudSession]:
    """Makes the session of one role in a state."""

    def make(role: Role, state: State) -> NodeSession | CloudSession:
        return sessions_in(state)[0 if role is Role.NODE else 1]

    return make
