"""Frames on the pipe between agent and worker: four bytes of length, big-endian, then MessagePack."""

import struct
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec

from desktop.agent.worker.messages import FromWorker, ToWorker, WorkerMessage
from shared.errors import LimitExceeded, ProtocolError

FRAME_LIMIT: Final = 64 << 20
"""Largest frame in bytes; a stream opened with a very long prompt is the biggest message."""

_LENGTH: Final = struct.Struct(">I")
_encoder: Final = msgspec.msgpack.Encoder()

M = TypeVar("M", bound=WorkerMessage)


def encode(message: WorkerMessage) -> bytes:
    body = _encoder.encode(message)
    if len(body) > FRAME_LIMIT:
        raise LimitExceeded(f"A message of {len(body)} bytes is over the pipe's limit of {FRAME_LIMIT}.")
    return _LENGTH.pack(len(body)) + body


class FrameReader(Generic[M]):
    """Bytes in, messages out; keeps what is incomplete."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        """The messages that `data` completes. Raises `ProtocolError` when it is no valid frame."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > FRAME_LIMIT:
                raise LimitExceeded(f"A frame of {length} bytes is over the pipe's limit of {FRAME_LIMIT}.")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            try:
                yield self._decoder.decode(body)
            except msgspec.MsgspecError as exc:
                raise ProtocolError(f"The draft worker's pipe carried a malformed message: {exc}") from exc


def worker_side() -> FrameReader[ToWorker]:
    return FrameReader(msgspec.msgpack.Decoder(ToWorker))


def agent_side() -> FrameReader[FromWorker]:
    return FrameReader(msgspec.msgpack.Decoder(FromWorker))
