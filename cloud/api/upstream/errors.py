"""Turns a verifier's HTTP errors into ours: what the caller can act on is kept, the rest is not shown."""

import re
from dataclasses import dataclass

import msgspec

from shared.errors import (
    ContextLengthExceeded,
    InvalidInput,
    ModelNotFound,
    NexusError,
    Unavailable,
    UpstreamFailed,
)

_LIMIT = re.compile(r"context length(?: is|\s*\()\s*(\d+)")
_TOKENS = re.compile(r"contains (at least )?(\d+) input tokens|Input length \((\d+)\)")
_CHARACTERS = re.compile(r"contains (\d+) characters")
_OUTPUT = re.compile(r"max_(?:completion_)?tokens=(\d+) cannot be greater than max_model_len=(\d+)")
_NO_ROOM = "max_tokens must be at least 1, got 0"
"""We never send less than 1: it is what remains behind a prompt as long as the context."""
_GRAMMAR = re.compile(r"grammar|json schema|structured output", re.IGNORECASE)
_GRAMMAR_HEAD = re.compile(r"^.*?grammar error:\s*", re.IGNORECASE | re.DOTALL)
_NOT_WITH_DRAFTS = re.compile(r"not yet supported with speculative decoding")
"""Of parameters that the plugin takes: we send them to the engine itself only while we do not know of the plugin."""
_LOGPROBS = re.compile(r"logprobs of (\d+), which is greater than max allowed: (\d+)")
_NO_TOOLS = re.compile(r"--tool-call-parser|--enable-auto-tool-choice")
_BACKENDS = re.compile(r"xgrammar|guidance|outlines", re.IGNORECASE)
_TAIL = re.compile(r"\s*\((?:parameter|value)=.*\)\s*$", re.DOTALL)
_INTERNAL = re.compile(r"/[\w.-]+/|\\\\|Traceback|0x[0-9a-f]{6}|vllm", re.IGNORECASE)
_MESSAGE_LIMIT = 300
NO_TOOLS = "`tools` is not possible with this model: it is served without tool calls."


class _Info(msgspec.Struct):
    message: str = ""
    param: str | None = None


class _Body(msgspec.Struct):
    error: _Info | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for: `prompt_param` is the field that holds the prompt, `context` the model's length if known,
    `schema_param` the field with the schema that a grammar has to follow."""

    model: str
    prompt_param: str
    context: int | None
    schema_param: str = "response_format"

    @property
    def top_param(self) -> str:
        return "top_logprobs" if self.prompt_param == "messages" else "logprobs"


def from_response(status: int, body: bytes, asked: Asked) -> NexusError:
    """The error for an answer whose status is not 200."""
    try:
        parsed = msgspec.json.decode(body, type=_Body)
        info = parsed.error or _Info(message=parsed.message)
    except msgspec.DecodeError:
        info = _Info()
    return from_status(status, info.message, info.param, asked)


def from_status(status: int, message: str, param: str | None, asked: Asked) -> NexusError:
    """The same for an error event in the stream, whose `code` is a status: some refusals come only there."""
    if status in (400, 413, 422):
        return _bad_request(message, param, asked)
    if status == 404:
        return ModelNotFound(f"The model `{asked.model}` is not served any more.", param="model")
    if status in (429, 503):
        return Unavailable("The verifier has no capacity for this request at the moment. Try again shortly.")
    return UpstreamFailed("The verifier failed while it worked on the request. Try again.")


def _bad_request(message: str, param: str | None, asked: Asked) -> NexusError:
    if match := _OUTPUT.search(message):
        return InvalidInput(
            f"`max_tokens` is {match[1]}, but this model's context holds {match[2]} tokens in all. Ask for fewer.",
            param="max_tokens",
        )
    if limit := _LIMIT.search(message):
        return ContextLengthExceeded(
            f"This model's context holds {limit[1]} tokens, but the prompt has {_size(message)}. Shorten the prompt.",
            param=asked.prompt_param,
        )
    if _NO_ROOM in message:
        return ContextLengthExceeded(
            f"The prompt fills this model's context of {asked.context or 'so many'} tokens, which leaves no room for "
            "an answer. Shorten the prompt.",
            param=asked.prompt_param,
        )
    if _NOT_WITH_DRAFTS.search(message):
        return Unavailable(
            "The verifier's draft port is not attached yet, without which a parameter is missing. Retry."
        )
    if match := _LOGPROBS.search(message):
        return InvalidInput(
            f"The verifier lists at most {match[2]} alternatives for each token: ask for fewer.", param=asked.top_param
        )
    if _NO_TOOLS.search(message):
        return InvalidInput(NO_TOOLS, param="tools")
    if _GRAMMAR.search(message):
        return _no_grammar(message, asked.schema_param)
    line = _first_line(message)
    if not line or len(line) > _MESSAGE_LIMIT or _INTERNAL.search(line):
        line = "The model cannot work on this request as it is."
    return InvalidInput(line, param=param if param and param.isidentifier() else None)


def _no_grammar(message: str, param: str) -> InvalidInput:
    line = _first_line(_GRAMMAR_HEAD.sub("", message)).rstrip(".")
    if not line or len(line) > _MESSAGE_LIMIT or _INTERNAL.search(line) or _BACKENDS.search(line):
        line = "the schema is wrong, or uses something that the grammar engine does not support"
    return InvalidInput(f"`{param}` cannot be followed: {line}.", param=param)


def _first_line(message: str) -> str:
    return _TAIL.sub("", message).strip().split("\n")[0]


def _size(message: str) -> str:
    if match := _TOKENS.search(message):
        return f"{match[1] or ''}{match[2] or match[3]} tokens"
    if match := _CHARACTERS.search(message):
        return f"{match[1]} characters, more than could fit"
    return "more"
