"""The server under judgement: sends requests as a client would, and keeps answers that several cases look at."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2

from cloud.conformance.transcript import Kind, Transcript, loads

Json = dict[str, Any]
PROMPT = "Write two sentences about the sea."
TEXT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,"
"""Of text completions: what no model ends after a word or two."""
LENGTH = 32
"""Output limit of most requests, tokens: enough to see, little to wait for."""
ANSWER_LIMIT = 32 << 20
"""What is read of an answer, bytes; whatever is longer has no end, and is judged as one without."""
PATHS: dict[Kind, str] = {"chat": "/chat/completions", "completion": "/completions"}


@dataclass
class Answer:
    """One whole HTTP answer. `json` is none when the body is no JSON; `asked` says what a good one would hold."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    asked: Literal["anything", "choices", "events"] = "anything"
    json: Any = field(init=False)

    def __post_init__(self) -> None:
        try:
            self.json = loads(self.body)
        except ValueError:
            self.json = None

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    @property
    def type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip()

    def _error(self, name: str) -> Any:
        error = self.json.get("error") if isinstance(self.json, dict) else None
        return error.get(name) if isinstance(error, dict) else None

    def message(self) -> str:
        said = self._error("message")
        return said if isinstance(said, str) else self.text[:120]

    def param(self) -> Any:
        return self._error("param")

    def code(self) -> Any:
        return self._error("code")

    # What a good answer holds; a bad one gives nothing, which the cases then tell.

    def choices(self) -> list[Json]:
        choices = self.json.get("choices") if isinstance(self.json, dict) else None
        return [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []

    def answers(self) -> bool:
        """Whether it holds at all what was asked for: a message or a text in each choice, or a stream."""
        match self.asked:
            case "anything":
                return True
            case "events":
                return self.type == "text/event-stream"
            case "choices":
                found = self.choices()
                return bool(found) and all(
                    isinstance(each.get("message"), dict) or isinstance(each.get("text"), str) for each in found
                )

    def choice(self, index: int = 0) -> Json:
        return next((each for each in self.choices() if each.get("index") == index), {})

    def said(self, index: int = 0) -> str:
        choice = self.choice(index)
        message = choice.get("message")
        text = message.get("content") if isinstance(message, dict) else choice.get("text")
        return text if isinstance(text, str) else ""

    def finish(self, index: int = 0) -> Any:
        return self.choice(index).get("finish_reason")

    def usage(self, name: str) -> Any:
        usage = self.json.get("usage") if isinstance(self.json, dict) else None
        return usage.get(name) if isinstance(usage, dict) else None


class Target:
    """`url` is what a client takes as `base_url`. Use `open`. An answer that is not whole within `timeout_s` is a
    `TimeoutError`."""

    def __init__(self, http: httpx2.AsyncClient, url: str, key: str | None, model: str, timeout_s: float) -> None:
        self.http = http
        self.timeout_s = timeout_s
        self.url = url
        self.key = key
        self.model = model
        self._kept: dict[str, Answer] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, key: str | None = None, model: str | None = None, timeout_s: float = 60.0
    ) -> AsyncIterator["Target"]:
        """A URL without a path gets `/v1`. Without `model` it is the first that the server lists; raises
        `httpx2.HTTPError`, `TimeoutError` or `LookupError` when the server cannot be asked for it."""
        if urlsplit(url).path in ("", "/"):
            url = url.rstrip("/") + "/v1"
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # Reading certificates takes a while, and without TLS there are none to check.
        verify = urlsplit(url).scheme == "https"
        async with httpx2.AsyncClient(headers=headers, timeout=timeout_s, trust_env=False, verify=verify) as http:
            target = cls(http, url.rstrip("/"), key, model or "", timeout_s)
            if model is None:
                answer = await target.get("/models")
                try:
                    target.model = answer.json["data"][0]["id"]
                except (TypeError, KeyError, IndexError):
                    raise LookupError(f"the models list does not name a model: {answer.message()}") from None
            yield target

    def root(self, path: str) -> str:
        """An address outside the API's own folder."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{path}"

    # --- requests ---

    async def send(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        url = path if path.startswith("http") else self.url + path
        given = {**({"content-type": "application/json"} if content is not None else {}), **(headers or {})}
        try:
            return await self._whole(method, url, content, given)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            # As clients do: a server may have closed a connection that it kept open until now.
            return await self._whole(method, url, content, given)

    async def _whole(self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
        body = bytearray()
        async with (
            asyncio.timeout(self.timeout_s),
            self.http.stream(method, url, content=content, headers=headers) as response,
        ):
            async for block in response.aiter_bytes():
                body += block
                if len(body) >= ANSWER_LIMIT:
                    break
        return Answer(response.status_code, response.headers, bytes(body))

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.send("GET", path, headers=headers)

    def body(self, kind: Kind = "chat", /, **changes: Any) -> Json:
        """A short greedy request with `changes`; one that is `...` is left out."""
        body: Json = {"model": self.model, "max_tokens": LENGTH, "temperature": 0, "seed": 1}
        body |= {"prompt": TEXT} if kind == "completion" else {"messages": [{"role": "user", "content": PROMPT}]}
        return {name: value for name, value in {**body, **changes}.items() if value is not ...}

    async def ask(self, kind: Kind = "chat", /, *, headers: Mapping[str, str] | None = None, **changes: Any) -> Answer:
        answer = await self.send("POST", PATHS[kind], json.dumps(self.body(kind, **changes)).encode(), headers)
        answer.asked = "events" if changes.get("stream") is True else "choices"
        return answer

    async def kept(self, kind: Kind = "chat", /, **changes: Any) -> Answer:
        """As `ask`, but an answer that was had before is given again."""
        name = json.dumps([kind, changes], sort_keys=True)
        if name not in self._kept:
            self._kept[name] = await self.ask(kind, **changes)
        return self._kept[name]

    async def kept_get(self, path: str) -> Answer:
        if path not in self._kept:
            self._kept[path] = await self.get(path)
        return self._kept[path]

    async def stream(self, kind: Kind = "chat", /, **changes: Any) -> tuple[Answer, Transcript]:
        """A streamed answer, read to its end; several cases look at the same one."""
        answer = await self.kept(kind, stream=True, **changes)
        options = changes.get("stream_options") or {}
        usage = bool(options.get("include_usage"))
        body = answer.body if answer.type == "text/event-stream" else b""
        return answer, Transcript.read(body, kind, n=changes.get("n") or 1, include_usage=usage)

    @asynccontextmanager
    async def leaving(self, **changes: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        """A request whose caller hangs up at the end of the block, whatever has come by then."""
        content = json.dumps(self.body(**changes)).encode()
        headers = {"content-type": "application/json"}
        async with (
            asyncio.timeout(self.timeout_s),
            self.http.stream("POST", self.url + PATHS["chat"], content=content, headers=headers) as response,
        ):
            yield response.aiter_raw()

    async def declared(self, length: int, wait_s: float) -> Answer | None:
        """Announce a body of `length` bytes and send none; none when no answer comes in time or the server hangs up.
        By a bare socket, because an HTTP client sends what it announces."""
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        lines = [f"POST {parts.path}{PATHS['chat']} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
        lines += ["Content-Type: application/json", f"Content-Length: {length}"]
        lines += [f"Authorization: Bearer {self.key}"] if self.key else []
        writer = None
        try:
            async with asyncio.timeout(wait_s):
                reader, writer = await asyncio.open_connection(
                    parts.hostname, port, ssl=parts.scheme == "https" or None
                )
                writer.write("\r\n".join([*lines, "", ""]).encode())
                head, _, body = (await reader.read(1 << 20)).partition(b"\r\n\r\n")
                size = next((v for n, v in _headers(head).items() if n == "content-length"), "0")
                while len(body) < int(size) and (more := await reader.read(1 << 20)):
                    body += more
            return Answer(int(head.split()[1]), _headers(head), body)
        except (TimeoutError, OSError, IndexError, ValueError):
            return None
        finally:
            if writer is not None:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
