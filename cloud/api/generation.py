"""One request at work: a stream for each choice, known to the broker, read from the verifier into one inbox."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cloud.api.inbox import Event, Inbox
from cloud.api.openai.job import Job
from cloud.api.ports import Coordinator, StreamHandle
from cloud.api.upstream.pool import VerifierPool
from shared.draftport.messages import GATEWAY_ARG, STREAM_ARG
from shared.ids import StreamId

_COUNT_ONCE = {"include_usage": True}
_COUNT_ALWAYS = {"include_usage": True, "continuous_usage_stats": True}
SEED_BITS = 53
"""Fresh seeds fit into a JavaScript number, so that any caller can send them back."""


class Generation:
    """Use `running`. `next` gives events in order of arrival; each choice ends with one end or failure."""

    def __init__(self, job: Job, pool: VerifierPool, coordinator: Coordinator) -> None:
        self.job = job
        self.seed = job.seed if job.seed is not None else secrets.randbits(SEED_BITS)
        self.accepted = asyncio.Event()
        """Set when the verifier has accepted every choice: from now on an answer may be begun."""
        self._pool = pool
        self._coordinator = coordinator
        self._streams = [StreamId(secrets.token_hex(12)) for _ in range(job.n)]
        self.handles: list[StreamHandle] = [
            coordinator.register(stream, policy=job.policy, trace=job.trace, shaped=job.shaped)
            for stream in self._streams
        ]
        self._counted = coordinator.served(job.model) is not None
        """A draft port tells what the engine commits; without one every chunk has to."""
        self._inbox = Inbox()
        self._waiting = job.n

    async def next(self) -> Event:
        """The next event. Safe to cancel: nothing is lost."""
        return await self._inbox.get()

    async def settle(self, timeout_s: float) -> None:
        """Wait for the broker's final figures of every choice, no longer than `timeout_s` in all; not at all when
        no draft port is attached, as nothing would come.
        """
        if self._coordinator.models():
            await asyncio.gather(*(handle.closed(timeout_s) for handle in self.handles))

    async def _pump(self, index: int) -> None:
        beside = self.job.for_plugin(known=self._counted)
        payload = {
            **self.job.payload,
            **beside,
            "model": self.job.model,
            "n": 1,
            "seed": self.seed + index,
            "stream": True,
            "stream_options": _COUNT_ALWAYS if self.job.continuous_usage or not self._counted else _COUNT_ONCE,
            "vllm_xargs": {
                **beside["vllm_xargs"],
                STREAM_ARG: self._streams[index],
                GATEWAY_ARG: self._coordinator.gateway_id,
            },
        }
        if self.job.trace:
            payload["return_token_ids"] = True
        try:
            async with self._pool.stream(self.job.path, payload) as pieces:
                self._waiting -= 1
                if not self._waiting:
                    self.accepted.set()
                async for batch in pieces:
                    await self._inbox.put_all(index, batch)
            await self._inbox.put(Event(index, None))
        except Exception as error:  # handed to the reader, which raises it
            await self._inbox.put(Event(index, None, error))

    @classmethod
    @asynccontextmanager
    async def running(cls, job: Job, pool: VerifierPool, coordinator: Coordinator) -> AsyncIterator["Generation"]:
        """Start it; on leaving, requests to the verifier are closed at once and the streams released."""
        generation = cls(job, pool, coordinator)
        tasks = [asyncio.create_task(generation._pump(index)) for index in range(job.n)]
        try:
            yield generation
        finally:
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                for handle in generation.handles:
                    handle.release()
