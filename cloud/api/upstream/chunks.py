"""The chunks that a vLLM server streams, as far as the gateway reads them, and the events they become."""

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


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What one chunk brought: new text, and the tokens it came with when the request asked for them; either may run
    ahead of the other. `end` is set when the choice ends with it. (A struct: tens of thousands are made in a second.)
    """

    text: str = ""
    tokens: tuple[Token, ...] = ()
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
    end: Finish | None = None


class Usage(msgspec.Struct, frozen=True, gc=False):
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int | None = None
    """None for a model without a reasoning parser."""


Piece = Delta | Usage
_FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_NOTHING = Delta()
_decoder = msgspec.json.Decoder(Chunk)


class EventSplitter:
    """Cuts a stream of bytes into server-sent events. At line feeds only: JSON text may hold U+2028 and U+0085."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, block: bytes) -> list[bytes]:
        """The `data:` payloads of the events that `block` completes. Raises `UpstreamFailed` for an endless one."""
        text = self._rest + block if self._rest else block
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        *events, self._rest = text.split(b"\n\n")
        if len(self._rest) > EVENT_LIMIT:
            raise UpstreamFailed("The verifier sent an answer that the gateway cannot read.")
        return [data for event in events if (data := _data(event)) is not None]


def _data(event: bytes) -> bytes | None:
    if event.startswith(b"data:") and b"\n" not in event:
        return event[5:].lstrip()
    lines = [line[5:].lstrip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def read_chunk(data: bytes, asked: errors.Asked) -> list[Piece]:
    """What one chunk says; raises what an error event in it means, and `UpstreamFailed` for an aborted answer."""
    try:
        chunk = _decoder.decode(data)
    except msgspec.DecodeError:
        raise UpstreamFailed("The verifier sent an answer that the gateway cannot read.") from None
    if chunk.error is not None:
        status = chunk.error.code if isinstance(chunk.error.code, int) else 500
        raise errors.from_status(status, chunk.error.message, chunk.error.param, asked)
    pieces: list[Piece] = []
    if (usage := chunk.usage) is not None:  # first, as it counts the chunk's own tokens
        details, more = usage.prompt_tokens_details, usage.completion_tokens_details
        cached = details.cached_tokens if details and details.cached_tokens else 0
        reasoning = more.reasoning_tokens if more else None
        pieces.append(Usage(usage.prompt_tokens, usage.completion_tokens, cached, reasoning))
    for choice in chunk.choices:
        delta = choice.delta or ChunkDelta(content=choice.text)
        piece = Delta(
            delta.content or "",
            _tokens(choice) if choice.logprobs is not None else (),
            delta.reasoning or delta.reasoning_content or "",
            tuple(map(_call, delta.tool_calls)) if delta.tool_calls else (),
            None if choice.finish_reason is None else _end(choice.finish_reason, choice.stop_reason),
        )
        if piece != _NOTHING:
            pieces.append(piece)
    return pieces


def _end(reason: str, stopped_by: int | str | None) -> Finish:
    if reason not in _FINISH_REASONS:
        raise UpstreamFailed("The verifier gave the request up before it was finished. Try again.")
    return Finish(reason, stopped_by)


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
