"""One generation request from its arrival to its end, while the caller may leave at any moment."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from cloud.api.accounts.charges import Used
from cloud.api.accounts.keys import ApiKey
from cloud.api.accounts.money import NOTHING
from cloud.api.admission.desk import Desk
from cloud.api.admission.ticket import Ask, Ticket
from cloud.api.answer import Backend, ClientStalled, GenerationResponse, disconnected, told
from cloud.api.idempotency.answers import Call, Kept
from cloud.api.idempotency.recording import Recording, bounded, replay
from cloud.api.idempotency.replays import Attempt, Replays
from cloud.api.openai.job import Job
from shared.errors import NexusError, Unavailable

CUT_OFF = "This answer was cut off with the request that it was made for. Try again."
"""For those who follow an answer whose own caller took nothing more, or whose gateway ends."""
PATIENCE = 0.25
"""Of `limits.stalled_client_s`: how long those who follow an answer wait for its own caller to take a part of it."""


@dataclass(frozen=True, slots=True)
class Order:
    """Who asks for what."""

    job: Job
    key: ApiKey
    ask: Ask
    call: Call


class Exchange(Response):
    """Gives an answer again, or waits for a place and makes it. Errors before the first byte are raised and get their
    own status.
    """

    def __init__(self, order: Order, backend: Backend, desk: Desk, replays: Replays) -> None:
        super().__init__()
        self._order = order
        self._backend = backend
        self._desk = desk
        self._replays = replays
        self._ticket: Ticket | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            begun = await self._replays.begin(self._order.call)
            match begun:
                case Attempt():
                    await self._attempt(begun, scope, gone, send)
                case Recording():
                    await self._follow(begun, scope, gone, send)
                case Kept(headers=headers, content=content):
                    self._backend.metrics.replayed.labels("stored").inc()
                    await _first(replay(headers, content or b"", self._bounded(send)), gone)
                case None:
                    await self._make(self._order, scope, lambda: asyncio.shield(gone), self._patient(send))
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _follow(self, recording: Recording, scope: Scope, gone: asyncio.Future[None], send: Send) -> None:
        self._backend.metrics.replayed.labels("followed").inc()
        keep_alive_s = self._backend.limits.keep_alive_s
        follow = recording.follow(self._bounded(send), lambda error: told(error, scope), keep_alive_s=keep_alive_s)
        try:
            await _first(follow, gone)
        finally:
            recording.leave()

    async def _attempt(self, attempt: Attempt, scope: Scope, gone: asyncio.Future[None], send: Send) -> None:
        """Make an answer that others may follow: it goes on until the last of them has left."""
        recording = attempt.recording
        patience_s = PATIENCE * self._backend.limits.stalled_client_s
        here, stalled = True, False

        def leave(_: object = None) -> None:
            nonlocal here
            if here:
                here = False
                recording.leave()

        async def send_recorded(message: Message) -> None:
            nonlocal stalled
            if recording.add(message):
                await self._replays.finish(attempt)
            recording.publish()
            if here and not await recording.deliver(message, send, patience_s):
                stalled = True
                leave()

        gone.add_done_callback(leave)
        job = replace(self._order.job, seed=attempt.seed)
        order = replace(self._order, job=job, ask=replace(self._order.ask, credit=attempt.credit))
        send = self._patient(send)
        try:
            await self._make(order, scope, recording.deserted.wait, send_recorded)
            if stalled:
                raise ClientStalled
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, ClientStalled):
                recording.fail(error)
            else:
                recording.fail(Unavailable(CUT_OFF))
            raise
        finally:
            leave()
            charge = self._ticket.charge if self._ticket is not None else None
            await self._replays.end(attempt, charge.cost if charge is not None else NOTHING)

    async def _make(self, order: Order, scope: Scope, left: Callable[[], Awaitable[Any]], send: Send) -> None:
        """Wait for a place and generate, until `left`."""
        leaving = asyncio.ensure_future(_wait(left))
        admitting = asyncio.ensure_future(self._admit(order))
        try:
            await asyncio.wait({leaving, admitting}, return_when=asyncio.FIRST_COMPLETED)
            if not admitting.done():
                self._backend.metrics.disconnects.inc()
                return
            self._ticket = admitting.result()

            async def receive_end() -> Message:
                await asyncio.shield(leaving)
                return {"type": "http.disconnect"}

            await GenerationResponse(order.job, self._backend, self._ticket)(scope, receive_end, send)
        finally:
            leaving.cancel()
            admitting.cancel()
            await asyncio.gather(leaving, admitting, return_exceptions=True)
            if not admitting.cancelled() and admitting.exception() is None:
                admitting.result().settle(Used(), "failed")  # changes nothing when the answer was settled

    async def _admit(self, order: Order) -> Ticket:
        metrics = self._backend.metrics
        began = time.monotonic()
        try:
            ticket = await self._desk.admit(order.key, order.ask)
        except NexusError as error:
            metrics.refused.labels(error.code).inc()
            raise
        metrics.admission_s.observe(time.monotonic() - began)
        return ticket

    def _patient(self, send: Send) -> Send:
        """Streams look after stalled callers themselves, with each chunk."""
        return send if self._order.job.stream else self._bounded(send)

    def _bounded(self, send: Send) -> Send:
        return bounded(send, self._backend.limits.stalled_client_s, ClientStalled)


def with_default_privacy(job: Job, key: ApiKey) -> Job:
    """The key's tier for a request that names none. No node counts as the caller's own or as trusted yet, so that these
    tiers let none see the prompt.
    """
    if key.terms.privacy is None or job.policy.allow_nodes is not None:
        return job
    return replace(job, policy=replace(job.policy, allow_nodes=key.terms.privacy == "any"))


async def _wait(left: Callable[[], Awaitable[Any]]) -> None:
    await left()


async def _first(work: Awaitable[None], gone: asyncio.Future[None]) -> None:
    """Do `work` unless the caller leaves first. Raises what it raises."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
