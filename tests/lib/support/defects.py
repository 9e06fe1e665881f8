"""Servers that are wrong in one small way: a middleware that spoils requests or answers on their way through."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Json = dict[str, Any]
Headers = dict[str, str]
Raw = tuple[int, Headers, bytes]


@dataclass(frozen=True)
class Defect:
    """What is spoiled. `ask` is the request's JSON; a function may change what it gets, and returns what goes on."""

    request: Callable[[Json], Json] | None = None
    """Before the server sees it."""
    answer: Callable[[Json, Json], Any] | None = None
    """(ask, answer): a whole answer of a generation."""
    stream: Callable[[Json, list[Any]], list[Any]] | None = None
    """(ask, events): the events of a stream; objects, and strings such as [DONE]."""
    error: Callable[[Json], Any] | None = None
    """The `error` object of an error; what it returns is the whole body."""
    raw: Callable[[str, Raw], Raw] | None = None
    """("GET /v1/models", (status, headers, body)), after all others."""
    instead: Raw | None = None
    """This for every request, without asking the server."""
    deaf: bool = False
    """Does not notice that a caller left."""
    echo: bool = False
    """Sends any `x-client-request-id` back."""


class Spoiled:
    """The application with `defect`, which a test may change; none lets everything through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.defect: Defect | None = None
        self.crash: Exception | None = None
        """What went wrong in the spoiling itself, which would look like a broken server."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (defect := self.defect) is None:
            await self._app(scope, receive, send)
        elif defect.instead is not None:
            status, headers, body = defect.instead
            out = [(name.encode(), value.encode()) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": status, "headers": out})
            await send({"type": "http.response.body", "body": body})
        elif defect.deaf:
            await self._deaf(scope, receive, send)
        else:
            try:
                await self._spoil(defect, scope, receive, send)
            except Exception as error:
                self.crash = error
                raise

    async def _deaf(self, scope: Scope, receive: Receive, send: Send) -> None:
        got_all = False

        async def receive_once() -> Message:
            nonlocal got_all
            if got_all:
                await asyncio.Event().wait()
            message = await receive()
            got_all = not message.get("more_body", False)
            return message

        await self._app(scope, receive_once, send)

    async def _spoil(self, defect: Defect, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        # A server that refuses by the announced length reads nothing; neither does this.
        lengths = [int(value) for name, value in scope["headers"] if name == b"content-length" and value.isdigit()]
        announced = bool(lengths) and lengths[0] > 1 << 30
        if not announced:
            while True:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    break
        ask = _object(body)
        if defect.request is not None and ask and scope["method"] == "POST":
            ask = defect.request(ask)
            body = json.dumps(ask).encode()
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        if lengths:
            headers.append((b"content-length", str(lengths[0] if announced else len(body)).encode()))
        given = False

        async def receive_body() -> Message:
            nonlocal given
            if given or announced:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        start: Message = {}
        answered = bytearray()

        async def keep(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            else:
                answered.extend(message.get("body", b""))

        await self._app({**scope, "headers": headers}, receive_body, keep)
        if not start:
            return
        told = {name.decode(): value.decode() for name, value in start["headers"]}
        raw = _changed(defect, scope["path"], ask, (start["status"], told, bytes(answered)))
        if defect.raw is not None:
            raw = defect.raw(f"{scope['method']} {scope['path']}", raw)
        status, told, content = raw
        if defect.echo:
            told |= {
                name.decode(): value.decode() for name, value in scope["headers"] if name == b"x-client-request-id"
            }
        told = {name: value for name, value in told.items() if name != "content-length"}
        out = [(name.encode(), value.encode()) for name, value in told.items()]
        out.append((b"content-length", str(len(content)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": out})
        await send({"type": "http.response.body", "body": content})


def _object(body: bytes) -> Json:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _changed(defect: Defect, path: str, ask: Json, raw: Raw) -> Raw:
    status, headers, body = raw
    generation = path.endswith("completions")
    if status >= 400 and defect.error is not None:
        return status, headers, json.dumps(defect.error(json.loads(body)["error"])).encode()
    if status == 200 and generation and headers["content-type"].startswith("text/event-stream"):
        if defect.stream is not None:
            body = written(defect.stream(ask, events(body)))
    elif status == 200 and generation and defect.answer is not None:
        body = json.dumps(defect.answer(ask, json.loads(body))).encode()
    return status, headers, body


def events(body: bytes) -> list[Any]:
    """The events of a stream: objects, and the text of those that are none."""
    datas = [each[6:] for each in body.decode().split("\n\n") if each.startswith("data: ")]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


def written(values: list[Any]) -> bytes:
    """A stream of these events."""
    datas = [value if isinstance(value, str) else json.dumps(value) for value in values]
    return "".join(f"data: {data}\n\n" for data in datas).encode()


# --- common ways to go wrong ---


def without(*names: str) -> Callable[[Json], Json]:
    """A server that ignores these parameters."""
    return lambda ask: {name: value for name, value in ask.items() if name not in names}


def forced(**values: Any) -> Callable[[Json], Json]:
    """A server that puts its own values where the caller gave some."""
    return lambda ask: {**ask, **{name: value for name, value in values.items() if name in ask}}


def every_chunk(change: Callable[[Json], Json]) -> Callable[[Json, list[Any]], list[Any]]:
    return lambda ask, found: [change(each) if isinstance(each, dict) else each for each in found]


def every_choice(change: Callable[[Json], Json]) -> Callable[[Json, list[Any]], list[Any]]:
    """Changes the choice objects of chunks."""
    return every_chunk(lambda chunk: {**chunk, "choices": [change(each) for each in chunk["choices"]]})


def header(name: str, value: str | None) -> Callable[[str, Raw], Raw]:
    """Sets a header, or drops it."""

    def change(_: str, raw: Raw) -> Raw:
        status, headers, body = raw
        rest = {key: each for key, each in headers.items() if key != name}
        return status, rest if value is None else {**rest, name: value}, body

    return change


def status_of(
    request: str, status: int, body: bytes | None = None, kind: str | None = None
) -> Callable[[str, Raw], Raw]:
    """Answers this request ("GET /v1/x"; a prefix will do) with another status."""

    def change(asked: str, raw: Raw) -> Raw:
        if not asked.startswith(request):
            return raw
        _, headers, old = raw
        return status, {**headers, "content-type": kind or headers["content-type"]}, old if body is None else body

    return change


def instead(old: int, new: int) -> Callable[[str, Raw], Raw]:
    """One status in place of another, everywhere."""
    return lambda _, raw: (new if raw[0] == old else raw[0], raw[1], raw[2])


def patched(body: Mapping[str, Any], **changes: Any) -> Json:
    """A copy with other values; `...` leaves a name out."""
    return {name: value for name, value in {**body, **changes}.items() if value is not ...}
