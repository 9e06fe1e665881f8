"""One generation request from its admission to its end, while the caller may leave at any moment."""

import asyncio
import time
from dataclasses import dataclass, replace

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from cloud.api.accounts.charges import Used
from cloud.api.accounts.keys import ApiKey
from cloud.api.admission.desk import Desk
from cloud.api.admission.ticket import Ask, Ticket
from cloud.api.answer import Backend, GenerationResponse
from cloud.api.openai.job import Job
from shared.errors import NexusError


@dataclass(frozen=True, slots=True)
class Order:
    """Who asks for what."""

    job: Job
    key: ApiKey
    ask: Ask


class Exchange(Response):
    """Waits for a place, then generates. Errors before the first byte are raised and get their own status."""

    def __init__(self, order: Order, backend: Backend, desk: Desk) -> None:
        super().__init__()
        self._order = order
        self._backend = backend
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnected(receive))
        admitting = asyncio.ensure_future(self._admit())
        try:
            await asyncio.wait({gone, admitting}, return_when=asyncio.FIRST_COMPLETED)
            if not admitting.done():
                self._backend.metrics.disconnects.inc()
                return

            async def receive_end() -> Message:
                await asyncio.shield(gone)
                return {"type": "http.disconnect"}

            response = GenerationResponse(self._order.job, self._backend, admitting.result())
            await response(scope, receive_end, send)
        finally:
            gone.cancel()
            admitting.cancel()
            await asyncio.gather(gone, admitting, return_exceptions=True)
            if not admitting.cancelled() and admitting.exception() is None:
                admitting.result().settle(Used(), "failed")  # changes nothing when the answer was settled

    async def _admit(self) -> Ticket:
        metrics = self._backend.metrics
        began = time.monotonic()
        try:
            ticket = await self._desk.admit(self._order.key, self._order.ask)
        except NexusError as error:
            metrics.refused.labels(error.code).inc()
            raise
        metrics.admission_s.observe(time.monotonic() - began)
        return ticket


def with_default_privacy(job: Job, key: ApiKey) -> Job:
    """The key's tier for a request that names none. No node counts as the caller's own or as trusted yet, so that these
    tiers let none see the prompt.
    """
    if key.terms.privacy is None or job.policy.allow_nodes is not None:
        return job
    return replace(job, policy=replace(job.policy, allow_nodes=key.terms.privacy == "any"))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
