"""The chunks that a vLLM server streams, as far as the gateway reads them, and the events they become."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import msgspec

from cloud.api.upstream import errors
from shared.errors import UpstreamFailed

EVENT_LIMIT = 4 << 20
"""Largest server-sent event accepted from a verifier, bytes."""


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob] = []


class ChunkLogprobs(msgspec.Struct):
    """Chat sends `content`, completions the four parallel lists."""

    content: list[TokenLogprob] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class ChunkFunction(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class ChunkCall(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: ChunkFunction | None = None


class ChunkDelta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChunkCall] | None = None


class ChunkChoice(msgspec.Struct):
    delta: ChunkDelta | None = None
    text: str | None = None
    logprobs: ChunkLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class ChunkUsage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class ChunkError(msgspec.Struct):
    message: str = ""
    param: str | None = None
    code: int | str | None = None


class Chunk(msgspec.Struct):
    choices: list[ChunkChoice] = []
    usage: ChunkUsage | None = None
    error: ChunkError | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """One output token. `text` is empty while the character that it belongs to is unfinished."""

    id: int | None
    text: str
    logprob: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A part of a tool call, as the engine's parser gives it: `index` tells calls apart, the rest may be missing."""

    index: int
    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the engine ended the choice; `stopped_by` is the stop string or stop token, none for the model's own end."""

    reason: str
    stopped_by: int | str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """What one chunk brought: new text, and the tokens it came with when the request asked for them; either may run
    ahead of the other. `end` is set when the choice ends with it."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
    end: Finish | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int | None = None
    """None for a model without a reasoning parser."""


Piece = Delta | Usage
_FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_NOTHING = Delta()
_decoder = msgspec.json.Decoder(Chunk)


async def server_sent_events(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The `data:` payload of each event. Splits at line feeds only: JSON text may hold U+2028 and U+0085."""
    buffer = b""
    async for block in source:
        buffer += block
        *events, buffer = buffer.replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            lines = [line[5:].lstrip() for line in event.split(b"\n") if line.startswith(b"data:")]
            if lines:
                yield b"\n".join(lines)
        if len(buffer) > EVENT_LIMIT:
            raise UpstreamFailed("The verifier sent an answer that the gateway cannot read.")


def read_chunk(data: bytes, asked: errors.Asked) -> Iterator[Piece]:
    """What one chunk says; raises what an error event in it means, and `UpstreamFailed` for an aborted answer."""
    try:
        chunk = _decoder.decode(data)
    except msgspec.DecodeError:
        raise UpstreamFailed("The verifier sent an answer that the gateway cannot read.") from None
    if chunk.error is not None:
        status = chunk.error.code if isinstance(chunk.error.code, int) else 500
        raise errors.from_status(status, chunk.error.message, chunk.error.param, asked)
    for choice in chunk.choices:
        delta = choice.delta or ChunkDelta(content=choice.text)
        piece = Delta(
            text=delta.content or "",
            tokens=_tokens(choice),
            reasoning=delta.reasoning or delta.reasoning_content or "",
            calls=tuple(map(_call, delta.tool_calls or ())),
            end=_end(choice),
        )
        if piece != _NOTHING:
            yield piece
    if (usage := chunk.usage) is not None:
        details, more = usage.prompt_tokens_details, usage.completion_tokens_details
        cached = details.cached_tokens if details and details.cached_tokens else 0
        yield Usage(usage.prompt_tokens, usage.completion_tokens, cached, more.reasoning_tokens if more else None)


def _end(choice: ChunkChoice) -> Finish | None:
    if choice.finish_reason is None:
        return None
    if choice.finish_reason not in _FINISH_REASONS:
        raise UpstreamFailed("The verifier gave the request up before it was finished. Try again.")
    return Finish(choice.finish_reason, choice.stop_reason)


def _call(call: ChunkCall) -> CallDelta:
    function = call.function or ChunkFunction()
    return CallDelta(call.index, call.id, function.name, function.arguments or "")


def _tokens(choice: ChunkChoice) -> tuple[Token, ...]:
    ids: list[int | None] = list(choice.token_ids or ())
    logprobs = choice.logprobs
    if logprobs is None:
        return ()
    if logprobs.content is not None:
        ids += [None] * (len(logprobs.content) - len(ids))
        return tuple(
            Token(id_, entry.token, entry.logprob, tuple((t.token, t.logprob) for t in entry.top_logprobs))
            for id_, entry in zip(ids, logprobs.content, strict=False)
        )
    texts = logprobs.tokens or []
    values = logprobs.token_logprobs or [None] * len(texts)
    tops = logprobs.top_logprobs or [None] * len(texts)
    ids += [None] * (len(texts) - len(ids))
    return tuple(
        Token(id_, text, -9999.0 if value is None else value, tuple((top or {}).items()))
        for id_, text, value, top in zip(ids, texts, values, tops, strict=False)
    )
