"""Judges every answer that passes by against OpenAI's published schema and our own document: put it around the
application under test."""

import json
import re
from functools import cache
from typing import Any

import jsonschema_rs
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloud.api.openapi.document import document
from cloud.conformance.schemas.catalogue import SCHEMAS
from cloud.conformance.schemas.judge import Level, problems
from cloud.conformance.transcript import Kind, Transcript, loads

_STREAMS: dict[str, tuple[Kind, str]] = {
    "/v1/chat/completions": ("chat", "ChatCompletion"),
    "/v1/completions": ("completion", "Completion"),
}
_DEVICE_FLOW = ("/v1/device/code", "/v1/device/token")


@cache
def _operations() -> list[tuple[re.Pattern[str], str, dict[str, Any]]]:
    """(address, method, responses) of each documented operation, references followed."""
    made = document()
    found = []
    for path, methods in made["paths"].items():
        pattern = re.compile(re.sub(r"\{\w+\}", ".+", path))
        for method, operation in methods.items():
            responses = {
                status: made["components"]["responses"][each["$ref"].rsplit("/", 1)[1]] if "$ref" in each else each
                for status, each in operation["responses"].items()
            }
            found.append((pattern, method.upper(), responses))
    return found


def undocumented(method: str, path: str, start: Message) -> list[str]:
    """What our own document does not say of this answer. An address that it does not have answers 404, a method that an
    address does not take 405; a body may be too large anywhere."""
    status, headers = start["status"], {name.decode().lower(): value.decode() for name, value in start["headers"]}
    there = [(each, responses) for pattern, each, responses in _operations() if pattern.fullmatch(path)]
    responses = next((responses for each, responses in there if each == method), None)
    if responses is None:
        expected = {405} if there else {404}
        return [] if status in expected | {400, 401, 403, 413} else [f"status {status} where nothing is documented"]
    if str(status) not in responses:
        return [] if status == 413 else [f"status {status} is not documented"]
    kind = headers.get("content-type", "").partition(";")[0]
    found = [] if kind in responses[str(status)]["content"] else [f"content type {kind!r} is not documented"]
    needed = [name for name in responses[str(status)]["headers"] if name in ("X-Request-Id", "Retry-After")]
    return found + [f"no header {name}" for name in needed if name.lower() not in headers]


@cache
def _quick(name: str) -> jsonschema_rs.Draft202012Validator:
    root = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": dict(SCHEMAS)}}
    return jsonschema_rs.Draft202012Validator(root)


def check(name: str, value: Any, level: Level = "strict") -> list[str]:
    """As `problems`, many times as fast where there are none."""
    return [] if _quick(name).is_valid(value) else problems(name, value, level)


class Published:
    """ASGI middleware that records; `check` fails with all that was wrong. `judged` counts answers and chunks."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.wrong: list[str] = []
        self.judged = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked, answered = bytearray(), bytearray()
        start: Message = {}
        complete = False

        async def receive_seen() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                asked.extend(message.get("body", b""))
            return message

        async def send_seen(message: Message) -> None:
            nonlocal start, complete
            await send(message)
            if message["type"] == "http.response.start":
                start = message
            else:
                answered.extend(message.get("body", b""))
                complete = not message.get("more_body", False)

        try:
            await self._app(scope, receive_seen, send_seen)
        finally:
            if start:
                found = [*undocumented(scope["method"], scope["path"], start)]
                if scope["path"].startswith("/v1"):
                    found += self._judge(scope["path"], start, bytes(asked), bytes(answered), complete)
                self.wrong += [f"{scope['method']} {scope['path']} {start['status']}: {each}" for each in found]

    def check(self) -> None:
        assert not self.wrong, "\n".join(self.wrong)

    def _judge(self, path: str, start: Message, asked: bytes, answered: bytes, complete: bool) -> list[str]:
        headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        kind = headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            return self._stream(path, asked, answered, complete)
        if not complete:
            return []
        if not kind.startswith("application/json"):
            return [f"content type {kind!r}"]
        self.judged += 1
        name = self._name(path, start["status"])
        return check(name, loads(answered)) if name else []

    def _stream(self, path: str, asked: bytes, answered: bytes, complete: bool) -> list[str]:
        request: dict[str, Any] = json.loads(asked or b"{}")
        usage = bool((request.get("stream_options") or {}).get("include_usage"))
        stream = Transcript.read(
            answered, _STREAMS[path][0], n=request.get("n") or 1, include_usage=usage, complete=complete
        )
        self.judged += len(stream.chunks)
        return [fault.text for fault in stream.faults(check)]

    @staticmethod
    def _name(path: str, status: int) -> str | None:
        if status == 400 and path in _DEVICE_FLOW:
            return None  # in OAuth's shape, which is in our own document only
        if status >= 400:
            return "Error"
        if path in _STREAMS:
            return _STREAMS[path][1]
        if path == "/v1/models":
            return "ModelList"
        return "Model" if path.startswith("/v1/models/") else None
