"""Every error status, from the hierarchy of errors itself: which codes it has, and what an answer looks like."""

from collections.abc import Iterator
from typing import Any

from shared.errors import NexusError, ProtocolError

Json = dict[str, Any]
_WORDS = {
    400: "The request is wrong; `param` names the field.",
    401: "No API key or session, or one that is not known or over.",
    402: "The key's budget is spent.",
    403: "The key, or the account, may not do this.",
    404: "No such address, model or object.",
    405: "The address does not take this method.",
    409: "The request is at odds with another one.",
    413: "The body is too large; decided before it is read.",
    422: "The request cannot be processed.",
    429: "The key is over one of its limits; `Retry-After` says when to come back.",
    500: "Something failed inside the gateway.",
    502: "The verifier failed while it worked on the request.",
    503: "No capacity, or no verifier can be reached; `Retry-After` says when to come back.",
    504: "The deadline passed before the answer was there.",
}
_MESSAGES = {
    "invalid_request": "Invalid value for `temperature`: input should be less than or equal to 2.",
    "context_length_exceeded": "This model's context holds 2048 tokens, but the prompt has 3000.",
    "invalid_api_key": "No API key given: send it as `Authorization: Bearer <key>`.",
    "model_not_found": "The model `huge` is not served here. Served: `tiny`.",
    "not_found": "There is nothing at this address; the API is under /v1.",
    "payload_too_large": "The request body is larger than the 2097152 bytes that are accepted.",
    "internal_error": "Something failed inside the gateway. Quote request req_1 when you report it.",
}
_PARAMS = {"invalid_request": "temperature", "context_length_exceeded": "messages", "model_not_found": "model"}


def kinds() -> dict[int, list[type[NexusError]]]:
    """The errors that HTTP callers can get, by status: not the node protocol's, and of our own faults only one."""
    found: dict[int, list[type[NexusError]]] = {500: [NexusError]}
    for kind in _below(NexusError):
        if kind.http_status != 500 and not issubclass(kind, ProtocolError) and "code" in vars(kind):
            found.setdefault(kind.http_status, []).append(kind)
    return dict(sorted(found.items()))


def _below(kind: type[NexusError]) -> Iterator[type[NexusError]]:
    for each in kind.__subclasses__():
        if each.__module__ == NexusError.__module__:
            yield each
            yield from _below(each)


def responses() -> dict[str, Json]:
    """A response object for each status, to be referred to by `Error<status>`."""
    return {f"Error{status}": _response(status, found) for status, found in kinds().items()}


def _response(status: int, found: list[type[NexusError]]) -> Json:
    codes = ", ".join(f"`{each.code}`" for each in found)
    headers = ["X-Request-Id", *(["Retry-After"] if status in (429, 503) else [])]
    return {
        "description": f"{_WORDS.get(status, 'An error.')} `code`: {codes}.",
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Error"},
                "examples": {each.code: {"value": _example(each)} for each in found},
            }
        },
    }


def _example(kind: type[NexusError]) -> Json:
    message = _MESSAGES.get(kind.code) or " ".join((kind.__doc__ or "").split())
    return {
        "error": {"message": message, "type": kind.type, "param": _PARAMS.get(kind.code), "code": kind.code},
    }
