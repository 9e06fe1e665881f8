"""All verifiers: what each serves, which one takes the next request, and which are reachable."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from cloud.api.upstream.chunks import Piece
from cloud.api.upstream.client import ServedModel, VerifierClient, VerifierSilent, VerifierUnreachable
from shared.errors import ModelNotFound, NexusError, Unavailable

FRESH_S = 5.0
"""How long a list of models is believed."""
RETRY_S = 0.5
"""Shortest time between two looks when something is missing."""
HUNG_S = 120.0
"""A verifier that takes connections but has sent nothing for so long is given up: it is not busy, it hangs."""


class VerifierPool:
    """Routes by model name to the verifier with the fewest open streams.

    The lists are fetched when they are asked for. A list that is merely old is used while a new one is fetched, so that
    a busy verifier, which answers late, delays nobody; a request finds out by itself when a verifier is gone.
    """

    def __init__(
        self,
        clients: Sequence[VerifierClient],
        *,
        probe_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients = tuple(clients)
        self._served: dict[VerifierClient, list[ServedModel]] = {}
        self._probe_timeout_s = probe_timeout_s
        self._clock = clock
        self._looked = float("-inf")
        self._lock = asyncio.Lock()
        self._alive: dict[VerifierClient, tuple[int, float]] = {}
        """What a verifier had sent when it was last found to have sent something, and when that was."""
        self._background: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        return len(self._clients)

    async def reachable(self) -> int:
        """How many verifiers answer."""
        await self._look(RETRY_S if len(self._served) < self.size else FRESH_S)
        return len(self._served)

    async def models(self) -> list[ServedModel]:
        """Every served model once, in the order of the verifiers; `Unavailable` when none can be reached."""
        if not self._served:
            await self._look(RETRY_S)
        elif self._clock() - self._looked >= FRESH_S and not self._lock.locked():
            self._background = asyncio.create_task(self._look(FRESH_S))
        if not self._served:
            raise Unavailable("No verifier can be reached at the moment. Try again shortly.")
        unique: dict[str, ServedModel] = {}
        for client in self._clients:
            for model in self._served.get(client, ()):
                unique.setdefault(model.name, model)
        return list(unique.values())

    async def find(self, name: str) -> ServedModel:
        """Raises `ModelNotFound` that lists what is served."""
        models = await self.models()
        if name not in {m.name for m in models}:
            await self._look(RETRY_S)
            models = await self.models()
        for model in models:
            if model.name == name:
                return model
        served = ", ".join(f"`{m.name}`" for m in models) or "none at the moment"
        raise ModelNotFound(f"The model `{name[:100]}` is not served here. Served: {served}.", param="model")

    @asynccontextmanager
    async def stream(self, path: str, payload: dict[str, Any]) -> AsyncIterator[AsyncIterator[list[Piece]]]:
        """Open a generation at the best verifier; a verifier that cannot be reached is passed over."""
        name = payload["model"]
        await self.find(name)
        candidates = [c for c, ms in self._served.items() if any(m.name == name for m in ms)]
        async with AsyncExitStack() as stack:
            for client in sorted(candidates, key=lambda c: c.open_streams):
                try:
                    pieces = await stack.enter_async_context(client.stream(path, payload))
                except VerifierUnreachable:
                    self._served.pop(client, None)
                    continue
                yield pieces
                return
            raise Unavailable("The verifier cannot be reached at the moment. Try again shortly.")

    async def close(self) -> None:
        """Ends the look that may be going on."""
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)

    async def _look(self, max_age_s: float) -> None:
        async with self._lock:
            if self._clock() - self._looked < max_age_s:
                return
            results = await asyncio.gather(
                *(client.models(self._probe_timeout_s) for client in self._clients), return_exceptions=True
            )
            self._looked = self._clock()
            served: dict[VerifierClient, list[ServedModel]] = {}
            for client, result in zip(self._clients, results, strict=True):
                if isinstance(result, list):
                    served[client] = result
                elif not isinstance(result, NexusError):
                    raise result
                elif isinstance(result, VerifierSilent) and client in self._served and not self._hangs(client):
                    served[client] = self._served[client]
            self._served = served

    def _hangs(self, client: VerifierClient) -> bool:
        """Whether it has sent nothing for `HUNG_S`, over all looks and streams."""
        now = self._clock()
        heard, since = self._alive.get(client, (-1, now))
        if heard != client.heard:
            self._alive[client] = client.heard, now
            return False
        return now - since >= HUNG_S
