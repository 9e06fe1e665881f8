"""An engine of byte tokens that answers as vLLM 0.32's server does, several tokens to a step when it speculates.

`Steps` is what vLLM makes of a step's tokens: its scheduler cuts at the end of text and at the length, its detokenizer
holds bytes of an unfinished character and the possible beginning of a stop string back and cuts at the first match, its
collector merges what a slow server has not sent. `tests/cloud/verifier/test_token_engine.py` compares it with the real
one. `TokenEngine` serves it over HTTP.
"""

import asyncio
import contextlib
import random
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

MODEL = "tiny"
EOS = b""
"""The token that ends a text; it has no bytes of its own."""
EOS_SPELLING = "<|end|>"
PROMPT_TOKENS = 5

Groups = Callable[[int], Iterator[int]]
"""Seed of a choice -> how many tokens each of its steps commits."""


@dataclass(frozen=True)
class Output:
    """What the server is told after a step: one chunk, if it is not merged with others."""

    text: str
    ids: tuple[int, ...]
    spellings: tuple[str, ...]
    finish: str | None = None
    stop_reason: str | None = None

    def __add__(self, other: "Output") -> "Output":
        return Output(
            self.text + other.text,
            self.ids + other.ids,
            self.spellings + other.spellings,
            other.finish,
            other.stop_reason,
        )


@dataclass
class Steps:
    """One choice at work."""

    tokens: Sequence[bytes]
    stops: Sequence[str]
    limit: int
    text: str = ""
    count: int = 0
    finish: str | None = None
    _sent: int = 0
    _bytes: bytes = b""

    def step(self, size: int) -> Output:
        """Commit the next `size` tokens, or as many as there are until the choice ends."""
        new = []
        for token in self.tokens[self.count : self.count + size]:
            new.append(token)
            if token == EOS:
                self.finish = "stop"
            elif self.count + len(new) >= self.limit:
                self.finish = "length"
            if self.finish:
                break
        offsets, spellings = [len(self.text)], []
        for token in new:
            spelling = self._decode(token)
            spellings.append(spelling)
            self.text += "" if token == EOS else spelling
            offsets.append(len(self.text))
        stopped = self._cut(offsets)
        if stopped is not None:
            self.finish, (_, at, kept) = "stop", stopped
            self.text, new, spellings = self.text[:at], new[:kept], spellings[:kept]
        held = 0 if self.finish or not self.stops else max(map(len, self.stops)) - 1
        text, self._sent = (
            self.text[self._sent : max(self._sent, len(self.text) - held)],
            max(self._sent, len(self.text) - held),
        )
        ids = tuple(range(self.count, self.count + len(new)))
        self.count += len(new)
        return Output(text, ids, tuple(spellings), self.finish, stopped[0] if stopped else None)

    def _decode(self, token: bytes) -> str:
        """Nothing while a character is unfinished, then all of it."""
        if token == EOS:
            return EOS_SPELLING
        self._bytes += token
        try:
            text = self._bytes.decode()
        except UnicodeDecodeError:
            return ""
        self._bytes = b""
        return text

    def _cut(self, offsets: list[int]) -> tuple[str, int, int] | None:
        """The stop string that is complete first among the new text, where it begins, and how many new tokens stay."""
        found = []
        for place, stop in enumerate(self.stops):
            at = self.text.find(stop, max(0, offsets[0] - len(stop) + 1))
            if at >= 0:
                found.append((at + len(stop), place, stop, at))
        if not found or len(self.text) == offsets[0]:
            return None
        end, _, stop, at = min(found)
        return stop, at, bisect_left(offsets, end, lo=1)


def logprob(token: int) -> float:
    """Of the token at this place of an answer."""
    return -(token + 1) / 128


@dataclass
class TokenEngine:
    """Serves one script for each seed; everything that a test wants to be otherwise is a field."""

    script: Callable[[int], Sequence[bytes]] = lambda seed: [b"Hel", b"lo", EOS]
    """Seed of a choice -> all its tokens; without an `EOS` it goes on until the limit, so give enough."""
    groups: Groups = lambda seed: iter(lambda: 1, 0)
    merge: random.Random | None = None
    """When given, steps are merged at random, as when the server is slower than the engine."""
    error_at: int | None = None
    """After so many steps the engine fails."""
    cut_at: int | None = None
    """After so many steps the connection breaks."""
    pause_at: int | None = None
    """After so many steps it waits until the client is gone."""
    steps: int = 0
    paused: int = 0
    gone: int = 0
    ended: int = 0
    """Choices that came to their end."""
    late_s: float = 0.0
    """How long it thinks before it begins with a choice whose seed is odd."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `paused`, `gone` or `ended` has grown."""
    url: str = ""

    def reset(self) -> None:
        self.steps = self.paused = self.gone = self.ended = 0
        self.merge = self.error_at = self.cut_at = self.pause_at = None

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._list),
                Route("/v1/chat/completions", self._generate, methods=["POST"]),
                Route("/v1/completions", self._generate, methods=["POST"]),
            ]
        )

    async def _list(self, _: Request) -> Response:
        card = {"id": MODEL, "object": "model", "created": 7, "max_model_len": 2048}
        return JSONResponse({"object": "list", "data": [card]})

    async def _generate(self, request: Request) -> Response:
        return _Stream(self, await request.json())

    def outputs(self, payload: dict[str, Any]) -> Iterator[Output]:
        """Step by step, not merged."""
        seed = payload["seed"]
        work = Steps(self.script(seed), payload.get("stop") or [], payload.get("max_tokens") or 10_000)
        for size in self.groups(seed):
            yield work.step(size)
            if work.finish:
                return

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a state of the engine or of the caller, for half a minute at most."""
        async with asyncio.timeout(30):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


class _Stream(Response):
    def __init__(self, engine: TokenEngine, payload: dict[str, Any]) -> None:
        super().__init__()
        self._engine = engine
        self._payload = payload
        self._chat = "messages" in payload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._work(send))
        gone = asyncio.ensure_future(receive())
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            self._engine.gone += 1
            self._engine.changed.set()
            work.cancel()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        with contextlib.suppress(asyncio.CancelledError, ConnectionAbortedError):
            await work

    async def _work(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        async for data in self._events():
            body = b"data: " + (data if isinstance(data, bytes) else msgspec.json.encode(data)) + b"\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _events(self) -> AsyncIterator[dict[str, Any] | bytes]:
        engine, count, waiting = self._engine, 0, None
        if self._chat:
            yield self._chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}])
        if engine.late_s and self._payload["seed"] % 2:
            await asyncio.sleep(engine.late_s)
        for step, output in enumerate(engine.outputs(self._payload)):
            if engine.cut_at == step:
                raise ConnectionAbortedError
            if engine.error_at == step:
                yield {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}}
                yield b"[DONE]"
                return
            if engine.pause_at == step:
                engine.paused += 1
                engine.changed.set()
                await asyncio.Event().wait()
            engine.steps += 1
            waiting = output if waiting is None else waiting + output
            if engine.merge is not None and not output.finish and engine.merge.random() < 0.4:
                continue
            count += len(waiting.ids)
            yield self._chunk([self._choice(waiting)])
            waiting = None
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": count, "total_tokens": PROMPT_TOKENS + count}
        engine.ended += 1
        engine.changed.set()
        yield {**self._chunk([]), "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 3}}}
        yield b"[DONE]"

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return {"id": "upstream", "object": kind, "created": 1, "model": MODEL, "choices": choices}

    def _choice(self, output: Output) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": output.finish, "logprobs": self._logprobs(output)}
        choice |= {"delta": {"content": output.text}} if self._chat else {"text": output.text}
        if output.finish:
            choice["stop_reason"] = output.stop_reason
        if self._payload.get("return_token_ids"):
            choice["token_ids"] = list(output.ids)
        return choice

    def _logprobs(self, output: Output) -> dict[str, Any] | None:
        if not (self._payload.get("logprobs") if self._chat else "logprobs" in self._payload):
            return None
        told = [(spelling, logprob(id_)) for id_, spelling in zip(output.ids, output.spellings, strict=True)]
        if self._chat:
            top = [("other", -0.001)] if self._payload.get("top_logprobs") else []
            return {
                "content": [
                    {
                        "token": text,
                        "logprob": value,
                        "bytes": list(text.encode()),
                        "top_logprobs": _top(text, value, top),
                    }
                    for text, value in told
                ]
            }
        return {
            "tokens": [text for text, _ in told],
            "token_logprobs": [value for _, value in told],
            "top_logprobs": [{text: value} for text, value in told],
            "text_offset": [0 for _ in told],
        }


def _top(text: str, value: float, more: list[tuple[str, float]]) -> list[dict[str, Any]]:
    """As vLLM: the token itself comes first, likely or not."""
    return [{"token": name, "logprob": each, "bytes": None} for name, each in ([(text, value), *more] if more else [])]
