"""Server-sent events as bytes."""

from typing import Any

import msgspec

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_encoder = msgspec.json.Encoder()


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + _encoder.encode(data) + b"\n\n"


def body(data: dict[str, Any]) -> bytes:
    return _encoder.encode(data)
