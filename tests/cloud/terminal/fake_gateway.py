"""A tiny OpenAI-compatible gateway. As a script: `fake_gateway.py PORT FIGURES MARK` serves until SIGTERM."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

KEY = "right-key"
TOKENS = [("Paris", "accepted"), (" is", "accepted"), (" the", "corrected"), (" capital", "bonus"), (".\n", "plain")]
FIGURES = {"drafted": 4, "accepted": 2, "verify_steps": 2, "tokens_per_step": 2.5, "seed": 1, "nodes": "any"}


def error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "x", "param": None, "code": None}}, status)


class FakeGateway:
    """`owned_by` other than nexus makes it a foreign gateway: no `nexus` object, and none is accepted."""

    def __init__(self, owned_by: str = "nexus", figures: dict[str, Any] | None = None) -> None:
        self.owned_by = owned_by
        self.figures = FIGURES if figures is None else figures
        self.bodies: list[dict[str, Any]] = []
        self.breaks = False
        self.hangs = False
        self.gone = 0
        self.app = Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/health", lambda _: JSONResponse({"status": "ok", "nodes": 1})),
            ]
        )

    async def models(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return error(401, "This API key is not known here.")
        return JSONResponse({"data": [{"id": name, "owned_by": self.owned_by} for name in ("large", "small")]})

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if self.owned_by != "nexus" and "nexus" in body:
            return error(400, "Unknown parameter: nexus.")
        if body["messages"][-1]["content"] == "too long":
            return error(400, "This model's context holds 16 tokens. Shorten the prompt.")
        return StreamingResponse(self.answer(body), media_type="text/event-stream")

    async def answer(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        trace = body.get("nexus", {}).get("trace", False)
        yield b": keep-alive\n\n"
        yield self.chunk({"role": "assistant", "content": ""})
        for place, (text, origin) in enumerate(TOKENS):
            nexus = {"trace": [{"id": place, "text": text, "origin": origin}]} if trace else None
            yield self.chunk({"content": text}, nexus=nexus)
            if self.breaks:
                yield b'data: {"error": {"message": "The verifier failed."}}\n\n'
                return
            if self.hangs:
                try:
                    await asyncio.Event().wait()
                finally:
                    self.gone += 1
        nexus = None
        if self.owned_by == "nexus":
            whole = [{"id": i, "text": t, "origin": o} for i, (t, o) in enumerate(TOKENS)]
            nexus = {**self.figures, **({"trace": whole} if trace else {})}
        yield self.chunk({}, reason="stop")
        usage = {"prompt_tokens": 3, "completion_tokens": len(TOKENS)}
        yield self.chunk(None, nexus=nexus, usage=usage)
        yield b"data: [DONE]\n\n"

    def chunk(self, delta: Any, *, nexus: Any = None, reason: str | None = None, usage: Any = None) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
        data = {"choices": choices, "usage": usage, **({"nexus": nexus} if nexus else {})}
        return b"data: " + json.dumps(data).encode() + b"\n\n"


def config(app: Any, port: int = 0) -> uvicorn.Config:
    return uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", ws="none", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    fake = FakeGateway(figures=json.loads(sys.argv[2]))
    uvicorn.Server(config(fake.app, int(sys.argv[1]))).run()
