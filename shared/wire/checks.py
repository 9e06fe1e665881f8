"""What a message must satisfy by itself, whoever sends it and in whatever state: lengths and ranges."""

import math
from typing import Final, assert_never

from shared.errors import LimitExceeded, ProtocolError
from shared.sampling import Sampling
from shared.wire.limits import TOKEN_ID_END, Limits
from shared.wire.messages import (
    Advance,
    Beat,
    Challenge,
    Close,
    CloudMessage,
    Demand,
    Draft,
    Drain,
    Earnings,
    Hello,
    Hold,
    NodeMessage,
    Open,
    Proof,
    Refuse,
    Resume,
    Welcome,
)

_SEED_MIN = -(1 << 63)
_SEED_END = 1 << 64


SHORTEST_BEAT_S: Final = 0.01
"""A cloud that asks for more would keep the node busy with nothing else."""


def check(message: NodeMessage | CloudMessage, limits: Limits) -> None:
    """Raise `LimitExceeded` or `ProtocolError` naming the field when `message` is out of bounds."""
    match message:
        case Hello():
            _check_hello(message, limits)
        case Proof():
            _size("Proof.signature", message.signature, 64)
        case Draft():
            _text("Draft.stream", message.stream, limits.id_length)
            _range("Draft.epoch", message.epoch, 0, TOKEN_ID_END)
            _tokens("Draft", message.tokens, limits.draft_tokens)
            _range("Draft.pos", message.pos, 0, TOKEN_ID_END - len(message.tokens))
            _range("Draft.candidate", message.candidate, 0, limits.candidates)
        case Beat():
            stats = message.stats
            _range("Beat.seq", message.seq, 0, _SEED_END)
            _range("Beat.stats.streams", stats.streams, 0, TOKEN_ID_END)
            _range("Beat.stats.drafted_tokens", stats.drafted_tokens, 0, _SEED_END)
            _measure("Beat.stats.tokens_per_s", stats.tokens_per_s)
            if message.energy is not None:
                _measure("Beat.energy", message.energy)
        case Challenge():
            _size("Challenge.nonce", message.nonce, 32)
            _text("Challenge.cloud", message.cloud, limits.id_length)
        case Welcome():
            _text("Welcome.node", message.node, limits.id_length)
            _measure("Welcome.beat_s", message.beat_s)
            if message.beat_s < SHORTEST_BEAT_S:
                raise ProtocolError(f"Welcome.beat_s must be at least {SHORTEST_BEAT_S} s.")
            _range("Welcome.frame_limit", message.frame_limit, 1, TOKEN_ID_END)
        case Open():
            _check_open(message, limits)
        case Advance():
            _text("Advance.stream", message.stream, limits.id_length)
            _range("Advance.epoch", message.epoch, -1, TOKEN_ID_END)
            _tokens("Advance", message.tokens, limits.context_tokens)
            _range("Advance.pos", message.pos, 0, TOKEN_ID_END - len(message.tokens))
        case Close():
            _text("Close.stream", message.stream, limits.id_length)
            _text("Close.reason", message.reason, limits.name_length, least=0)
            if message.receipt is not None:
                _range("Close.receipt.drafted", message.receipt.drafted, 0, _SEED_END)
                _range("Close.receipt.accepted", message.receipt.accepted, 0, message.receipt.drafted + 1)
                _range("Close.receipt.marginal", message.receipt.marginal, 0, message.receipt.accepted + 1)
                _range("Close.receipt.price", message.receipt.price, 0, _SEED_END)
                _range("Close.receipt.amount", message.receipt.amount, 0, _SEED_END)
        case Demand():
            _text("Demand.message", message.message, limits.text_length, least=0)
        case Refuse():
            _text("Refuse.code", message.code, limits.name_length)
            _text("Refuse.message", message.message, limits.text_length, least=0)
        case Hold() | Resume() | Drain() | Earnings():
            pass
        case _:
            assert_never(message)


def _check_hello(hello: Hello, limits: Limits) -> None:
    _count("Hello.versions", len(hello.versions), limits.versions)
    _size("Hello.key", hello.key, 32)
    _text("Hello.engine", hello.engine, limits.name_length)
    _text("Hello.agent", hello.agent, limits.name_length, least=0)
    _count("Hello.models", len(hello.models), limits.models)
    for offer in hello.models:
        _text("Hello.models.name", offer.name, limits.name_length)
        _text("Hello.models.fingerprint", offer.fingerprint, limits.id_length)
        _range("Hello.models.vocabulary", offer.vocabulary, 1, TOKEN_ID_END)
    _count("Hello.streams", hello.streams, limits.streams)
    if hello.ask is not None:
        _range("Hello.ask", hello.ask, 0, 1 << 63)


def _check_open(message: Open, limits: Limits) -> None:
    _text("Open.stream", message.stream, limits.id_length)
    _text("Open.model", message.model, limits.name_length)
    _text("Open.fingerprint", message.fingerprint, limits.id_length)
    _tokens("Open", message.tokens, limits.context_tokens)
    _check_sampling(message.sampling)
    if message.seed is not None:
        _range("Open.seed", message.seed, _SEED_MIN, _SEED_END)
    _count("Open.k", message.k, limits.draft_tokens)
    _count("Open.ahead", message.ahead, limits.ahead_tokens)
    _count("Open.candidates", message.candidates, limits.candidates)


def _check_sampling(sampling: Sampling) -> None:
    _measure("Open.sampling.temperature", sampling.temperature)
    _range("Open.sampling.top_k", sampling.top_k, 0, TOKEN_ID_END)
    if not 0 < sampling.top_p <= 1:
        raise ProtocolError("Open.sampling.top_p must be above 0 and at most 1.")
    if not 0 <= sampling.min_p <= 1:
        raise ProtocolError("Open.sampling.min_p must be from 0 to 1.")


def _tokens(kind: str, tokens: tuple[int, ...], limit: int) -> None:
    _count(f"{kind}.tokens", len(tokens), limit)
    if min(tokens) < 0 or max(tokens) >= TOKEN_ID_END:
        raise ProtocolError(f"{kind}.tokens holds an id outside 0 to {TOKEN_ID_END - 1}.")


def _count(field: str, count: int, limit: int) -> None:
    """At least one (an empty list says nothing), at most `limit`."""
    if count > limit:
        raise LimitExceeded(f"{field} is {count} long or large; the limit is {limit}.")
    if count < 1:
        raise ProtocolError(f"{field} must be at least 1 long or large.")


def _text(field: str, text: str, limit: int, least: int = 1) -> None:
    if len(text) > limit:
        raise LimitExceeded(f"{field} has {len(text)} characters; the limit is {limit}.")
    if len(text) < least:
        raise ProtocolError(f"{field} is empty.")


def _size(field: str, data: bytes, size: int) -> None:
    if len(data) != size:
        raise ProtocolError(f"{field} has {len(data)} bytes; it must have {size}.")


def _range(field: str, value: int, low: int, end: int) -> None:
    if not low <= value < end:
        raise ProtocolError(f"{field} is {value}; it must be from {low} to {end - 1}.")


def _measure(field: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ProtocolError(f"{field} is {value}; it must be a finite number, 0 or more.")
