"""Many streams at once, read as cheaply as a process can: counts words by stream, without parsing what it need not.

    python -m bench.flood --url http://127.0.0.1:8080/v1 --key … --streams 200 --words 500

The result is one line of JSON on standard output.
"""

import argparse
import asyncio
import json
import socket
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from bench.fast_engine import MODEL, WORD

LINGER_S = 8.0
"""After the last stream has ended, before those that stall are closed: the gateway may cut them off until then."""
PAUSE_S = 0.02
"""Between requests that come one by one, so that what follows an answer is done."""
_WORD = WORD.strip().encode()


@dataclass
class Reading:
    """What one stream gave; times are seconds of one clock."""

    words: int = 0
    events: int = 0
    sent: float = 0.0
    first: float = 0.0
    last: float = 0.0
    ending: str = "open"
    """`done`, `error`, `lost`, or `open` while it runs."""
    tail: bytes = field(default=b"", repr=False)
    course: list[tuple[float, int]] = field(default_factory=list, repr=False)
    """When how many words had come."""

    def words_at(self, when: float) -> int:
        at = bisect_right(self.course, when, key=lambda each: each[0])
        return self.course[at - 1][1] if at else 0


class Stream(asyncio.Protocol):
    """One request over a connection of its own."""

    def __init__(self, request: bytes, reading: Reading, done: "asyncio.Future[None]") -> None:
        self._request, self._reading, self._done = request, reading, done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._reading.sent = time.perf_counter()
        self._transport.write(self._request)

    def pause(self) -> None:
        """Read nothing from now on. (uvloop begins to read after `connection_made`, whatever that says.)"""
        self._transport.pause_reading()

    def close(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        reading = self._reading
        now = time.perf_counter()
        words = data.count(_WORD)
        if words and not reading.first:
            reading.first = now
        reading.last = now
        reading.words += words
        reading.course.append((now, reading.words))
        reading.events += data.count(b"data: ")
        reading.tail = (reading.tail + data)[-400:]
        if b"[DONE]" in reading.tail or b'"error"' in reading.tail:
            reading.ending = "done" if b"[DONE]" in reading.tail else "error"
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reading.ending == "open":
            self._reading.ending = "lost"
        if not self._done.done():
            self._done.set_result(None)


def request_for(url: str, key: str, words: int, *, long: bool = False) -> bytes:
    """A stream of so many words, as bytes of HTTP/1.1; long ones come from the completions endpoint."""
    parts = urlsplit(url)
    prompt = "Describe what you see from the window of a train at dawn."
    asked = {"prompt": prompt} if long else {"messages": [{"role": "user", "content": prompt}]}
    common = {"model": MODEL, "max_tokens": words, "stream": True, "stream_options": {"include_usage": True}}
    body = msgspec.json.encode({**asked, **common})
    head = (
        f"POST {parts.path}/{'completions' if long else 'chat/completions'} HTTP/1.1\r\nhost: {parts.netloc}\r\n"
        f"authorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def open_stream(url: str, request: bytes, *, stalls: bool) -> tuple[Reading, "asyncio.Future[None]", Stream]:
    """Send a request over a connection of its own. One that stalls has little room and reads nothing."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    reading, done = Reading(), loop.create_future()
    link = socket.socket()
    if stalls:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.setblocking(False)
    await loop.sock_connect(link, (parts.hostname, parts.port))
    _, stream = await loop.create_connection(lambda: Stream(request, reading, done), sock=link)
    if stalls:
        stream.pause()
    return reading, done, stream


async def flood(
    url: str, key: str, streams: int, words: int, *, stalled: int = 0, one_by_one: bool = False
) -> dict[str, object]:
    """Read so many streams to their ends, all at once or one after the other.

    `stalled` more, of long words, are opened before and never read.
    """
    stuck = [await open_stream(url, request_for(url, key, 10 * words, long=True), stalls=True) for _ in range(stalled)]
    request = request_for(url, key, words)
    opened = []
    for _ in range(streams):
        opened.append(await open_stream(url, request, stalls=False))
        if one_by_one:
            await opened[-1][1]
            await asyncio.sleep(PAUSE_S)
    await asyncio.gather(*(done for _, done, _ in opened))
    await asyncio.sleep(LINGER_S if stuck else 0)
    for _, _, stream in stuck:
        stream.close()
    return summary([reading for reading, _, _ in opened])


def summary(readings: list[Reading]) -> dict[str, object]:
    """Words a second from the first to the last, and each stream's own rate in the time in which all were running."""
    began, ended = min(r.first for r in readings if r.first), max(r.last for r in readings)
    together = max(r.first for r in readings), min(r.last for r in readings)
    span = max(together[1] - together[0], 0.0)
    rates = sorted((r.words_at(together[1]) - r.words_at(together[0])) / span if span else 0.0 for r in readings)
    words = sum(r.words for r in readings)
    return {
        "streams": len(readings),
        "endings": {kind: sum(r.ending == kind for r in readings) for kind in {r.ending for r in readings}},
        "failure": next((r.tail.decode(errors="replace") for r in readings if r.ending != "done"), ""),
        "words": words,
        "events": sum(r.events for r in readings),
        "seconds": ended - began,
        "together_s": span,
        "words_per_s": words / (ended - began),
        "rates": [rates[0], rates[len(rates) // 2], rates[-1]],
        "longest_gap_s": max(b[0] - a[0] for r in readings for a, b in pairwise([(r.first, 0), *r.course])),
        "first_s": sorted(r.first - r.sent for r in readings)[len(readings) // 2],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--key", default="")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--words", type=int, default=500)
    parser.add_argument("--stalled", type=int, default=0)
    parser.add_argument("--one-by-one", action="store_true")
    options = parser.parse_args()
    told = uvloop.run(
        flood(
            options.url,
            options.key,
            options.streams,
            options.words,
            stalled=options.stalled,
            one_by_one=options.one_by_one,
        )
    )
    print(json.dumps(told))


if __name__ == "__main__":
    main()
