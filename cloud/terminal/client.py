"""Client of an OpenAI-compatible gateway: which models it serves, and streamed chat answers; errors in words."""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from cloud.terminal.answer import Piece, read_chunk
from cloud.terminal.sse import SseParser, StreamBroken
from shared.errors import (
    ConfigError,
    InvalidInput,
    ModelNotFound,
    NexusError,
    Unauthorized,
    Unavailable,
    UpstreamFailed,
)

CONNECT_S = 5.0
SILENCE_S = 600.0
"""Longest silence of a gateway in the middle of an answer."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_STRANGE = (TypeError, KeyError, AttributeError, ValueError)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model on the gateway's list."""

    name: str
    by_nexus: bool
    """The gateway is a Nexus gateway, which takes the `nexus` part of a request; others may refuse it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Parameters of a request; none leaves one to the gateway."""

    temperature: float | None = None
    max_tokens: int | None = None
    trace: bool = False
    """Ask where each token came from. For Nexus gateways only."""


class GatewayClient:
    """Use as a context manager. Every error is a `NexusError` that says what to do."""

    def __init__(self, url: str, key: str | None, *, silence_s: float = SILENCE_S) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url {url!r} is no address of an API; it looks like http://127.0.0.1:8080/v1.")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ConfigError("The key must be printable ASCII; was something else pasted along?")
        self._http = httpx2.Client(
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(silence_s, connect=CONNECT_S),
            trust_env=parts.hostname not in _LOOPBACK,
        )
        self._has_key = bool(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def models(self) -> list[ServedModel]:
        """What the gateway serves, in its order."""
        try:
            response = self._http.get(f"{self.url}/models")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unreachable(error) from None
        if not response.is_success:
            raise self._refused(response.status_code, response.content)
        try:
            return [ServedModel(str(m["id"]), m.get("owned_by") == "nexus") for m in response.json()["data"]]
        except _STRANGE:
            raise self._no_api(response.status_code) from None

    def choose(self, name: str | None) -> ServedModel:
        """The model called `name`, or the first one served. A name that is not on the list is refused with it."""
        served = self.models()
        if not served:
            raise Unavailable(f"The gateway at {self.url} serves no model at the moment. Is its verifier running?")
        for model in served:
            if name is None or model.name == name:
                return model
        names = ", ".join(model.name for model in served)
        raise ModelNotFound(f"The model {name!r} is not served at {self.url}. Served there: {names}.")

    def stream(
        self, model: ServedModel, messages: Sequence[Mapping[str, str]], options: Options
    ) -> Generator[Piece, None, None]:
        """The answer piece by piece. Close the iterator to stop the generation; the gateway notices at once."""
        body: dict[str, Any] = {"model": model.name, "messages": list(messages), "stream": True}
        body["stream_options"] = {"include_usage": True}
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if options.max_tokens is not None:
            body["max_tokens"] = options.max_tokens
        if options.trace and model.by_nexus:
            body["nexus"] = {"trace": True}
        try:
            with self._http.stream("POST", f"{self.url}/chat/completions", json=body) as response:
                if not response.is_success:
                    raise self._refused(response.status_code, response.read())
                yield from self._pieces(response.iter_bytes(), response.status_code)
        except httpx2.ReadTimeout:
            raise UpstreamFailed(f"The gateway at {self.url} fell silent in the middle of the answer.") from None
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None

    def _pieces(self, chunks: Iterator[bytes], status: int) -> Iterator[Piece]:
        parser = SseParser()
        seen = False
        for chunk in chunks:
            try:
                events = parser.feed(chunk)
            except StreamBroken as error:
                raise UpstreamFailed(f"The answer of {self.url} cannot be read: {error}") from None
            for data in events:
                if data == "[DONE]":
                    return
                seen = True
                yield self._piece(data)
        if not seen:
            raise self._no_api(status)
        raise UpstreamFailed(f"The connection to {self.url} ended before the answer did.")

    def _piece(self, data: str) -> Piece:
        try:
            chunk = json.loads(data)
            if isinstance(chunk, dict) and chunk.get("error"):
                raise UpstreamFailed(f"The answer broke off: {_message(chunk) or 'the gateway gave no reason'}")
            return read_chunk(chunk)
        except _STRANGE:
            raise UpstreamFailed(f"The answer of {self.url} holds something that is no chat chunk.") from None

    def _refused(self, status: int, body: bytes) -> NexusError:
        try:
            message = _message(json.loads(body))
        except ValueError:
            message = ""
        said = f" It said: {message}" if message else ""
        if status in (401, 403):
            if not self._has_key:
                return Unauthorized(f"The gateway at {self.url} asks for a key: give it with NEXUS_API_KEY or --key.")
            return Unauthorized(f"The gateway at {self.url} does not take this key (NEXUS_API_KEY or --key).{said}")
        if status == 404 and not message:
            return self._no_api(status)
        if status == 404:
            return ModelNotFound(message)
        if status < 500 and status != 429:
            return InvalidInput(message or f"The gateway at {self.url} refused the request (status {status}).")
        return Unavailable(f"The gateway at {self.url} cannot answer now (status {status}).{said}")

    def _no_api(self, status: int) -> NexusError:
        return UpstreamFailed(
            f"{self.url} answers (status {status}), but not like an OpenAI-compatible API. "
            "Such an address mostly ends with /v1: check --url."
        )

    def _unreachable(self, error: Exception) -> NexusError:
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return Unavailable(
                f"Nothing answers at {self.url}. Start a gateway with `nexus gateway serve`, everything at once with "
                "`nexus demo`, or name another gateway with --url."
            )
        return UpstreamFailed(f"The connection to {self.url} failed: {str(error) or type(error).__name__}.")


def _message(body: Any) -> str:
    """The text of an error object, in the shapes that are about."""
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""
