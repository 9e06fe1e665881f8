"""A vLLM server played as fast as a process can: every event is bytes made beforehand, written to all streams in turn.

    python -m bench.fast_engine --port 8001 --gather 200

Each step writes one event to every open stream whose connection takes more; `--step-ms` paces the steps, 0 does not.
A stream has as many events with one word each as its request's `max_tokens` says; the words of completions are long.
With `--gather` the first step waits until so many chats of at least 200 words are open, so that all run together.
"""

import argparse
import asyncio
from collections.abc import Iterator
from typing import cast

import msgspec
import uvloop

MODEL = "smollm2-135m"
WORD = " sea"
LONG_WORD = " sea" + "r" * 20_000
GATHERED_WORDS = 200
GATHER_S = 5.0
"""Longest wait for streams that are gathered, after the last one came."""
_HEAD = '"created":1764531234,"model":"smollm2-135m","choices":['
_CHAT = '{"id":"chatcmpl-9c8f1e0b7d6a4f3e9c8f1e0b7d6a4f3e","object":"chat.completion.chunk",' + _HEAD
_PLAIN = '{"id":"cmpl-9c8f1e0b7d6a4f3e9c8f1e0b7d6a4f3e","object":"text_completion",' + _HEAD
_USAGE = '],"usage":{"prompt_tokens":20,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":null}}'
_CARD = {"id": MODEL, "object": "model", "created": 7, "max_model_len": 1 << 20}


def _frame(data: str) -> bytes:
    """One event as a chunk of HTTP/1.1's chunked coding."""
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def _choice(body: str, reason: str = "null") -> str:
    return f'{{"index":0,{body},"logprobs":null,"finish_reason":{reason},"token_ids":null}}]}}'


class _Kind:
    """The frames of one endpoint."""

    def __init__(self, head: str, word: str, last: str, first: str | None) -> None:
        self.head = head
        self.first = _frame(head + _choice(first)) if first else b""
        self.word = _frame(head + _choice(word))
        self.last = _frame(head + _choice(last, '"length"'))

    def end(self, words: int) -> bytes:
        return self.last + _frame(self.head + _USAGE % (20 + words, words)) + _frame("[DONE]") + b"0\r\n\r\n"


_ROLE = '"delta":{"role":"assistant","content":""}'
CHAT = _Kind(_CHAT, f'"delta":{{"content":"{WORD}"}}', '"delta":{"content":""}', _ROLE)
PLAIN = _Kind(_PLAIN, f'"text":"{LONG_WORD}"', '"text":""', None)


class _Asked(msgspec.Struct):
    max_tokens: int = 16


_START = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_decoder = msgspec.json.Decoder(_Asked)


class Connection(asyncio.Protocol):
    """One connection; it has one stream at a time."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._buffer = b""
        self.transport: asyncio.Transport
        self.paused = False
        self.left = 0
        self.words = 0
        self.kind = CHAT

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.discard(self)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        size = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0)
        if len(body) < size:
            return
        self._buffer = body[size:]
        if head.startswith(b"GET"):
            answer = msgspec.json.encode({"object": "list", "data": [_CARD]})
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(answer), answer)
            )
            return
        self.kind = CHAT if b"/chat/" in head[:40] else PLAIN
        self.left = self.words = _decoder.decode(body[:size]).max_tokens
        self.transport.write(_START + self.kind.first)
        self._engine.add(self)


class Engine:
    """Steps all open streams."""

    def __init__(self, step_s: float, gather: int) -> None:
        self._step_s = step_s
        self._gather = gather
        self._gathering: set[Connection] = set()
        self.streams: set[Connection] = set()
        self._some = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: Connection) -> None:
        if self._gather and stream.kind is CHAT and stream.words >= GATHERED_WORDS:
            self._gathering.add(stream)
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._begin)
            if len(self._gathering) >= self._gather:
                self._begin()
            return
        self.streams.add(stream)
        self._some.set()

    def discard(self, stream: Connection) -> None:
        self.streams.discard(stream)
        self._gathering.discard(stream)

    def _begin(self) -> None:
        self.streams |= self._gathering
        self._gathering.clear()
        self._some.set()

    def _ready(self) -> Iterator[Connection]:
        return (stream for stream in tuple(self.streams) if not stream.paused)

    async def run(self) -> None:
        """Until it is cancelled."""
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            if not self.streams:
                self._some.clear()
                await self._some.wait()
                due = clock()
            for stream in self._ready():
                stream.left -= 1
                if stream.left >= 0:
                    stream.transport.write(stream.kind.word)
                else:
                    stream.transport.write(stream.kind.end(stream.words))
                    self.streams.discard(stream)
            due = max(due + self._step_s, clock() - self._step_s)
            await asyncio.sleep(max(0.0, due - clock()))


async def serve(port: int, step_s: float, gather: int) -> None:
    """Until it is cancelled."""
    engine = Engine(step_s, gather)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=1024)
    async with server:
        await engine.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-ms", type=float, default=0.0)
    parser.add_argument("--gather", type=int, default=0)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.step_ms / 1000, options.gather))


if __name__ == "__main__":
    main()
