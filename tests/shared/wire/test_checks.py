"""Ranges and lengths of single messages."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from shared.errors import LimitExceeded, ProtocolError
from shared.sampling import Sampling
from shared.wire.checks import check
from shared.wire.limits import Limits
from shared.wire.messages import Message, ModelOffer, NodeStats, Receipt

OFFER = ModelOffer(name="m", fingerprint="f", vocabulary=10)


@pytest.mark.parametrize("tag", ["hello", "open", "draft", "advance", "close", "beat", "refuse"])
def test_samples_pass(tag: str, samples: Mapping[str, Any]) -> None:
    """The check lets legal messages through."""
    check(samples[tag], Limits())


@pytest.mark.parametrize(
    ("tag", "field", "value"),
    [
        ("hello", "key", b"short"),
        ("hello", "versions", ()),
        ("hello", "models", ()),
        ("hello", "streams", 0),
        ("hello", "ask", -1),
        ("hello", "engine", ""),
        ("hello", "models", (ModelOffer(name="m", fingerprint="f", vocabulary=0),)),
        ("proof", "signature", bytes(63)),
        ("draft", "stream", ""),
        ("draft", "epoch", -1),
        ("draft", "pos", -1),
        ("draft", "pos", 2**31 - 1),
        ("draft", "candidate", -1),
        ("draft", "candidate", 4),
        ("draft", "tokens", ()),
        ("draft", "tokens", (-1,)),
        ("draft", "tokens", (2**31,)),
        ("beat", "seq", -1),
        ("beat", "energy", float("nan")),
        ("beat", "energy", -0.5),
        ("beat", "stats", NodeStats(tokens_per_s=float("inf"))),
        ("challenge", "nonce", bytes(31)),
        ("challenge", "cloud", ""),
        ("welcome", "beat_s", 0.0),
        ("welcome", "frame_limit", 0),
        ("open", "tokens", ()),
        ("open", "tokens", (1, 2**31)),
        ("open", "k", 0),
        ("open", "ahead", 0),
        ("open", "candidates", 0),
        ("open", "seed", 2**64),
        ("open", "sampling", Sampling(temperature=-1.0)),
        ("open", "sampling", Sampling(temperature=float("nan"))),
        ("open", "sampling", Sampling(top_p=0.0)),
        ("open", "sampling", Sampling(top_p=float("nan"))),
        ("open", "sampling", Sampling(min_p=1.5)),
        ("open", "sampling", Sampling(top_k=-1)),
        ("advance", "epoch", -2),
        ("advance", "pos", -1),
        ("advance", "tokens", ()),
        ("close", "receipt", Receipt(drafted=1, accepted=2)),
        ("close", "receipt", Receipt(drafted=2, accepted=1, marginal=2)),
        ("close", "receipt", Receipt(drafted=2, accepted=1, amount=-1)),
        ("refuse", "code", ""),
    ],
)
def test_values_out_of_range_are_named(tag: str, field: str, value: object, samples: Mapping[str, Message]) -> None:
    """The error names the message and the field."""
    message: Any = msgspec.structs.replace(samples[tag], **{field: value})
    with pytest.raises(ProtocolError, match=f"{type(message).__name__}.{field}") as caught:
        check(message, Limits())
    assert type(caught.value) is ProtocolError


@pytest.mark.parametrize(
    ("tag", "field", "value", "limit"),
    [
        ("hello", "versions", tuple(range(17)), "16"),
        ("hello", "models", (OFFER,) * 17, "16"),
        ("hello", "streams", 257, "256"),
        ("hello", "engine", "e" * 257, "256"),
        ("draft", "stream", "s" * 129, "128"),
        ("draft", "tokens", (1,) * 257, "256"),
        ("open", "k", 257, "256"),
        ("open", "ahead", 4097, "4096"),
        ("open", "candidates", 5, "4"),
        ("advance", "tokens", (1,) * ((1 << 20) + 1), "1048576"),
        ("close", "reason", "r" * 257, "256"),
        ("demand", "message", "m" * 2049, "2048"),
        ("refuse", "message", "m" * 2049, "2048"),
    ],
)
def test_sizes_over_a_limit_name_it(
    tag: str, field: str, value: object, limit: str, samples: Mapping[str, Message]
) -> None:
    """Every list and text has a finite bound, told in the error."""
    message: Any = msgspec.structs.replace(samples[tag], **{field: value})
    with pytest.raises(LimitExceeded, match=f"{type(message).__name__}.{field}.* the limit is {limit}"):
        check(message, Limits())


def test_limits_are_arguments(samples: Mapping[str, Any]) -> None:
    """Another bound than the default is honoured."""
    with pytest.raises(LimitExceeded, match="the limit is 2"):
        check(samples["draft"], Limits(draft_tokens=2))
