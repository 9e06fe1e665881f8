"""A switch on the line between gateway and verifier: counts requests, and breaks the line when it is told to.

`GET /switch` gives the counts; `POST /switch` with `{"fail": …, "times": n}` spoils the next n generations:
`503` and `500` are answered in the verifier's place, `cut` breaks the connection after the second event.
Everything else goes through unchanged.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

FAILURES = ("503", "500", "cut")
_NOT_FORWARDED = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}


class Switch:
    """Forwards to `target` (a URL without a path)."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._http = httpx2.AsyncClient(timeout=600, trust_env=False)
        self._fail, self._times = "", 0
        self.counts = {"generations": 0, "finished": 0, "gone": 0}
        """Generations asked for, sent to their end, and left by the gateway before their end."""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/switch", self._tell),
                Route("/switch", self._set, methods=["POST"]),
                Route("/{path:path}", self._forward, methods=["GET", "POST"]),
            ],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        await self._http.aclose()

    async def _tell(self, _: Request) -> Response:
        return JSONResponse(self.counts)

    async def _set(self, request: Request) -> Response:
        wanted = await request.json()
        if wanted["fail"] not in FAILURES:
            return JSONResponse({"known": FAILURES}, 400)
        self._fail, self._times = wanted["fail"], wanted["times"]
        return JSONResponse(self.counts)

    async def _forward(self, request: Request) -> Response:
        fail = ""
        if request.method == "POST":
            self.counts["generations"] += 1
            if self._times:
                self._times -= 1
                fail = self._fail
        if fail in ("503", "500"):
            return JSONResponse({"error": {"message": "played failure", "code": int(fail)}}, int(fail))
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_FORWARDED}
        asked = self._http.build_request(
            request.method, self._target + request.url.path, content=await request.body(), headers=headers
        )
        return _Piped(self, await self._http.send(asked, stream=True), cut_after=2 if fail == "cut" else None)


class _Piped(Response):
    def __init__(self, switch: Switch, answer: httpx2.Response, cut_after: int | None) -> None:
        super().__init__()
        self._switch, self._answer, self._cut_after = switch, answer, cut_after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._work(send))
        gone = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            self._switch.counts["finished" if work.done() else "gone"] += scope["method"] == "POST"
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            await self._answer.aclose()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    async def _work(self, send: Send) -> None:
        kind = self._answer.headers.get("content-type", "application/json").encode()
        status = self._answer.status_code
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        events = 0
        async for block in self._answer.aiter_raw():
            await send({"type": "http.response.body", "body": block, "more_body": True})
            events += block.count(b"\n\n")
            if self._cut_after is not None and events >= self._cut_after:
                raise ConnectionAbortedError("as it was told to")
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def switched(target: str, port: int) -> Iterator[str]:
    """Run a switch in a thread of its own; gives its URL."""
    config = uvicorn.Config(
        Switch(target).app(),
        port=port,
        loop="asyncio",
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
