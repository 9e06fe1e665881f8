"""Builds answers and chunks. Chat and completions differ only in the shape of a choice."""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cloud.api.openai.calls import Call, ToldCall
from cloud.api.openai.choice import Part, Whole
from cloud.api.openai.common import finite
from cloud.api.openai.job import Job
from cloud.api.upstream.chunks import Token

Json = dict[str, Any]


class Shape(Protocol):
    """One endpoint's form of answers."""

    id: str

    def opening(self, index: int, part: Part) -> Json | None:
        """First choice object of a stream, which `part` follows; none when the endpoint has no such chunk."""
        ...

    def delta(self, index: int, part: Part, *, logprobs: bool) -> Json: ...
    def finish(self, index: int, reason: str) -> Json: ...
    def whole(self, index: int, whole: Whole, *, logprobs: bool) -> Json: ...
    def chunk(self, choices: list[Json]) -> Json: ...
    def response(self, choices: list[Json]) -> Json: ...


class _Base:
    prefix: str
    whole_object: str
    chunk_object: str

    def __init__(self, model: str, fingerprint: str | None, clock: Callable[[], float]) -> None:
        self.id = self.prefix + secrets.token_hex(16)
        self._head: Json = {"id": self.id, "created": int(clock()), "model": model}
        if fingerprint is not None:
            self._head["system_fingerprint"] = fingerprint

    def chunk(self, choices: list[Json]) -> Json:
        return {**self._head, "object": self.chunk_object, "choices": choices}

    def response(self, choices: list[Json]) -> Json:
        return {**self._head, "object": self.whole_object, "choices": choices}


class ChatShape(_Base):
    prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int, part: Part) -> Json | None:
        """Content is null until there is some, when something else comes first."""
        content = None if part.calls or part.reasoning else ""
        return _chunk_choice(index, {"role": "assistant", "content": content}, None, None)

    def delta(self, index: int, part: Part, *, logprobs: bool) -> Json:
        delta: Json = {}
        if part.text:
            delta["content"] = part.text
        if part.reasoning:
            delta["reasoning_content"] = part.reasoning
        if part.calls:
            delta["tool_calls"] = [_told_call(call) for call in part.calls]
        return _chunk_choice(index, delta, _chat_logprobs(part.tokens) if logprobs else None, None)

    def finish(self, index: int, reason: str) -> Json:
        return _chunk_choice(index, {}, None, reason)

    def whole(self, index: int, whole: Whole, *, logprobs: bool) -> Json:
        message: Json = {"role": "assistant", "content": whole.text, "refusal": None}
        if whole.reasoning:
            message["reasoning_content"] = whole.reasoning
        if whole.calls:
            message["tool_calls"] = [_call(call) for call in whole.calls]
        return {
            "index": index,
            "message": message,
            "logprobs": _chat_logprobs(whole.tokens) if logprobs else None,
            "finish_reason": whole.reason,
        }


class CompletionShape(_Base):
    prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, model: str, fingerprint: str | None, clock: Callable[[], float]) -> None:
        super().__init__(model, fingerprint, clock)
        self._offsets: dict[int, int] = {}

    def opening(self, index: int, part: Part) -> Json | None:
        return None

    def delta(self, index: int, part: Part, *, logprobs: bool) -> Json:
        return self._choice(index, part.text, part.tokens if logprobs else None, None)

    def finish(self, index: int, reason: str) -> Json:
        return self._choice(index, "", None, reason)

    def whole(self, index: int, whole: Whole, *, logprobs: bool) -> Json:
        return self._choice(index, whole.text or "", whole.tokens if logprobs else None, whole.reason)

    def _choice(self, index: int, text: str, tokens: Sequence[Token] | None, reason: str | None) -> Json:
        logprobs = None if tokens is None else self._logprobs(index, tokens)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

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


def shape_for(job: Job, fingerprint: str | None, clock: Callable[[], float] = time.time) -> Shape:
    """`fingerprint`: the answer's `system_fingerprint`, if it is known."""
    if "messages" in job.payload:
        return ChatShape(job.model, fingerprint, clock)
    return CompletionShape(job.model, fingerprint, clock)


def _chunk_choice(index: int, delta: Json, logprobs: Json | None, reason: str | None) -> Json:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def _call(call: Call) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text()}}


def _told_call(call: ToldCall) -> Json:
    if call.opening is None:
        return {"index": call.place, "function": {"arguments": call.arguments}}
    id_, name = call.opening
    function = {"name": name, "arguments": call.arguments}
    return {"index": call.place, "id": id_, "type": "function", "function": function}


def _chat_logprobs(tokens: Sequence[Token]) -> Json:
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
