"""Builds answers, chunks and model cards. Chat and completions differ only in the shape of a choice."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cloud.api.openai.common import Job, finite
from cloud.api.upstream.chunks import Token, Usage
from cloud.api.upstream.client import ServedModel

Json = dict[str, Any]

SUPPORTED_PARAMETERS = (
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "min_p",
    "n",
    "presence_penalty",
    "repetition_penalty",
    "response_format",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_k",
    "top_logprobs",
    "top_p",
)


@dataclass(slots=True)
class Totals:
    """Usage of a request; the prompt counts once, whatever the number of choices."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    fingerprint: str | None = None

    def add(self, index: int, usage: Usage) -> None:
        self.completion_tokens += usage.completion_tokens
        self.fingerprint = usage.fingerprint or self.fingerprint
        if index == 0:
            self.prompt_tokens = usage.prompt_tokens
            self.cached_tokens = usage.cached_tokens


class Shape(Protocol):
    """One endpoint's form of answers. Log probabilities are given as a list of tokens, or none if not asked for."""

    id: str

    def opening(self, index: int) -> Json | None:
        """First choice object of a stream; none when the endpoint has no such chunk."""
        ...

    def delta(self, index: int, text: str, tokens: Sequence[Token] | None) -> Json: ...
    def finish(self, index: int, reason: str) -> Json: ...
    def whole(self, index: int, text: str, tokens: Sequence[Token] | None, reason: str) -> Json: ...
    def chunk(self, choices: list[Json]) -> Json: ...
    def response(self, choices: list[Json]) -> Json: ...


class _Base:
    prefix: str
    whole_object: str
    chunk_object: str

    def __init__(self, model: str, clock: Callable[[], float]) -> None:
        self.id = self.prefix + secrets.token_hex(16)
        self._model = model
        self._created = int(clock())

    def chunk(self, choices: list[Json]) -> Json:
        return self._head(self.chunk_object, choices)

    def response(self, choices: list[Json]) -> Json:
        return self._head(self.whole_object, choices)

    def _head(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }


class ChatShape(_Base):
    prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> Json | None:
        return _chunk_choice(index, {"role": "assistant", "content": ""}, None, None)

    def delta(self, index: int, text: str, tokens: Sequence[Token] | None) -> Json:
        return _chunk_choice(index, {"content": text}, _chat_logprobs(tokens), None)

    def finish(self, index: int, reason: str) -> Json:
        return _chunk_choice(index, {}, None, reason)

    def whole(self, index: int, text: str, tokens: Sequence[Token] | None, reason: str) -> Json:
        return {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": _chat_logprobs(tokens),
            "finish_reason": reason,
        }


class CompletionShape(_Base):
    prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, model: str, clock: Callable[[], float]) -> None:
        super().__init__(model, clock)
        self._offsets: dict[int, int] = {}

    def opening(self, index: int) -> Json | None:
        return None

    def delta(self, index: int, text: str, tokens: Sequence[Token] | None) -> Json:
        return self.whole(index, text, tokens, None)

    def finish(self, index: int, reason: str) -> Json:
        return self.whole(index, "", None, reason)

    def whole(self, index: int, text: str, tokens: Sequence[Token] | None, reason: str | None) -> Json:
        return {
            "index": index,
            "text": text,
            "logprobs": None if tokens is None else self._logprobs(index, tokens),
            "finish_reason": reason,
        }

    def _logprobs(self, index: int, tokens: Sequence[Token]) -> Json:
        offsets: list[int] = []
        at = self._offsets.get(index, 0)
        for token in tokens:
            offsets.append(at)
            at += len(token.text)
        self._offsets[index] = at
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [finite(token.logprob) for token in tokens],
            "top_logprobs": [{text: finite(value) for text, value in token.top} for token in tokens],
            "text_offset": offsets,
        }


def shape_for(job: Job, clock: Callable[[], float] = time.time) -> Shape:
    if "messages" in job.payload:
        return ChatShape(job.model, clock)
    return CompletionShape(job.model, clock)


def usage_object(totals: Totals) -> Json:
    return {
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "total_tokens": totals.prompt_tokens + totals.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": totals.cached_tokens},
    }


def model_object(model: ServedModel) -> Json:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "nexus",
        "context_length": model.context_length,
        "supported_parameters": list(SUPPORTED_PARAMETERS),
    }


def _chunk_choice(index: int, delta: Json, logprobs: Json | None, reason: str | None) -> Json:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def _chat_logprobs(tokens: Sequence[Token] | None) -> Json | None:
    if tokens is None:
        return None
    return {
        "content": [
            {
                **_spelling(token.text, token.logprob),
                "top_logprobs": [_spelling(text, value) for text, value in token.top],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def _spelling(text: str, logprob: float) -> Json:
    return {"token": text, "logprob": finite(logprob), "bytes": list(text.encode("utf-8", "replace"))}
