"""What a session returns beside messages: a message that came too late, and how to end a connection."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from shared.errors import LocalMisuse, NexusError
from shared.wire.messages import CloudMessage, NodeMessage

M = TypeVar("M", bound=NodeMessage | CloudMessage)

REASON_BYTES = 123
"""Most bytes of UTF-8 that a WebSocket close frame has for its reason (RFC 6455, 5.5)."""


class IgnoredBecause(StrEnum):
    """Why a message that is legal has no effect: it crossed another on the way."""

    STREAM_CLOSED = "stream_closed"
    """The stream was closed, or ended by a hold, before this arrived."""
    NOT_ACCEPTING = "not_accepting"
    """An `Open` that was sent before the cloud had read this node's `Hold` or `Drain`, or its sequel."""


@dataclass(frozen=True)
class Ignored(Generic[M]):
    """An event: `message` arrived too late to matter. To be counted, not acted upon."""

    message: M
    because: IgnoredBecause


class Refusal(NamedTuple):
    """How the cloud turns a node away: send `frame`, then close the socket with `close_code` and `reason`."""

    frame: bytes
    close_code: int
    reason: str


class Farewell(NamedTuple):
    """How a node leaves after the cloud's mistake: close the socket with these."""

    close_code: int
    reason: str


def close_reason(text: str) -> str:
    """`text` cut to what a close frame holds, never inside a character."""
    return text.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore")


def public_message(error: NexusError) -> str:
    """What the other side may read: internal errors are not told, and the text is valid UTF-8."""
    text = "Internal error." if isinstance(error, LocalMisuse) or error.code == "internal_error" else error.message
    return text.encode("utf-8", "replace").decode("utf-8")
