"""Sessions of the node protocol: what each end may do, and what it makes of the other's mistakes."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from shared.errors import (
    InvalidInput,
    LimitExceeded,
    LocalMisuse,
    ProofFailed,
    ProtocolError,
    TokenizerMismatch,
    Unavailable,
    VersionUnsupported,
)
from shared.keys import NodeKey, proof_payload, verify_proof
from shared.wire import codec
from shared.wire.limits import Limits
from shared.wire.messages import Advance, Close, Draft, Message, Open, Refuse
from shared.wire.session import CloudSession, Ignored, IgnoredBecause, NodeSession
from shared.wire.states import SENDS, TABLE, Role, State

Make = Callable[[State], tuple[NodeSession, CloudSession]]
Samples = Mapping[str, Any]
TYPES = sorted(SENDS[Role.NODE] | SENDS[Role.CLOUD], key=lambda kind: kind.__name__)
NONCE = bytes(range(32))


def tag_of(kind: type[Message]) -> str:
    return str(kind.__struct_config__.tag)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("role", Role)
def test_every_pair_of_state_and_message(
    role: Role,
    state: State,
    kind: type[Message],
    by_role: Callable[[Role, State], Any],
    samples: Samples,
) -> None:
    """The table decides: a legal message moves the session there, any other is refused by the right error."""
    session = by_role(role, state)
    message = samples[tag_of(kind)]
    if kind is Open:
        message = msgspec.structs.replace(message, stream="s2")
    after = TABLE.get((role, state, kind))
    if kind in SENDS[role]:
        if after is None:
            with pytest.raises(LocalMisuse):
                session.send(message)
            assert session.state is state
        else:
            assert codec.encode(message) == session.send(message)
            assert session.state is after
    elif state is State.CLOSED:
        with pytest.raises(LocalMisuse, match="closed"):
            session.receive(codec.encode(message))
    elif after is None:
        with pytest.raises(ProtocolError, match=rf"{kind.__name__} is not allowed .* {state}"):
            session.receive(codec.encode(message))
        assert session.state is State.CLOSED
    else:
        event = session.receive(codec.encode(message))
        assert (event.message if isinstance(event, Ignored) else event) == message
        assert session.state is after


@pytest.mark.parametrize("state", [state for state in State if state is not State.CLOSED])
def test_a_message_of_the_wrong_direction_is_refused(state: State, sessions: Make, samples: Samples) -> None:
    """An end neither sends nor reads what belongs to the other direction."""
    node, cloud = sessions(state)
    with pytest.raises(LocalMisuse, match="node does not send Close"):
        node.send(samples["close"])
    with pytest.raises(LocalMisuse, match="cloud does not send Draft"):
        cloud.send(samples["draft"])
    with pytest.raises(ProtocolError):
        node.receive(codec.encode(samples["draft"]))
    with pytest.raises(ProtocolError):
        cloud.receive(codec.encode(samples["close"]))


def test_handshake_proves_the_exact_hello(samples: Samples) -> None:
    """The cloud verifies over the bytes that the node signed."""
    key = NodeKey.generate()
    node, cloud = NodeSession(), CloudSession(cloud_id="gateway-1", nonce=NONCE)
    cloud.receive(node.send(msgspec.structs.replace(samples["hello"], key=key.public)))
    assert node.hello_bytes == cloud.hello_bytes != b""
    node.receive(cloud.send(cloud.challenge()))
    payload = proof_payload(node.challenge.nonce, node.challenge.cloud, node.hello_bytes)
    proof = cloud.receive(node.send(msgspec.structs.replace(samples["proof"], signature=key.sign(payload))))
    verify_proof(cloud.hello.key, proof.signature, cloud.nonce, cloud.cloud_id, cloud.hello_bytes)
    with pytest.raises(ProofFailed):
        verify_proof(cloud.hello.key, proof.signature, cloud.nonce, "gateway-2", cloud.hello_bytes)
    node.receive(cloud.send(samples["welcome"]))
    assert node.state is cloud.state is State.OPEN


def test_the_best_common_version_is_chosen(samples: Samples) -> None:
    """The cloud's order of preference wins."""
    cloud = CloudSession(Limits(), (3, 2, 1), cloud_id="g", nonce=NONCE)
    cloud.receive(codec.encode(msgspec.structs.replace(samples["hello"], versions=(1, 2, 9))))
    assert cloud.version == 2
    assert cloud.challenge().version == 2


def test_no_common_version_is_refused_in_words(samples: Samples) -> None:
    """The error names what both speak, and the refusal reaches the node."""
    node, cloud = NodeSession(), CloudSession(Limits(), (3,), cloud_id="g", nonce=NONCE)
    with pytest.raises(VersionUnsupported, match=r"version 1, the cloud 3") as caught:
        cloud.receive(node.send(samples["hello"]))
    assert cloud.state is State.CLOSED
    refusal = cloud.refusal(caught.value)
    assert refusal.close_code == 4001
    told = node.receive(refusal.frame)
    assert told == Refuse(code="version_unsupported", message=caught.value.message)
    assert node.state is State.CLOSED


def test_a_version_that_was_not_offered_is_refused_by_the_node(samples: Samples) -> None:
    """The node does not follow a cloud that chooses another version."""
    node = NodeSession()
    node.send(samples["hello"])
    with pytest.raises(VersionUnsupported, match="chose protocol version 2"):
        node.receive(codec.encode(msgspec.structs.replace(samples["challenge"], version=2)))


def test_the_challenge_is_the_sessions_own(samples: Samples) -> None:
    """A challenge with another nonce than will be verified is a local mistake."""
    cloud = CloudSession(cloud_id="gateway-1", nonce=NONCE)
    cloud.receive(codec.encode(samples["hello"]))
    with pytest.raises(LocalMisuse, match="differs"):
        cloud.send(msgspec.structs.replace(samples["challenge"], nonce=bytes(32)))


def test_the_node_obeys_the_announced_frame_limit(samples: Samples) -> None:
    """After Welcome the smaller of both limits holds."""
    node = NodeSession()
    for tag in ("hello", "proof"):
        node.send(samples[tag])
        reply = "challenge" if tag == "hello" else "welcome"
        node.receive(codec.encode(msgspec.structs.replace(samples[reply], **_small(reply))))
    node.receive(codec.encode(samples["open"]))
    with pytest.raises(LocalMisuse, match="takes 40"):
        node.send(samples["draft"])


def _small(tag: str) -> dict[str, int]:
    return {"frame_limit": 40} if tag == "welcome" else {}


def test_a_frame_over_the_limit_closes_the_session(samples: Samples) -> None:
    """Limits are checked on what arrives."""
    cloud = CloudSession(Limits(node_frame=50), cloud_id="g", nonce=NONCE)
    with pytest.raises(LimitExceeded):
        cloud.receive(codec.encode(samples["hello"]))
    assert cloud.state is State.CLOSED


@pytest.mark.parametrize("tokens", [["a"], [None], 3, ("1", "2"), (2**31,), ()])
def test_values_that_cannot_be_sent_are_local_misuse(tokens: Any, sessions: Make) -> None:
    """Values out of range or without a form on the wire are found before they leave, and change nothing."""
    node, _ = sessions(State.OPEN)
    with pytest.raises(LocalMisuse):
        node.send(Draft(stream="s1", epoch=0, pos=3, tokens=tokens))
    assert node.state is State.OPEN


# --- streams -----------------------------------------------------------------------------------


def draft(
    stream: str = "s1", epoch: int = 0, pos: int = 3, tokens: tuple[int, ...] = (7,), candidate: int = 0
) -> Draft:
    return Draft(stream=stream, epoch=epoch, pos=pos, tokens=tokens, candidate=candidate)


def advance(stream: str = "s1", epoch: int = -1, pos: int = 3, tokens: tuple[int, ...] = (7,)) -> Advance:
    return Advance(stream=stream, epoch=epoch, pos=pos, tokens=tokens)


CLOSE = Close(stream="s1", reason="finished")


def test_a_draft_right_after_close_is_ignored_and_reported(sessions: Make) -> None:
    """It was on the way when the stream ended; that is nobody's fault."""
    node, cloud = sessions(State.OPEN)
    late = node.send(draft())
    node.receive(cloud.send(CLOSE))
    assert cloud.receive(late) == Ignored(draft(), IgnoredBecause.STREAM_CLOSED)
    assert cloud.state is State.OPEN
    assert not node.open_streams and not cloud.open_streams
    with pytest.raises(LocalMisuse, match="not open"):
        node.send(draft())


def test_a_draft_for_a_stream_never_opened_is_a_protocol_error(sessions: Make) -> None:
    """A node cannot draft for streams it was not given."""
    _, cloud = sessions(State.OPEN)
    with pytest.raises(ProtocolError, match="'s9', which was never opened"):
        cloud.receive(codec.encode(draft("s9")))
    assert cloud.state is State.CLOSED


def test_the_memory_of_closed_streams_is_bounded(samples: Samples) -> None:
    """Only the last so many closed ids are remembered."""
    cloud = CloudSession(Limits(closed_streams=2), cloud_id="gateway-1", nonce=NONCE)
    cloud.receive(codec.encode(samples["hello"]))
    cloud.send(cloud.challenge())
    cloud.receive(codec.encode(samples["proof"]))
    cloud.send(samples["welcome"])
    for name in ("a", "b", "c"):
        cloud.send(msgspec.structs.replace(samples["open"], stream=name))
        cloud.send(Close(stream=name, reason="finished"))
    assert isinstance(cloud.receive(codec.encode(draft("b"))), Ignored)
    with pytest.raises(ProtocolError, match="never opened"):
        cloud.receive(codec.encode(draft("a")))


def test_epochs_never_go_back(sessions: Make) -> None:
    """At the node a local mistake, at the cloud a protocol error."""
    node, cloud = sessions(State.OPEN)
    cloud.receive(node.send(draft(epoch=2)))
    cloud.receive(node.send(draft(epoch=2, pos=4)))
    with pytest.raises(LocalMisuse, match="epoch 1 after epoch 2"):
        node.send(draft(epoch=1))
    with pytest.raises(ProtocolError, match="epoch 1 after epoch 2"):
        cloud.receive(codec.encode(draft(epoch=1)))


def test_each_candidate_has_epochs_of_its_own(samples: Samples) -> None:
    """A new epoch of one ends nothing of another, and `Advance` speaks of the main line."""
    node, cloud = _with_candidates(samples, 2)
    for epoch, candidate in ((4, 1), (0, 0), (4, 1), (1, 0)):
        cloud.receive(node.send(draft(epoch=epoch, candidate=candidate)))
    with pytest.raises(LocalMisuse, match="epoch 3 after epoch 4"):
        node.send(draft(epoch=3, candidate=1))
    with pytest.raises(LocalMisuse, match="newest draft is of epoch 1"):
        cloud.send(advance(epoch=4))
    node.receive(cloud.send(advance(epoch=1)))
    with pytest.raises(ProtocolError, match="epoch 3 after epoch 4"):
        cloud.receive(codec.encode(draft(epoch=3, candidate=1)))


@pytest.mark.parametrize("asked", [1, 2])
def test_no_more_candidates_than_asked_for(asked: int, samples: Samples) -> None:
    """At the node a local mistake that changes nothing, at the cloud a protocol error."""
    node, cloud = _with_candidates(samples, asked)
    with pytest.raises(LocalMisuse, match=f"candidate {asked}; the cloud asked for {asked}"):
        node.send(draft(candidate=asked))
    cloud.receive(node.send(draft(candidate=asked - 1)))
    with pytest.raises(ProtocolError, match=f"candidate {asked}; the cloud asked for {asked}"):
        cloud.receive(codec.encode(draft(candidate=asked)))
    assert cloud.state is State.CLOSED


def _with_candidates(samples: Samples, asked: int) -> tuple[NodeSession, CloudSession]:
    node, cloud = NodeSession(), CloudSession(cloud_id="gateway-1", nonce=NONCE)
    cloud.receive(node.send(samples["hello"]))
    node.receive(cloud.send(cloud.challenge()))
    cloud.receive(node.send(samples["proof"]))
    node.receive(cloud.send(samples["welcome"]))
    node.receive(cloud.send(msgspec.structs.replace(samples["open"], candidates=asked)))
    return node, cloud


def test_advances_are_contiguous(sessions: Make) -> None:
    """Each begins where the one before ended, and a wrong one changes nothing at the cloud."""
    node, cloud = sessions(State.OPEN)
    node.receive(cloud.send(advance(pos=3, tokens=(7, 8))))
    for pos in (4, 6):
        with pytest.raises(LocalMisuse, match=f"Advance at {pos}.*up to 5"):
            cloud.send(advance(pos=pos))
    node.receive(cloud.send(advance(pos=5)))
    with pytest.raises(ProtocolError, match=r"Advance at 9.*up to 6"):
        node.receive(codec.encode(advance(pos=9)))


def test_an_advance_names_an_epoch_that_was_seen(sessions: Make) -> None:
    """Not one from the future, and none older than the last."""
    node, cloud = sessions(State.OPEN)
    with pytest.raises(LocalMisuse, match="newest draft is of epoch -1"):
        cloud.send(advance(epoch=1))
    cloud.receive(node.send(draft(epoch=1)))
    node.receive(cloud.send(advance(epoch=1)))
    with pytest.raises(LocalMisuse, match="epoch 0 after epoch 1"):
        cloud.send(advance(epoch=0, pos=4))
    with pytest.raises(ProtocolError, match="epoch 5"):
        node.receive(codec.encode(advance(epoch=5, pos=4)))


def test_a_stream_is_opened_once(sessions: Make, samples: Samples) -> None:
    """Twice is a local mistake at the cloud, a protocol error at the node; a used id is not used again."""
    node, cloud = sessions(State.OPEN)
    with pytest.raises(LocalMisuse, match="opened before"):
        cloud.send(samples["open"])
    cloud.send(CLOSE)
    with pytest.raises(LocalMisuse, match="used once"):
        cloud.send(samples["open"])
    with pytest.raises(ProtocolError, match="opened and not closed"):
        node.receive(codec.encode(samples["open"]))


@pytest.mark.parametrize("message", [advance("s9"), Close(stream="s9", reason="finished")])
def test_advance_and_close_need_an_open_stream(message: Any, sessions: Make) -> None:
    """At both ends."""
    node, cloud = sessions(State.OPEN)
    with pytest.raises(LocalMisuse, match="'s9', which is not open"):
        cloud.send(message)
    with pytest.raises(ProtocolError, match="'s9', which is not open"):
        node.receive(codec.encode(message))


def test_no_more_streams_than_offered(sessions: Make, samples: Samples) -> None:
    """`Hello.streams` bounds both ends."""
    node, cloud = sessions(State.OPEN)
    for number in range(3):
        node.receive(cloud.send(msgspec.structs.replace(samples["open"], stream=f"more-{number}")))
    fifth = msgspec.structs.replace(samples["open"], stream="fifth")
    with pytest.raises(LocalMisuse, match="offered 4 streams"):
        cloud.send(fifth)
    with pytest.raises(LimitExceeded, match="beyond the 4 streams"):
        node.receive(codec.encode(fifth))


def test_only_offered_tokenizers_are_opened(sessions: Make, samples: Samples) -> None:
    """A stream of another tokenizer is refused at both ends."""
    node, cloud = sessions(State.OPEN)
    other = msgspec.structs.replace(samples["open"], stream="s2", fingerprint="cd" * 32)
    with pytest.raises(LocalMisuse, match="did not offer"):
        cloud.send(other)
    with pytest.raises(ProtocolError, match="did not offer"):
        node.receive(codec.encode(other))


def test_an_open_that_crosses_a_hold_is_ignored(sessions: Make, samples: Samples) -> None:
    """The node reports it, drafts nothing for it, and reads the cloud's words about it until its Close."""
    node, cloud = sessions(State.OPEN)
    s2 = msgspec.structs.replace(samples["open"], stream="s2")
    on_the_way = [cloud.send(s2), cloud.send(advance("s2")), cloud.send(advance("s1"))]
    hold = node.send(samples["hold"])
    events = [node.receive(frame) for frame in on_the_way]
    assert events == [
        Ignored(s2, IgnoredBecause.NOT_ACCEPTING),
        Ignored(advance("s2"), IgnoredBecause.NOT_ACCEPTING),
        Ignored(advance("s1"), IgnoredBecause.STREAM_CLOSED),
    ]
    cloud.receive(hold)
    assert cloud.streams_to_close == {"s1", "s2"} and not cloud.open_streams
    with pytest.raises(LocalMisuse, match="holding"):
        cloud.send(msgspec.structs.replace(samples["open"], stream="s3"))
    assert node.receive(cloud.send(CLOSE)) == CLOSE
    close2 = Close(stream="s2", reason="hold")
    assert node.receive(cloud.send(close2)) == Ignored(close2, IgnoredBecause.NOT_ACCEPTING)
    assert not cloud.streams_to_close
    cloud.receive(node.send(samples["resume"]))
    node.receive(cloud.send(msgspec.structs.replace(samples["open"], stream="s3")))
    assert node.open_streams == cloud.open_streams == {"s3"}


def test_an_open_that_arrives_after_hold_and_resume(sessions: Make, samples: Samples) -> None:
    """The node drafts for a stream that the hold ended at the cloud: ignored there until its Close arrives."""
    node, cloud = sessions(State.OPEN)
    on_the_way = cloud.send(msgspec.structs.replace(samples["open"], stream="s2"))
    frames = [node.send(samples["hold"]), node.send(samples["resume"])]
    node.receive(on_the_way)
    frames.append(node.send(draft("s2")))
    events = [cloud.receive(frame) for frame in frames]
    assert events[-1] == Ignored(draft("s2"), IgnoredBecause.STREAM_CLOSED)
    for stream in cloud.streams_to_close:
        node.receive(cloud.send(Close(stream=stream, reason="hold")))
    assert node.open_streams == cloud.open_streams == frozenset()


def test_an_open_that_crosses_a_drain_is_ignored(sessions: Make, samples: Samples) -> None:
    """Running streams go on, the crossing one does not begin."""
    node, cloud = sessions(State.OPEN)
    s2 = msgspec.structs.replace(samples["open"], stream="s2")
    on_the_way = cloud.send(s2)
    cloud.receive(node.send(samples["drain"]))
    assert node.receive(on_the_way) == Ignored(s2, IgnoredBecause.NOT_ACCEPTING)
    assert cloud.receive(node.send(draft())) == draft()
    assert node.open_streams == {"s1"}


# --- ends --------------------------------------------------------------------------------------


def test_nothing_passes_a_closed_session(sessions: Make, samples: Samples) -> None:
    """After close() both directions are a local mistake."""
    node, cloud = sessions(State.OPEN)
    node.close()
    cloud.close()
    with pytest.raises(LocalMisuse):
        node.send(samples["resume"])
    with pytest.raises(LocalMisuse):
        cloud.receive(codec.encode(samples["beat"]))


@pytest.mark.parametrize(
    ("error", "code", "close_code"),
    [
        (ProtocolError("x"), "protocol_error", 1002),
        (LimitExceeded("x"), "limit_exceeded", 1009),
        (VersionUnsupported("x"), "version_unsupported", 4001),
        (ProofFailed("x"), "proof_failed", 4003),
        (TokenizerMismatch("x"), "tokenizer_mismatch", 4004),
        (Unavailable("x"), "unavailable", 1013),
        (InvalidInput("x"), "invalid_request", 1008),
    ],
)
def test_refusals_have_a_code_and_a_close_code(error: Any, code: str, close_code: int, sessions: Make) -> None:
    """The node reads the reason in full, whatever the state."""
    node, cloud = sessions(State.PROVING)
    refusal = cloud.refusal(error)
    assert cloud.state is State.CLOSED
    assert refusal.close_code == close_code and refusal.reason == "x"
    assert node.receive(refusal.frame) == Refuse(code=code, message="x")


def test_internal_errors_are_not_told(sessions: Make) -> None:
    """A bug of ours stays ours."""
    _, cloud = sessions(State.OPEN)
    refusal = cloud.refusal(LocalMisuse("secret detail"))
    assert refusal.close_code == 1011
    assert b"secret" not in refusal.frame and "secret" not in refusal.reason


@pytest.mark.parametrize("text", ["é" * 100, "x" * 122 + "é", "🙂" * 200, "\ud800" * 200, "x" * 5000])
def test_reasons_fit_a_close_frame(text: str, sessions: Make) -> None:
    """At most 123 bytes of UTF-8, cut between characters; the full text is cut to its own limit."""
    node, cloud = sessions(State.OPEN)
    refusal = cloud.refusal(ProtocolError(text))
    assert 110 < len(refusal.reason.encode()) <= 123
    assert isinstance(node.receive(refusal.frame), Refuse)
    farewell = sessions(State.OPEN)[0].farewell(ProtocolError(text))
    assert farewell == (1002, refusal.reason)


def test_every_message_type_has_a_direction() -> None:
    """The table mentions no type that nobody sends, and every type is legal somewhere."""
    assert {kind for _, _, kind in TABLE} == SENDS[Role.NODE] | SENDS[Role.CLOUD]
    assert not SENDS[Role.NODE] & SENDS[Role.CLOUD]
