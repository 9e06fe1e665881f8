"""Bytes of the node protocol: fixed for ever, read strictly, refused in words."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import LimitExceeded, ProtocolError
from shared.wire import codec
from shared.wire.checks import check
from shared.wire.limits import Limits
from shared.wire.messages import CloudMessage, Message, NodeMessage

FIXTURES = {
    tag: bytes.fromhex(text) for tag, text in json.loads(Path(__file__).with_name("fixtures.json").read_text()).items()
}
LIMITS = Limits()
NODE_TAGS = {kind.__struct_config__.tag for kind in get_args(NodeMessage)}


def decode(tag: str, frame: bytes) -> NodeMessage | CloudMessage:
    """Read a frame as the end that may get `tag`."""
    if tag in NODE_TAGS:
        return codec.decode_node_message(frame, LIMITS.node_frame)
    return codec.decode_cloud_message(frame, LIMITS.cloud_frame)


def test_every_message_has_golden_bytes(samples: Mapping[str, Message]) -> None:
    """A new message cannot be added without fixing its bytes."""
    tags = {kind.__struct_config__.tag for kind in (*get_args(NodeMessage), *get_args(CloudMessage))}
    assert set(FIXTURES) == set(samples) == tags


@pytest.mark.parametrize("tag", FIXTURES)
def test_golden_bytes_encode_and_decode_exactly(tag: str, samples: Mapping[str, Message]) -> None:
    """The committed bytes are what this build writes and reads."""
    assert codec.encode(samples[tag]).hex() == FIXTURES[tag].hex()
    assert decode(tag, FIXTURES[tag]) == samples[tag]


@pytest.mark.parametrize(
    ("tag", "field", "value", "tail"),
    [("draft", "candidate", 2, "a963616e64696461746502"), ("open", "candidates", 2, "aa63616e6469646174657302")],
)
def test_fields_of_candidates_come_last_and_only_when_used(
    tag: str, field: str, value: int, tail: str, samples: Mapping[str, Message]
) -> None:
    """A peer that knows nothing of candidates reads and writes the bytes it always did."""
    message: Any = msgspec.structs.replace(samples[tag], **{field: value})
    old = FIXTURES[tag]
    frame = bytes([old[0] + 1]) + old[1:] + bytes.fromhex(tail)
    assert codec.encode(message) == frame
    assert decode(tag, frame) == message


def test_unknown_fields_are_skipped(samples: Mapping[str, Message]) -> None:
    """A newer peer may add fields."""
    frame = msgspec.msgpack.encode({"t": "resume", "later": {"a": [1, 2]}})
    assert codec.decode_node_message(frame, LIMITS.node_frame) == samples["resume"]


def test_fields_with_a_default_may_be_missing() -> None:
    """An older peer does not send them."""
    message = codec.decode_node_message(msgspec.msgpack.encode({"t": "beat", "seq": 1}), 100)
    assert message.energy is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"t": "resumee"}, r"resumee.*\$\.t"),
        ({"t": "open"}, "Invalid value 'open'"),
        ({"reason": "battery"}, "missing required field `t`"),
        ({"t": "hold", "reason": "tired"}, r"\$\.reason"),
        ({"t": "hold"}, "missing required field `reason`"),
        ({"t": "draft", "stream": "s", "epoch": "0", "pos": 0, "tokens": [1]}, r"Expected `int`, got `str`"),
        ({"t": "draft", "stream": "s", "epoch": 0, "pos": 0, "tokens": [True]}, r"got `bool`"),
        ({"t": "draft", "stream": "s", "epoch": 0, "pos": 0, "tokens": [1.5]}, r"\$\.tokens\[0\]"),
        ({"t": "proof", "signature": "abc"}, r"Expected `bytes`, got `str`"),
        ([1, 2], "Expected `object`"),
        (None, "Expected `object`"),
    ],
)
def test_wrong_tags_and_types_are_named(value: object, words: str) -> None:
    """The error says which field is wrong and how."""
    with pytest.raises(ProtocolError, match=words):
        codec.decode_node_message(msgspec.msgpack.encode(value), LIMITS.node_frame)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        b"\x82\xa1t\xa6resume\xa1x" + b"\x91" * 60_000,
        b"\x81\xa1t\xa6resume\x00",
        b"\x83\xa1t\xa5draft\xa6stream\xa1s\xa6tokens\xdd\xff\xff\xff\xff",
        b"\x82\xa1t\xa5proof\xa9signature\xc6\xff\xff\xff\xff",
        b"\x81\xa1t\xa2\xff\xfe",
        b"{}",
    ],
    ids=["empty", "reserved", "nested", "trailing", "huge-array", "huge-bytes", "utf-8", "json"],
)
def test_malformed_frames_are_protocol_errors(frame: bytes) -> None:
    """No crash and no allocation by a claimed length."""
    with pytest.raises(ProtocolError):
        codec.decode_node_message(frame, LIMITS.node_frame)


def test_a_frame_over_the_limit_is_not_parsed() -> None:
    """The length decides before anything is read."""
    with pytest.raises(LimitExceeded, match="101 bytes; the limit is 100"):
        codec.decode_node_message(b"\xc1" * 101, 100)


def test_quoted_remote_text_is_cut() -> None:
    """A peer cannot put a whole frame into our error message."""
    frame = msgspec.msgpack.encode({"t": "x" * 5000})
    with pytest.raises(ProtocolError) as caught:
        codec.decode_node_message(frame, LIMITS.node_frame)
    assert len(caught.value.message) < 300


def survives(frame: bytes) -> None:
    """Reading `frame` as either end gives a message or a protocol error; anything else is raised."""
    for read, limit in (
        (codec.decode_node_message, LIMITS.node_frame),
        (codec.decode_cloud_message, LIMITS.cloud_frame),
    ):
        with contextlib.suppress(ProtocolError):
            check(read(frame, limit), LIMITS)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_fuzz_random_bytes(frame: bytes) -> None:
    """Random bytes raise nothing but protocol errors."""
    survives(frame)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(FIXTURES)),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 400),
)
def test_fuzz_mutated_and_truncated_fixtures(tag: str, edits: list[tuple[int, int]], cut: int) -> None:
    """Nearly right bytes raise nothing but protocol errors."""
    frame = bytearray(FIXTURES[tag])
    for index, byte in edits:
        frame[index % len(frame)] = byte
    survives(bytes(frame))
    survives(FIXTURES[tag][: cut % len(FIXTURES[tag])])


@settings(deadline=None)
@given(
    st.sampled_from(sorted(FIXTURES)),
    st.data(),
)
def test_fuzz_fields_of_any_value(tag: str, data: st.DataObject) -> None:
    """Well-formed maps with a field of any type or size raise nothing but protocol errors."""
    fields = msgspec.msgpack.decode(FIXTURES[tag])
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(
        st.one_of(
            st.none(),
            st.integers(-(2**63), 2**64 - 1),
            st.floats(),
            st.text(max_size=300),
            st.binary(max_size=70),
            st.lists(st.integers(-(2**33), 2**33), max_size=300),
        )
    )
    survives(msgspec.msgpack.encode(fields))
