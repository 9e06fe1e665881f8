"""Server-sent events, decoded from bytes as they arrive (WHATWG HTML, section 9.2); no I/O."""

from dataclasses import dataclass, field

EVENT_LIMIT = 16 << 20
"""Most bytes of one event; a server that sends more without an end is broken."""


class StreamBroken(ValueError):
    """What arrives is not an event stream that can be read on."""


@dataclass(slots=True)
class SseParser:
    """Feed it chunks of any size; it gives the data of each complete event. Comments and other fields are skipped."""

    limit: int = EVENT_LIMIT
    _buffer: bytearray = field(default_factory=bytearray, repr=False)
    _data: list[bytes] = field(default_factory=list, repr=False)
    _size: int = 0
    _after_cr: bool = False
    _began: bool = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that `chunk` completes; raises `StreamBroken` over the limit or on bytes that are
        no UTF-8."""
        events: list[str] = []
        for line in self._lines(chunk):
            if not line:
                if self._data:
                    events.append(_text(b"\n".join(self._data)))
                self._data, self._size = [], 0
            elif line == b"data" or line.startswith(b"data:"):
                self._size += len(line)
                self._data.append(line[5:].removeprefix(b" "))
            if self._size > self.limit:
                raise StreamBroken(f"One event is larger than {self.limit} bytes.")
        return events

    def _lines(self, chunk: bytes) -> list[bytes]:
        """Complete lines; each of LF, CR and CR LF ends one, also when CR and LF come in two chunks."""
        if self._after_cr and chunk:
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        self._buffer += chunk
        if len(self._buffer) > self.limit:
            raise StreamBroken(f"One line is larger than {self.limit} bytes.")
        self._after_cr = self._buffer.endswith(b"\r")
        parts = bytes(self._buffer).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._buffer = bytearray(parts.pop())
        if parts and not self._began:
            self._began = True
            parts[0] = parts[0].removeprefix(b"\xef\xbb\xbf")
        return parts


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise StreamBroken("An event holds bytes that are not UTF-8.") from None
