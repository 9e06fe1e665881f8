"""Settlements on their way to the books: an append-only file that survives the process, and the machine.

A record is the length and CRC-32 of its content (4 bytes each, big-endian), then a settlement in MessagePack. `append`
hands it to the operating system at once, so that a killed process loses nothing; `sync` puts it on the disk. Each
process has files of its own, which it keeps locked; what a dead one has left is taken over by the next that looks. A
record may be read again after it was posted: the books take it once.
"""

import contextlib
import fcntl
import os
import secrets
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import structlog

from cloud.api.ledger.settlement import Settlement
from shared.errors import ConfigError

SEGMENT_BYTES: Final = 1 << 18
"""A file that has become so long is followed by a new one, and goes when all of it is posted. So much, about, is read
again after a kill.
"""
SUFFIX: Final = ".spool"
_HEAD: Final = struct.Struct(">II")
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Settlement)

log = structlog.get_logger(__name__)


class _Segment:
    """One file, open and locked; `waiting` records of it are not posted."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{secrets.token_hex(8)}{SUFFIX}"
        new = self.path.with_suffix(".new")  # under this name nobody takes it over before it is locked
        self.fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(self.path)
        self.size = 0
        self.waiting = 0

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self.fd)


class Spool:
    """First in, first out. `append` and `posted` belong to one thread; `sync` may run in another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: deque[_Segment] = deque()
        self._named = False
        """Whether a file has come whose name may not be on the disk yet."""

    def open(self) -> None:
        """Begin a file, so that others see that this process lives. Raises `ConfigError`."""
        try:
            self._current()
        except OSError as error:
            text = (
                f"Settlements cannot be kept in {self._folder}: {error.strerror}. Set `ledger.spool` to another folder."
            )
            raise ConfigError(text) from None

    def append(self, settlement: Settlement) -> None:
        """Raises `OSError` when it cannot be written; nothing is left of it then."""
        content = _encoder.encode(settlement)
        record = _HEAD.pack(len(content), zlib.crc32(content)) + content
        segment = self._current()
        written = 0
        try:
            while written < len(record):
                written += os.write(segment.fd, record[written:])
        except OSError:
            os.ftruncate(segment.fd, segment.size)
            raise
        segment.size += len(record)
        segment.waiting += 1

    def posted(self, count: int) -> None:
        """The books have the `count` oldest records."""
        while count:
            first = self._segments[0]
            done = min(count, first.waiting)
            first.waiting -= done
            count -= done
            if not first.waiting and len(self._segments) > 1:
                self._segments.popleft().remove()
            elif count:
                raise ValueError("more was posted than was written")

    def sync(self) -> None:
        """Returns when everything appended so far is on the disk."""
        for segment in list(self._segments):
            with contextlib.suppress(OSError):  # removed meanwhile: it is posted
                os.fsync(segment.fd)
        if self._named:
            self._named = False
            _sync_folder(self._folder)

    def take_over(self) -> Iterator[Settlement]:
        """What dead processes have left. A file of theirs goes when the next one is asked for: append what came, and
        `sync`, before that.
        """
        if not self._folder.is_dir():
            return
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(path, os.O_RDWR)
                try:
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        yield from self._rest(path)
                finally:
                    os.close(fd)

    def _rest(self, path: Path) -> Iterator[Settlement]:
        data = path.read_bytes()
        read = 0
        for end, settlement in records(data):
            yield settlement
            read = end
        self.sync()
        if read < len(data):
            kept = path.with_suffix(".unread")
            log.warning("the end of a spool is torn or damaged, and kept aside", file=str(kept), bytes=len(data) - read)
            path.rename(kept)
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Files with nothing waiting go; the others are there for the next process."""
        while self._segments:
            segment = self._segments.popleft()
            if segment.waiting:
                os.close(segment.fd)
            else:
                segment.remove()

    def _current(self) -> _Segment:
        if not self._segments or self._segments[-1].size >= SEGMENT_BYTES:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._segments.append(_Segment(self._folder))
            self._named = True
            if len(self._segments) > 1 and not self._segments[0].waiting:
                self._segments.popleft().remove()
        return self._segments[-1]


def records(data: bytes) -> Iterator[tuple[int, Settlement]]:
    """Each whole record with the place behind it; ends before the first that cannot be read."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, at)
        content = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(content) < length or zlib.crc32(content) != crc:
            return
        try:
            settlement = _decoder.decode(content)
        except msgspec.DecodeError:
            return
        at += _HEAD.size + length
        yield at, settlement


def in_use(folder: Path) -> bool:
    """Whether a living process keeps a file there."""
    for path in folder.glob(f"*{SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(fd)
    return False


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
