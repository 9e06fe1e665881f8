"""A caller who leaves stops the engine: client, gateway, vLLM's server and its scheduler, all of them real.

The gateway runs in this process, so that the test sees when the engine has committed a step, and closes the caller's
connection at once.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.gateway import API_KEY
from support.serving import serving
from support.verifier import Verifier

from cloud.api.app import create_app
from cloud.api.broker import events as ev
from cloud.api.coordinator import Coordinator
from cloud.api.server import uvicorn_config
from cloud.api.settings import GatewaySettings, VerifierSettings

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

TOKENS = 300
TRIALS = 3
ENDLESS: dict[str, Any] = {
    "model": "smollm2-135m",
    "max_tokens": TOKENS,
    "logit_bias": {"0": -100, "2": -100},
    "temperature": 0,
    "nexus": {"max_draft_tokens": 0},
}
"""The model cannot end it, and each step gives it one token."""


class Watched(Coordinator):
    """Tells of every step of every stream at the moment at which the verifier reports it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened = self.committed = 0
        self.closed: list[str] = []
        self._changed = asyncio.Event()

    def _feed(self, event: Any) -> None:
        match event:
            case ev.StreamOpened():
                self.opened += 1
            case ev.StreamVerified(tokens=tokens):
                self.committed += len(tokens)
            case ev.StreamClosed(reason=reason):
                self.closed.append(reason)
        super()._feed(event)
        self._changed.set()

    async def attached(self) -> None:
        await self._until(lambda: bool(self.models()))

    async def until(self, steps: int) -> None:
        """So many steps have been committed; with 0, the engine has taken the request on."""
        await self._until(lambda: bool(self.opened) and self.committed >= steps)

    async def end(self) -> str:
        await self._until(lambda: bool(self.closed))
        return self.closed[-1]

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()


@contextlib.asynccontextmanager
async def gateway(verifier: Verifier) -> AsyncIterator[tuple[str, int, Watched]]:
    """Host, port and what it sees of the engine."""
    settings = GatewaySettings(
        port=0,
        database=":memory:",
        api_keys=[API_KEY],  # type: ignore[list-item]
        verifiers=[VerifierSettings(url=verifier.url, draft_ports=[verifier.draft_port])],
    )
    watched = Watched(settings.to_draft_ports(), broker=settings.broker.to_broker(), nodes=settings.to_nodes())
    async with serving(uvicorn_config(create_app(settings, watched), settings)) as url:
        await watched.attached()
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port), watched


async def steps_after_leaving(verifier: Verifier, *, stream: bool, steps: int) -> int:
    """Steps that the engine commits for a caller after it has closed, at the end of the step of this number."""
    async with gateway(verifier) as (host, port, watched):
        words = "word " * (800 if steps == 0 else 10)
        body = json.dumps({**ENDLESS, "stream": stream, "messages": [{"role": "user", "content": words}]}).encode()
        reader, writer = await asyncio.open_connection(host, port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {API_KEY}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await watched.until(steps)
        committed = watched.committed
        writer.close()
        assert await watched.end() == "aborted"
        del reader
        return watched.committed - committed


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("steps", [0, 5], ids=["before the first token", "after it"])
async def test_the_engine_commits_at_most_one_more_step(verifier: Verifier, stream: bool, steps: int) -> None:
    """The step that is under way when the caller closes. On a machine that is busy with other things the word may take
    longer than a step, so the best of some trials counts; none goes on for long."""
    after = [await steps_after_leaving(verifier, stream=stream, steps=steps) for _ in range(TRIALS)]
    assert min(after) <= 1, after
    assert max(after) < TOKENS // 10, after
