"""Messages to MessagePack and back, strictly: what cannot be read is a `ProtocolError` in words."""

from typing import Final, TypeVar

import msgspec

from shared.errors import LimitExceeded, ProtocolError
from shared.wire.messages import CloudMessage, NodeMessage

T = TypeVar("T")

_QUOTED: Final = 200
"""Characters of the decoder's own words that are passed on: they may quote what the peer sent."""

_encoder = msgspec.msgpack.Encoder()
_node_decoder: msgspec.msgpack.Decoder[NodeMessage] = msgspec.msgpack.Decoder(NodeMessage)
_cloud_decoder: msgspec.msgpack.Decoder[CloudMessage] = msgspec.msgpack.Decoder(CloudMessage)


def encode(message: NodeMessage | CloudMessage) -> bytes:
    """One frame. Raises TypeError, ValueError or OverflowError for what MessagePack has no form for."""
    return _encoder.encode(message)


def decode_node_message(frame: bytes, limit: int) -> NodeMessage:
    """Read a frame that a node sent, of at most `limit` bytes.

    Raises `LimitExceeded` for a longer frame and `ProtocolError` for anything that is no node message.
    """
    return _decode(_node_decoder, frame, limit)


def decode_cloud_message(frame: bytes, limit: int) -> CloudMessage:
    """Read a frame that the cloud sent; errors as in `decode_node_message`."""
    return _decode(_cloud_decoder, frame, limit)


def _decode(decoder: msgspec.msgpack.Decoder[T], frame: bytes, limit: int) -> T:
    if len(frame) > limit:
        raise LimitExceeded(f"The frame has {len(frame)} bytes; the limit is {limit}. Send smaller messages.")
    try:
        return decoder.decode(frame)
    except msgspec.ValidationError as exc:
        raise ProtocolError(f"The message does not fit the protocol: {_clip(exc)}.") from exc
    except RecursionError as exc:
        raise ProtocolError("The frame cannot be read: it is nested too deeply.") from exc
    except (msgspec.MsgspecError, ValueError) as exc:
        raise ProtocolError(f"The frame is not one whole MessagePack message: {_clip(exc)}.") from exc


def _clip(exc: Exception) -> str:
    text = str(exc)
    return text if len(text) <= _QUOTED else text[:_QUOTED] + "…"
