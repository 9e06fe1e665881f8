"""A verifier that speaks vLLM's dialect, a broker that counts, and the real gateway between them and a client."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec
import openai
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from support.published import Published
from support.serving import serving

from cloud.api.app import create_app
from cloud.api.broker.policy import StreamPolicy
from cloud.api.server import uvicorn_config
from cloud.api.settings import BrokerOptions, GatewaySettings, Limits, VerifierSettings
from cloud.api.upstream.client import VerifierClient
from shared.ids import GatewayId, StreamId

KEY = "test-key-0123456789"
MODEL = "tiny"


@dataclass
class Step:
    """One chunk of the verifier: visible text and the tokens that came with it, as (id, spelling)."""

    text: str = ""
    tokens: Sequence[tuple[int, str]] = ()
    delta: dict[str, Any] | None = None
    """What a parser of the engine made of the text, in place of it."""


@dataclass
class FakeVerifier:
    """Answers like vLLM 0.32's server; everything that a test wants to go wrong is a field."""

    steps: list[Step] = field(default_factory=lambda: [Step("Hel", [(1, "Hel")]), Step("lo", [(2, "lo")])])
    finish: str = "stop"
    stop_reason: int | str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    """What usage has beside the usual."""
    status: int = 200
    body: Any = None
    break_after: int | None = None
    """Cut the connection after so many steps."""
    error_after: int | None = None
    """Send vLLM's error event after so many steps."""
    error: dict[str, Any] = field(
        default_factory=lambda: {"message": "EngineCore at /opt/x died", "type": "Internal", "code": 500}
    )
    gate: asyncio.Event | None = None
    """Wait for this after the first step (`gate_at` 1) or before it (0)."""
    gate_at: int = 1
    separator: bytes = b"\n\n"
    split: int | None = None
    """Send the stream in pieces of so many bytes."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client closed its request before the end."""
    models: list[str] = field(default_factory=lambda: [MODEL])
    on_step: Callable[[dict[str, Any], int], None] = lambda payload, step: None
    url: str = ""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._list),
                Route("/v1/chat/completions", self._generate, methods=["POST"]),
                Route("/v1/completions", self._generate, methods=["POST"]),
            ]
        )

    async def _list(self, _: Request) -> Response:
        cards = [{"id": m, "object": "model", "created": 7, "max_model_len": 2048} for m in self.models]
        return JSONResponse({"object": "list", "data": cards})

    async def _generate(self, request: Request) -> Response:
        payload = await request.json()
        self.requests.append(payload)
        self.headers.append(request.headers)
        self.asked.set()
        if self.status != 200:
            if isinstance(self.body, str):
                return Response(self.body, self.status, media_type="text/html")
            return JSONResponse(self.body, self.status)
        return _VllmStream(self, payload)


class _VllmStream(Response):
    def __init__(self, verifier: FakeVerifier, payload: dict[str, Any]) -> None:
        super().__init__()
        self._v = verifier
        self._payload = payload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._work(send))
        gone = asyncio.ensure_future(receive())
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            self._v.gone.set()
            work.cancel()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        with contextlib.suppress(asyncio.CancelledError, ConnectionAbortedError):
            await work

    async def _work(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        buffer = b""
        async for data in self._events():
            text = data if isinstance(data, bytes) else msgspec.json.encode(data)
            buffer += b"data: " + text + self._v.separator
            size = self._v.split or len(buffer)
            while len(buffer) >= size and buffer:
                block, buffer = buffer[:size], buffer[size:]
                await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body", "body": buffer})

    async def _events(self) -> AsyncIterator[dict[str, Any] | bytes]:
        v, payload = self._v, self._payload
        chat = "messages" in payload
        if v.gate and v.gate_at == 0:
            await v.gate.wait()
        if chat:
            yield self._chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}])
        count = 0
        for place, step in enumerate(v.steps):
            if v.gate and place == v.gate_at != 0:
                await v.gate.wait()
            if v.break_after == place:
                raise ConnectionAbortedError
            if v.error_after == place:
                yield {"error": v.error}
                yield b"[DONE]"
                return
            v.on_step(payload, place)
            count += len(step.tokens)
            last = place == len(v.steps) - 1
            choice: dict[str, Any] = {"index": 0, "logprobs": self._logprobs(step, chat)}
            content = {"content": step.text} if step.delta is None else step.delta
            choice |= {"delta": content} if chat else {"text": step.text}
            choice["finish_reason"] = v.finish if last else None
            if last:
                choice["stop_reason"] = v.stop_reason
            if payload.get("return_token_ids"):
                choice["token_ids"] = [id_ for id_, _ in step.tokens]
            chunk = self._chunk([choice])
            if payload["stream_options"].get("continuous_usage_stats"):
                chunk["usage"] = {"prompt_tokens": 5, "total_tokens": 5 + count, "completion_tokens": count}
            yield chunk
        usage = {
            "prompt_tokens": 5,
            "total_tokens": 5 + count,
            "completion_tokens": count,
            "prompt_tokens_details": {"cached_tokens": 3},
        }
        yield {**self._chunk([]), "usage": usage | v.usage}
        yield b"[DONE]"

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if "messages" in self._payload else "text_completion"
        return {"id": "chatcmpl-upstream", "object": kind, "created": 1, "model": MODEL, "choices": choices}

    def _logprobs(self, step: Step, chat: bool) -> dict[str, Any] | None:
        if not (self._payload.get("logprobs") if chat else "logprobs" in self._payload):
            return None
        if chat:
            top = self._payload.get("top_logprobs", 0)
            return {
                "content": [
                    {
                        "token": text,
                        "logprob": -0.5,
                        "bytes": list(text.encode()),
                        "top_logprobs": [{"token": text, "logprob": -0.5, "bytes": None}][:top],
                    }
                    for _, text in step.tokens
                ]
            }
        texts = [text for _, text in step.tokens]
        return {
            "tokens": texts,
            "token_logprobs": [-0.5 for _ in texts],
            "top_logprobs": [{text: -0.5} for text in texts],
            "text_offset": [0 for _ in texts],
        }


@dataclass
class FakeFigures:
    drafted: int = 0
    accepted: int = 0
    verify_steps: int = 0
    output_tokens: int = 0
    origins: list[str] = field(default_factory=list)
    node_class: str = "none"
    seed: int | None = None
    prompt_tokens: int = 0
    claims: list[Any] = field(default_factory=list)


@dataclass
class FakeHandle:
    policy: StreamPolicy
    trace: bool
    shaped: bool
    numbers: FakeFigures = field(default_factory=FakeFigures)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    waited: int = 0

    def figures(self) -> FakeFigures:
        return self.numbers

    async def closed(self, timeout_s: float) -> bool:
        self.waited += 1
        return True

    def release(self) -> None:
        self.released.set()


class NoNodes:
    async def node_endpoint(self, websocket: Any) -> None:
        await websocket.close()

    def guard(self, register: Any) -> None:
        pass


@dataclass
class FakeServed:
    vocabulary: int = 100
    tools: bool = True
    effort: bool = True
    sampler: str = "engine-1-sampler-2"


@dataclass
class FakeCoordinator:
    nodes: NoNodes = field(default_factory=NoNodes)
    handles: dict[StreamId, FakeHandle] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    running: bool = False
    about: FakeServed | None = field(default_factory=FakeServed)

    @property
    def gateway_id(self) -> GatewayId:
        return GatewayId("gateway-under-test")

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False

    def register(
        self, stream: StreamId, *, policy: StreamPolicy | None = None, trace: bool = False, shaped: bool = False
    ) -> FakeHandle:
        self.handles[stream] = FakeHandle(policy or StreamPolicy(), trace, shaped)
        return self.handles[stream]

    def models(self) -> list[str]:
        return [MODEL]

    def served(self, model: str) -> FakeServed | None:
        return self.about

    def snapshot(self) -> Mapping[str, float]:
        return self.numbers

    def of(self, payload: dict[str, Any]) -> FakeHandle:
        """The handle of the stream that a request to the verifier names."""
        return self.handles[StreamId(payload["vllm_xargs"]["nexus_stream"])]


@dataclass
class Gateway:
    """The gateway under test with what is around it."""

    url: str
    verifier: FakeVerifier
    coordinator: FakeCoordinator
    client: openai.AsyncOpenAI
    http: httpx2.AsyncClient
    app: FastAPI
    key: str = f"Bearer {KEY}"

    def pool_client(self) -> VerifierClient:
        """The gateway's client of its one verifier."""
        [client] = self.app.state.backend.pool._clients
        return client

    def sync_client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url + "/v1", api_key=KEY, max_retries=0)

    async def post(self, body: Any, path: str = "/v1/chat/completions", **kw: Any) -> httpx2.Response:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.http.post(path, content=content, **kw)


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier()


@pytest.fixture
def coordinator() -> FakeCoordinator:
    return FakeCoordinator()


@pytest.fixture
def limits() -> Limits:
    return Limits(shutdown_s=1)


@pytest.fixture
def judged() -> bool:
    """Whether each answer is judged by OpenAI's published schema."""
    return True


@pytest.fixture
def extra() -> dict[str, Any]:
    """Further settings of the gateway."""
    return {}


@pytest.fixture
def run_server() -> Callable[[uvicorn.Config], contextlib.AbstractAsyncContextManager[str]]:
    return serving


@pytest.fixture
def step() -> type[Step]:
    return Step


@pytest.fixture
async def gateway(
    verifier: FakeVerifier, coordinator: FakeCoordinator, limits: Limits, extra: dict[str, Any], judged: bool
) -> AsyncIterator[Gateway]:
    config = uvicorn.Config(
        verifier.app(), port=0, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    async with serving(config) as verifier.url:
        settings = GatewaySettings(
            port=0,
            api_keys=[KEY],
            verifiers=[VerifierSettings(url=verifier.url, draft_ports=["ipc:///nowhere"])],
            limits=limits,
            broker=BrokerOptions(),
            **extra,
        )
        app = create_app(settings, coordinator)
        published = Published(app)
        async with (
            serving(uvicorn_config(published if judged else app, settings)) as url,
            openai.AsyncOpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0) as client,
            httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {KEY}"}, trust_env=False) as http,
        ):
            yield Gateway(url, verifier, coordinator, client, http, app)
        published.check()
