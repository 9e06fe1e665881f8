"""One verifier's HTTP server: lists its models and streams generations. Closing the stream stops the engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from cloud.api.upstream import errors
from cloud.api.upstream.chunks import Delta, EventSplitter, Piece, read_chunk
from shared.errors import NexusError, Unavailable, UpstreamFailed

_ERROR_LIMIT = 64 << 10
_PROMPT_PARAM = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}


class VerifierUnreachable(Unavailable):
    """No connection to this verifier: another one may be asked."""


class VerifierSilent(Unavailable):
    """No answer in time, not even a refusal: busy, as far as anyone can tell."""


class _Card(msgspec.Struct):
    id: str
    created: int = 0
    max_model_len: int | None = None


class _Cards(msgspec.Struct):
    data: list[_Card]


@dataclass(frozen=True)
class ServedModel:
    """A model that a verifier offers; `context_length` in tokens."""

    name: str
    created: int
    context_length: int | None


class VerifierClient:
    """Shares the caller's `http` client, which sets the time limits; `open_streams` is the number now running."""

    def __init__(self, http: httpx2.AsyncClient, url: str, api_key: str | None = None) -> None:
        self._http = http
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._contexts: dict[str, int | None] = {}
        self.open_streams = 0
        self.heard = 0
        """Grows with everything that the verifier sends: a sign of life."""

    async def models(self, timeout_s: float) -> list[ServedModel]:
        """Raises `VerifierUnreachable`, `VerifierSilent` or `UpstreamFailed`."""
        try:
            response = await self._http.get(self._url + "/v1/models", headers=self._headers, timeout=timeout_s)
        except (httpx2.ReadTimeout, httpx2.ConnectTimeout):
            # No answer is no refusal: it may be us who are too busy to see it. Who asks for a stream finds out.
            raise VerifierSilent("The verifier is busy. Try again shortly.") from None
        except httpx2.HTTPError:
            raise VerifierUnreachable("The verifier cannot be reached. Try again shortly.") from None
        self.heard += 1
        try:
            cards = msgspec.json.decode(response.content, type=_Cards) if response.is_success else None
        except msgspec.DecodeError:
            cards = None
        if cards is None:
            raise UpstreamFailed("The verifier does not list its models.")
        self._contexts = {card.id: card.max_model_len for card in cards.data}
        return [ServedModel(card.id, card.created, card.max_model_len) for card in cards.data]

    @asynccontextmanager
    async def stream(self, path: str, payload: dict[str, Any]) -> AsyncIterator[AsyncIterator[list[Piece]]]:
        """Open a generation; the request was accepted when this yields. Leaving it, in whatever way, closes it.

        It gives what has come since the last look, at least one piece.
        """
        request = self._http.build_request(
            "POST", self._url + path, content=msgspec.json.encode(payload), headers=self._headers
        )
        request.headers["content-type"] = "application/json"
        name = payload["model"]
        schema_param = "response_format" if "response_format" in payload or "tools" not in payload else "tools"
        asked = errors.Asked(name, _PROMPT_PARAM[path], self._contexts.get(name), schema_param)
        self.open_streams += 1
        response: httpx2.Response | None = None
        try:
            try:
                response = await self._http.send(request, stream=True)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                raise VerifierUnreachable("The verifier cannot be reached. Try again shortly.") from None
            except httpx2.HTTPError:
                raise UpstreamFailed("The verifier did not answer. Try again.") from None
            self.heard += 1
            if response.status_code != 200:
                raise await self._refusal(response, asked)
            yield self._pieces(response, asked)
        finally:
            self.open_streams -= 1
            if response is not None:
                await response.aclose()

    async def _refusal(self, response: httpx2.Response, asked: errors.Asked) -> NexusError:
        body = b""
        try:
            async for block in response.aiter_bytes():
                body += block
                if len(body) > _ERROR_LIMIT:
                    break
        except httpx2.HTTPError:
            body = b""
        return errors.from_response(response.status_code, body, asked)

    async def _pieces(self, response: httpx2.Response, asked: errors.Asked) -> AsyncIterator[list[Piece]]:
        reading = _Reading(asked)
        try:
            async for block in response.aiter_bytes():
                self.heard += 1
                if pieces := reading.feed(block):
                    yield pieces
                if reading.failure is not None:
                    raise reading.failure
                if reading.done:
                    break
        except httpx2.HTTPError:
            raise UpstreamFailed("The connection to the verifier broke. Try again.") from None
        if not reading.finished:
            raise UpstreamFailed("The verifier ended the answer before it was finished. Try again.")


class _Reading:
    """What a stream has said so far."""

    def __init__(self, asked: errors.Asked) -> None:
        self._asked = asked
        self._splitter = EventSplitter()
        self.finished = self.done = False
        """The choice has ended; the stream has said that it has."""
        self.failure: NexusError | None = None

    def feed(self, block: bytes) -> list[Piece]:
        """The pieces of a block; also those that came before a failure in it."""
        pieces: list[Piece] = []
        try:
            for data in self._splitter.feed(block):
                if data == b"[DONE]":
                    self.done = True
                    break
                pieces += read_chunk(data, self._asked)
        except NexusError as failure:
            self.failure = failure
        self.finished = self.finished or any(isinstance(each, Delta) and each.end is not None for each in pieces)
        return pieces
