"""Turns a verifier's HTTP errors into ours: what the caller can act on is kept, the rest is not shown."""

import re

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
_TAIL = re.compile(r"\s*\((?:parameter|value)=.*\)\s*$", re.DOTALL)
_INTERNAL = re.compile(r"/[\w.-]+/|\\\\|Traceback|0x[0-9a-f]{6}|vllm", re.IGNORECASE)
_MESSAGE_LIMIT = 300


class _Info(msgspec.Struct):
    message: str = ""
    param: str | None = None


class _Body(msgspec.Struct):
    error: _Info | None = None
    message: str = ""


def from_response(status: int, body: bytes, *, model: str, prompt_param: str) -> NexusError:
    """The error for an answer that is not 200. `prompt_param` is the field that holds the prompt."""
    try:
        parsed = msgspec.json.decode(body, type=_Body)
        info = parsed.error or _Info(message=parsed.message)
    except msgspec.DecodeError:
        info = _Info()
    if status in (400, 413, 422):
        return _bad_request(info, prompt_param)
    if status == 404:
        return ModelNotFound(f"The model `{model}` is not served any more.", param="model")
    if status in (429, 503):
        return Unavailable("The verifier has no capacity for this request at the moment. Try again shortly.")
    return UpstreamFailed("The verifier could not work on the request. Try again.")


def _bad_request(info: _Info, prompt_param: str) -> NexusError:
    message = info.message
    if match := _OUTPUT.search(message):
        return InvalidInput(
            f"`max_tokens` is {match[1]}, but this model's context holds {match[2]} tokens in all. Ask for fewer.",
            param="max_tokens",
        )
    if limit := _LIMIT.search(message):
        return ContextLengthExceeded(
            f"This model's context holds {limit[1]} tokens, but the prompt has {_size(message)}. Shorten the prompt.",
            param=prompt_param,
        )
    line = _TAIL.sub("", message).strip().split("\n")[0]
    if not line or len(line) > _MESSAGE_LIMIT or _INTERNAL.search(line):
        line = "The model cannot work on this request as it is."
    return InvalidInput(line, param=info.param if info.param and info.param.isidentifier() else None)


def _size(message: str) -> str:
    if match := _TOKENS.search(message):
        return f"{match[1] or ''}{match[2] or match[3]} tokens"
    if match := _CHARACTERS.search(message):
        return f"{match[1]} characters, more than could fit"
    return "more"
