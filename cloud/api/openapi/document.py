"""Puts the OpenAPI 3.1 document together. `nexus gateway openapi` prints it, `/openapi.json` serves it."""

import copy
import json
from functools import cache
from importlib.metadata import version
from typing import Any

from cloud.api.openapi import errors, requests
from cloud.api.openapi.extras import EXTRAS
from cloud.api.openapi.operation import Operation, Told
from cloud.api.openapi.operations import OPERATIONS
from cloud.conformance.schemas.catalogue import SCHEMAS
from cloud.conformance.schemas.shapes import plain

Json = dict[str, Any]
JSON, EVENTS, TEXT = "application/json", "text/event-stream", "text/plain"
FORM, HTML = "application/x-www-form-urlencoded", "text/html"
DESCRIPTION = """The API of OpenAI for chat completions, completions and models: change `base_url` and the key.

Every error has one shape, `{"error": {"message", "type", "param", "code"}}`. In a request, `null` means that a field is
not there, and a field that does not exist is refused by name. What Nexus adds is in the object `nexus`.
"""
_STRING: Json = {"type": "string"}
HEADERS: dict[str, Json] = {
    "X-Request-Id": {
        "description": "Our name for the request, always there. Quote it when you report something.",
        "required": True,
        "schema": {**_STRING, "pattern": "^req_[0-9a-f]+$"},
    },
    "X-Client-Request-Id": {
        "description": "The caller's own name for the request, when it sent one of at most 128 safe characters.",
        "schema": {**_STRING, "maxLength": 128},
    },
    "OpenAI-Processing-Ms": {
        "description": "Time until the answer began, milliseconds.",
        "schema": {**_STRING, "pattern": "^[0-9]+$"},
    },
    "X-Nexus-Cost": {
        "description": "What the answer cost, dollars; of a stream it is in `nexus.cost` of the last chunk.",
        "schema": {**_STRING, "pattern": r"^[0-9]+(\.[0-9]+)?$"},
    },
    "Idempotency-Replayed": {
        "description": "There when the answer was made before, for the same `Idempotency-Key` or a lost response.",
        "schema": {**_STRING, "enum": ["true"]},
    },
    **{
        f"X-RateLimit-{part}-{unit}": {
            "description": f"{told} of {unit.lower()}, where the key has one.",
            "schema": {**_STRING, "pattern": pattern},
        }
        for unit in ("Requests", "Tokens")
        for part, told, pattern in (
            ("Limit", "The limit", "^[0-9]+$"),
            ("Remaining", "What remains of the limit", "^[0-9]+$"),
            ("Reset", "Time until the whole limit is there again, such as `6m0s`,", "^[0-9.dhms]+$"),
        )
    },
    "Retry-After": {
        "description": "Seconds until a retry can help.",
        "required": True,
        "schema": {**_STRING, "pattern": "^[0-9]+$"},
    },
}
REQUEST_HEADERS: dict[str, Json] = {
    "X-Client-Request-Id": {
        "description": "The caller's own name for the request; it comes back when it is at most 128 safe characters.",
        "schema": _STRING,
    },
    "Idempotency-Key": {
        "description": "A name for the request that makes it safe to send again: the same body gets the same answer, "
        "another one is 409.",
        "schema": {**_STRING, "pattern": "^[!-~]{1,255}$"},
    },
}


@cache
def rendered() -> bytes:
    """The document as JSON, UTF-8."""
    return json.dumps(document(), indent=1, ensure_ascii=False).encode() + b"\n"


def document() -> Json:
    """A fresh copy of the document."""
    answers = {name: plain(schema) for name, schema in {**SCHEMAS, **EXTRAS}.items()}
    models = [each.request for each in OPERATIONS if each.request is not None]
    names, bodies = requests.schemas(models, answers)
    paths: Json = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, names)
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "Nexus",
            "version": version("nexus-inference"),
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The gateway that serves this document."}],
        "security": [{"key": []}],
        "tags": [{"name": name} for name in dict.fromkeys(each.tag for each in OPERATIONS)],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key of this gateway."},
                "session": {"type": "http", "scheme": "bearer", "description": "The token of who signed in."},
            },
            "schemas": {**bodies, **answers},
            "headers": HEADERS,
            "responses": errors.responses(),
        },
    }
    return copy.deepcopy(made)


def _operation(operation: Operation, names: dict[str, str]) -> Json:
    made: Json = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
    }
    if operation.key != "needed":
        made["security"] = [] if operation.key == "free" else [{}, {"key": []}]
    elif operation.by != "key":
        made["security"] = [*([{"key": []}] if operation.by == "either" else []), {"session": []}]
    parameters = [
        {"name": name, "in": "path", "required": True, "description": told, "schema": {**_STRING, "minLength": 1}}
        for name, told in operation.path_parameters.items()
    ]
    parameters += [
        {"name": name, "in": "header", "required": False, **REQUEST_HEADERS[name]} for name in operation.headers
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "description": each.description, "schema": dict(each.schema)}
        for name, each in operation.query.items()
    ]
    if parameters:
        made["parameters"] = parameters
    if operation.request is not None:
        schema = {"$ref": f"#/components/schemas/{names[operation.request.__name__]}"}
        made["requestBody"] = {
            "required": True,
            "content": {FORM if operation.form else JSON: {"schema": schema, "examples": dict(operation.requests)}},
        }
    responses = {str(status): _answer(told) for status, told in operation.answers.items()}
    responses |= {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in sorted(operation.errors)}
    if operation.own_error is not None:
        wrong = Told(description="What the node does next.", schema=operation.own_error, examples=operation.own_errors)
        responses["400"] = _answer(wrong)
    made["responses"] = dict(sorted(responses.items()))
    return made


def _answer(told: Told) -> Json:
    content: Json = {}
    if told.text:
        content[TEXT] = {"schema": _STRING}
    if told.html:
        content[HTML] = {"schema": _STRING}
    if told.schema is not None:
        content[JSON] = {"schema": {"$ref": f"#/components/schemas/{told.schema}"}}
        if told.examples:
            content[JSON]["examples"] = dict(told.examples)
    if told.chunk is not None:
        content[EVENTS] = {
            "schema": _event(told.chunk),
            "examples": {"stream": {"value": events(told.chunks)}},
        }
    headers = ("X-Request-Id", *told.headers)
    return {
        "description": told.description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": content,
    }


def _event(chunk: str) -> Json:
    """One server-sent event; in OpenAPI 3.1 the schema of a stream is that of each event."""
    payloads = [{"$ref": f"#/components/schemas/{name}"} for name in (chunk, "Error")]
    content = {**_STRING, "contentMediaType": JSON, "contentSchema": {"anyOf": payloads}}
    return {
        "type": "object",
        "description": f"Server-sent events; the data of each is a `{chunk}`, an `Error`, or `[DONE]`.",
        "properties": {"data": {"anyOf": [{"type": "string", "const": "[DONE]"}, content]}},
        "required": ["data"],
    }


def events(chunks: tuple[Json, ...]) -> str:
    """Chunks as a stream has them."""
    lines = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
