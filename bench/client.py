"""Streaming requests, timed where a developer would time them: at the client."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx2

from bench.traces import TARGET, Trace


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server."""

    url: str
    """Ends with /v1."""
    key: str = ""
    extra: dict[str, object] = field(default_factory=dict)
    """Fields of every request that only this server knows."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One answer; times are seconds of the same clock."""

    id: str
    tokens: int
    sent: float
    first: float
    """First text."""
    last: float
    """Last text."""

    @property
    def latency(self) -> float:
        return self.last - self.sent

    @property
    def first_token(self) -> float:
        return self.first - self.sent

    @property
    def speed(self) -> float:
        """Tokens per second after the first token."""
        return (self.tokens - 1) / (self.last - self.first) if self.last > self.first else 0.0


def decode_seconds(wave: Sequence[Timing]) -> tuple[float, float]:
    """Wall time in which all requests of a wave had their first token, and the tokens that came in it.

    Tokens of a request are taken as evenly spread over its time.
    """
    begin, end = max(each.first for each in wave), max(each.last for each in wave)
    tokens = sum(each.speed * max(0.0, each.last - begin) for each in wave)
    return max(0.0, end - begin), tokens


async def ask(client: httpx2.AsyncClient, endpoint: Endpoint, trace: Trace, tokens: int) -> Timing:
    """One request for `tokens` tokens of a trace's answer. Raises `RuntimeError` for any other status than 200."""
    body = {
        "model": TARGET,
        "messages": [{"role": "user", "content": trace.prompt}],
        "max_tokens": tokens,
        "temperature": trace.temperature,
        "top_p": trace.top_p,
        "seed": trace.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        **endpoint.extra,
    }
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    sent = time.perf_counter()
    first = last = 0.0
    count = 0
    async with client.stream("POST", f"{endpoint.url}/chat/completions", json=body, headers=headers) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"{endpoint.url}: {answer.status_code} {(await answer.aread()).decode()[:500]}")
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise RuntimeError(f"{endpoint.url}: {chunk['error']}")
            if chunk.get("usage"):
                count = chunk["usage"]["completion_tokens"]
            if any(choice["delta"].get("content") or choice.get("finish_reason") for choice in chunk["choices"]):
                last = time.perf_counter()
                first = first or last
    return Timing(trace.id, count, sent, first, last)


async def waves(
    client: httpx2.AsyncClient, endpoint: Endpoint, traces: Sequence[Trace], tokens: int, concurrency: int
) -> list[list[Timing]]:
    """All traces, `concurrency` at once; the next wave begins when the last one has ended."""
    return [
        list(
            await asyncio.gather(
                *(ask(client, endpoint, trace, tokens) for trace in traces[start : start + concurrency])
            )
        )
        for start in range(0, len(traces), concurrency)
    ]
