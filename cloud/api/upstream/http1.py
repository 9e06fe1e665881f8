"""Reads one HTTP/1.1 response (RFC 9112) from bytes as they come: no socket, no clock, and little work for a chunk."""

import re
from dataclasses import dataclass

HEAD_LIMIT = 64 << 10
LINE_LIMIT = 1024
"""Longest line with a chunk's size; longest head of an answer. Bytes."""
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n]*)?")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Malformed(Exception):
    """The other side does not speak HTTP/1.1 as it should, or stopped in the middle."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers, names in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]

    def values(self, name: bytes) -> list[bytes]:
        """What a header lists, all its lines together, in lower case."""
        lines = [value for key, value in self.headers if key == name]
        return [part.strip().lower() for line in lines for part in line.split(b",")]


class ResponseReader:
    """Feed it what comes. `head` is none until it is whole; `done` when the body is."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.done = False
        self.reusable = False
        """Whether the connection may carry another request once this response is done."""
        self._buffer = b""
        self._left: int | None = 0
        """Bytes of the body, or of its present chunk, that are still to come; none: until the end of the connection."""
        self._chunked = False
        self._between = False
        """A chunk's data are complete, its line's end is not read yet."""
        self._trailers = False

    def feed(self, data: bytes) -> bytes:
        """The part of the body that came with `data`. Raises `Malformed`."""
        if self.head is None:
            data = self._read_head(data)
            if self.head is None:
                return b""
        if self.done:
            if data:
                raise Malformed("more than the answer was sent")
            return b""
        if self._chunked:
            return self._read_chunks(data)
        if self._left is None:
            return data
        if len(data) > self._left:
            raise Malformed("more than the declared length was sent")
        self._left -= len(data)
        self.done = not self._left
        return data

    def eof(self) -> None:
        """The connection has ended. Raises `Malformed` when the response has not."""
        if self.head is not None and self._left is None and not self._chunked:
            self.done = True
        if not self.done:
            raise Malformed("the connection ended before the answer did")

    def _read_head(self, data: bytes) -> bytes:
        """What follows the head; an interim response (1xx) is skipped."""
        self._buffer += data
        while True:
            text, found, rest = self._buffer.partition(b"\r\n\r\n")
            if len(text) > HEAD_LIMIT:
                raise Malformed("the head of the answer is too long")
            if not found:
                return b""
            self._buffer = rest
            head, minor = _parse_head(text)
            if head.status >= 200:
                break
        self._buffer = b""
        self._frame(head, minor)
        self.head = head
        return rest

    def _frame(self, head: Head, minor: int) -> None:
        """How the end of the body is told (RFC 9112, 6.3)."""
        self.reusable = minor == 1 and b"close" not in head.values(b"connection")
        codings, lengths = head.values(b"transfer-encoding"), set(head.values(b"content-length"))
        if head.status in (204, 304):
            self.done = True
        elif codings:
            if codings != [b"chunked"] or lengths:
                raise Malformed("the answer's framing is not understood")
            self._chunked = True
        elif lengths:
            if len(lengths) > 1 or not (length := lengths.pop()).isdigit() or len(length) > 15:
                raise Malformed("the answer's length is not understood")
            self._left = int(length)
            self.done = not self._left
        else:
            self._left, self.reusable = None, False

    def _read_chunks(self, data: bytes) -> bytes:
        buffer = self._buffer + data if self._buffer else data
        at, end, body = 0, len(buffer), []
        while at < end and not self.done:
            if self._left:
                piece = buffer[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                body.append(piece)
                continue
            if self._between:
                if end - at < 2:
                    break
                if buffer[at : at + 2] != b"\r\n":
                    raise Malformed("a chunk is longer than it says")
                at += 2
                self._between = False
                continue
            stop = buffer.find(b"\r\n", at, at + LINE_LIMIT)
            if stop < 0:
                if end - at >= LINE_LIMIT:
                    raise Malformed("a line between chunks is too long")
                break
            self._line(buffer[at:stop])
            at = stop + 2
        self._buffer = buffer[at:]
        if self.done and self._buffer:
            raise Malformed("more than the answer was sent")
        return b"".join(body)

    def _line(self, line: bytes) -> None:
        """A chunk's size, or a line behind the last chunk."""
        if self._trailers:
            self.done = not line
            return
        if not (size := _SIZE.fullmatch(line)):
            raise Malformed("a chunk's size is not understood")
        self._left = int(size[1], 16)
        self._trailers = not self._left
        self._between = bool(self._left)


def _parse_head(text: bytes) -> tuple[Head, int]:
    first, *lines = text.split(b"\r\n")
    if not (status := _STATUS.fullmatch(first)):
        raise Malformed("the answer is not HTTP/1.1")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name) or b"\r" in value or b"\n" in value or b"\0" in value:
            raise Malformed("a header of the answer is not understood")
        headers.append((name.lower(), value.strip(b" \t")))
    return Head(int(status[2]), headers), int(status[1])
