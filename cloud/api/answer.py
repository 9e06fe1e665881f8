"""The response of a generation route: runs the generation while it watches for the caller to leave."""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Any

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cloud.api.accounts.charges import Outcome, Used
from cloud.api.accounts.money import dollars
from cloud.api.errors import error_object, internal_error
from cloud.api.generation import Generation
from cloud.api.inbox import Event
from cloud.api.metrics import Metrics
from cloud.api.openai import sse
from cloud.api.openai.choice import NOTHING, Choice, Part, Whole
from cloud.api.openai.job import Job
from cloud.api.openai.objects import Json, Totals, fingerprint, usage_object
from cloud.api.openai.shapes import shape_for
from cloud.api.ports import Coordinator, Ticket
from cloud.api.settings import Limits
from cloud.api.trace import TraceJoiner, trace_entries
from cloud.api.upstream.chunks import Delta, Usage
from cloud.api.upstream.pool import VerifierPool
from shared.errors import NexusError

SETTLE_S = 0.25
"""Longest wait for the final figures after the verifier's last chunk."""
ORIGIN_WAIT_S = 0.05
"""Longest wait for a token's origin, which normally comes before the token itself."""
ORIGIN_POLL_S = 0.002
BUILT_AT_ONCE = 2048
"""Most log probabilities, alternatives included, of a whole answer that is built on the event loop: about 10 ms."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Backend:
    """What a generation needs from its surroundings."""

    pool: VerifierPool
    coordinator: Coordinator
    metrics: Metrics
    limits: Limits


class _Traced:
    """The origins of one choice's tokens, for `nexus.trace`."""

    def __init__(self) -> None:
        self.joiner = TraceJoiner()
        self.late = False


class GenerationResponse(Response):
    """Streams or collects one job. An error before the first byte is raised and gets its own status."""

    def __init__(self, job: Job, backend: Backend, ticket: Ticket) -> None:
        super().__init__()
        self._job = job
        self._backend = backend
        self._ticket = ticket
        self._shape = shape_for(job, fingerprint(job.model, backend.coordinator.served(job.model)))
        self._choices = [Choice(i, job) for i in range(job.n)]
        self._opened: set[int] = set()
        self._traced = [_Traced() for _ in range(job.n)] if job.trace else []
        self._totals = Totals()
        self._began = time.monotonic()
        self._first_token_seen = False
        self._outcome: Outcome = "failed"
        """Until it is known to have ended well, or without the caller."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._run(scope, send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
            else:
                if self._outcome != "answered":
                    self._outcome = "left"
                self._backend.metrics.disconnects.inc()
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _run(self, scope: Scope, send: Send) -> None:
        async with Generation.running(self._job, self._backend.pool, self._backend.coordinator) as generation:
            try:
                if self._job.stream:
                    await self._stream(generation, _Sender(send, self._backend.limits.stalled_client_s), scope)
                else:
                    await self._collect(generation, send)
            except ClientStalled:
                self._outcome = "left"
                raise
            finally:
                self._settle(generation)

    # --- whole answers ---

    async def _collect(self, generation: Generation, send: Send) -> None:
        running = self._job.n
        while running:
            event = await generation.next()
            if event.error is not None:
                raise event.error
            self._apply(event)
            running -= event.piece is None
        await generation.settle(SETTLE_S)
        nexus = self._nexus(generation)
        wholes = [choice.whole() for choice in self._choices]
        large = self._job.logprobs and sum(1 + len(t.top) for w in wholes for t in w.tokens) > BUILT_AT_ONCE
        body = await asyncio.to_thread(self._body, wholes, nexus) if large else self._body(wholes, nexus)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"x-nexus-cost", nexus["cost"].encode()),
        ]
        self._outcome = "answered"
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _body(self, wholes: list[Whole], nexus: Json) -> bytes:
        """Eight choices with twenty alternatives for each token take seconds."""
        logprobs = self._job.logprobs
        choices = [self._shape.whole(index, whole, logprobs=logprobs) for index, whole in enumerate(wholes)]
        return sse.body({**self._shape.response(choices), "usage": usage_object(self._totals), "nexus": nexus})

    # --- streamed answers ---

    async def _stream(self, generation: Generation, sender: "_Sender", scope: Scope) -> None:
        running = self._job.n
        try:
            while running:
                event = await self._next_or_keep_alive(generation, sender)
                if event.error is not None:
                    raise event.error
                part = self._apply(event)
                running -= event.piece is None
                chunks = await self._chunks(generation, event, part, last=not running)
                if chunks:
                    await sender.send(b"".join(map(sse.event, chunks)))
            self._outcome = "answered"
            await sender.send(sse.DONE, more=False)
        except Exception as error:
            if not sender.started or isinstance(error, ClientStalled):
                raise
            await sender.send(sse.event(told(error, scope)), more=False)

    async def _next_or_keep_alive(self, generation: Generation, sender: "_Sender") -> Event:
        """Comments begin only when the verifier has accepted the request: until then a real status may come."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backend.limits.keep_alive_s):
                    return await generation.next()
            if generation.accepted.is_set():
                await sender.send(sse.KEEP_ALIVE)

    async def _chunks(self, generation: Generation, event: Event, part: Part, *, last: bool) -> list[Json]:
        chunks: list[Json] = []
        index, ended = event.index, event.piece is None
        if index not in self._opened and (ended or part != NOTHING):
            self._opened.add(index)
            if (opening := self._shape.opening(index, part)) is not None:
                chunks.append(self._chunk([opening]))
        if ended and last:
            await generation.settle(SETTLE_S)
        traced = await self._newly_traced(generation, index, ended=ended)
        if traced or part.text or part.reasoning or part.calls or (self._job.logprobs and part.tokens):
            chunk = self._chunk([self._shape.delta(index, part, logprobs=self._job.logprobs)])
            if traced:
                chunk["nexus"] = {"trace": traced}
            chunks.append(chunk)
        if ended:
            chunks.append(self._chunk([self._shape.finish(index, self._choices[index].reason or "stop")]))
            if last and self._job.include_usage:
                chunks.append({**self._shape.chunk([]), "usage": usage_object(self._totals)})
            if last:
                chunks[-1]["nexus"] = self._nexus(generation)
        return chunks

    def _chunk(self, choices: list[Json]) -> Json:
        chunk = self._shape.chunk(choices)
        if self._job.include_usage:
            told = self._job.continuous_usage and self._totals.counted
            chunk["usage"] = usage_object(self._totals) if told else None
        return chunk

    # --- both ---

    def _apply(self, event: Event) -> Part:
        """Takes a piece in; what it means for the caller."""
        match event.piece:
            case Delta() as delta:
                if not self._first_token_seen:
                    self._first_token_seen = True
                    self._backend.metrics.first_token_s.observe(time.monotonic() - self._began)
                part = self._choices[event.index].feed(delta)
                if self._traced:
                    self._traced[event.index].joiner.feed(part.text, delta.tokens)
                return part
            case Usage() as usage:
                self._totals.add(event.index, usage)
        return NOTHING

    async def _newly_traced(self, generation: Generation, index: int, *, ended: bool) -> list[Json]:
        """Gives up after one miss until the origins have caught up, so that a dead draft port costs little."""
        if not self._traced:
            return []
        traced, figures = self._traced[index], generation.handles[index].figures
        polls = 0 if traced.late or ended else round(ORIGIN_WAIT_S / ORIGIN_POLL_S)
        for _ in range(polls):
            if len(figures().origins) >= traced.joiner.seen:
                break
            await asyncio.sleep(ORIGIN_POLL_S)
        traced.late = len(figures().origins) < traced.joiner.seen
        return self._take_trace(generation, index, final=ended)

    def _take_trace(self, generation: Generation, index: int, *, final: bool) -> list[Json]:
        taken = self._traced[index].joiner.take(generation.handles[index].figures().origins, final=final)
        return trace_entries(taken, index if self._job.n > 1 else None)

    def _nexus(self, generation: Generation) -> Json:
        figures = [handle.figures() for handle in generation.handles]
        steps = sum(f.verify_steps for f in figures)
        nexus: dict[str, Any] = {
            "drafted": sum(f.drafted for f in figures),
            "accepted": sum(f.accepted for f in figures),
            "verify_steps": steps,
            "tokens_per_step": round(sum(f.output_tokens for f in figures) / steps, 3) if steps else None,
            "seed": generation.seed,
            "nodes": "any" if any(f.node_class != "none" for f in figures) else "none",
            "cost": dollars(self._ticket.cost(self._used(generation))),
        }
        if self._job.trace:
            nexus["trace"] = []
            for index, traced in enumerate(self._traced):
                self._take_trace(generation, index, final=True)
                nexus["trace"] += trace_entries(traced.joiner.tokens, index if self._job.n > 1 else None)
        return nexus

    def _used(self, generation: Generation) -> Used:
        """By the engine's usage where it has come, else by what the verifier has reported as committed."""
        figures = [handle.figures() for handle in generation.handles]
        counted = self._totals.counted
        completion = sum(
            counted[i].completion_tokens if i in counted else f.output_tokens for i, f in enumerate(figures)
        )
        prompt = self._totals.prompt_tokens if counted else max(f.prompt_tokens for f in figures)
        return Used(prompt, self._totals.cached_tokens, completion)

    def _settle(self, generation: Generation) -> None:
        """Also for a caller who left: what the verifier had committed by then."""
        used = self._used(generation)
        self._backend.metrics.prompt_tokens.inc(used.prompt)
        self._backend.metrics.completion_tokens.inc(used.completion)
        claims = [claim for handle in generation.handles for claim in handle.figures().claims]
        self._ticket.settle(used, self._outcome, claims)


class ClientStalled(Exception):
    """The caller took nothing for too long; its stream is cut off."""


class _Sender:
    """Starts the response with its first bytes."""

    def __init__(self, send: Send, timeout_s: float) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self.started = False

    async def send(self, data: bytes, *, more: bool = True) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                if not self.started:
                    self.started = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": list(sse.HEADERS)})
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            raise ClientStalled from None


def told(error: Exception, scope: Scope) -> Json:
    """What a caller hears of `error` when the answer has begun."""
    if isinstance(error, NexusError) and error.http_status != 500:
        return error_object(error)
    request_id: str = scope.get("state", {}).get("request_id", "unknown")
    log.error("generation failed", request_id=request_id, exc_info=error)
    return internal_error(request_id)


async def disconnected(receive: Receive) -> None:
    """Ends when the caller has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
