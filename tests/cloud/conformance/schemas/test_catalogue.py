"""The published schemas: what they let through, what they stop, and how much looser the looser reading is."""

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from cloud.conformance.schemas.catalogue import SCHEMAS
from cloud.conformance.schemas.judge import problems
from cloud.conformance.schemas.shapes import plain

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}}
ENTRY = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
HEAD = {"id": "x-1", "created": 1700000000, "model": "tiny"}
GOOD: dict[str, Any] = {
    "ChatCompletion": HEAD
    | {
        "object": "chat.completion",
        "usage": USAGE,
        "nexus": {"drafted": 1, "tokens_per_step": None, "nodes": "none"},
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi", "refusal": None},
                "logprobs": {"content": [ENTRY], "refusal": None},
                "finish_reason": "stop",
            }
        ],
    },
    "ChatCompletionChunk": HEAD
    | {
        "object": "chat.completion.chunk",
        "usage": None,
        "choices": [{"index": 0, "delta": {"content": "Hi"}, "logprobs": None, "finish_reason": None}],
    },
    "Completion": HEAD
    | {
        "object": "text_completion",
        "usage": USAGE,
        "choices": [{"index": 0, "text": "Hi", "logprobs": None, "finish_reason": "length"}],
    },
    "Model": {"id": "tiny", "object": "model", "created": 1, "owned_by": "nexus", "context_length": 2048},
    "ModelList": {"object": "list", "data": []},
    "Error": {"error": {"message": "no", "type": "invalid_request_error", "param": None, "code": "x"}},
}


def changed(name: str, path: str, value: Any) -> Any:
    """A good value with the place `path` set to `value`, or removed when it is `...`."""
    made = copy.deepcopy(GOOD[name])
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = made
    for part in way:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return made


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_is_a_schema(name: str) -> None:
    """By the meta-schema of JSON Schema 2020-12, with our annotations and without."""
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert "x-" not in str(plain(SCHEMAS[name])).replace("x-1", "")


@pytest.mark.parametrize("name", GOOD)
def test_good_values_pass(name: str) -> None:
    """At both levels."""
    assert problems(name, GOOD[name]) == problems(name, GOOD[name], "compatible") == []


def test_the_official_client_agrees_about_what_is_good() -> None:
    """Its types read the same values."""
    ChatCompletion.model_validate(GOOD["ChatCompletion"], strict=True)
    ChatCompletionChunk.model_validate(GOOD["ChatCompletionChunk"], strict=True)
    Completion.model_validate(GOOD["Completion"], strict=True)
    Model.model_validate(GOOD["Model"], strict=True)


CHAT, CHUNK = "ChatCompletion", "ChatCompletionChunk"


@pytest.mark.parametrize(
    ("name", "path", "value", "compatible"),
    [
        (CHAT, "extra", 1, True),
        (CHAT, "choices.0.message.tool_calls", None, True),
        (CHAT, "choices.0.message.tool_calls", [], False),
        (CHAT, "choices.0.message.refusal", ..., True),
        (CHAT, "choices.0.logprobs", ..., True),
        (CHAT, "choices.0.logprobs.content.0.logprob", 0.5, True),
        (CHAT, "choices.0.logprobs.content.0.token", 7, False),
        (CHAT, "choices.0.logprobs.content.0.bytes", [256], False),
        (CHAT, "choices.0.finish_reason", "abort", False),
        (CHAT, "choices.0.finish_reason", None, False),
        (CHAT, "choices.0.message.role", ..., False),
        (CHAT, "choices.0.message.content", ..., False),
        (CHAT, "choices", [], False),
        (CHAT, "object", "chat.completion.chunk", False),
        (CHAT, "created", 1700000000.5, False),
        (CHAT, "id", "", False),
        (CHAT, "usage", None, True),
        (CHAT, "usage.prompt_tokens", -1, False),
        (CHAT, "usage.prompt_tokens_details.cached_tokens", None, True),
        (CHAT, "nexus.nodes", "all", False),
        (CHUNK, "choices.0.finish_reason", ..., True),
        (CHUNK, "choices.0.delta", ..., False),
        (CHUNK, "choices.0.delta.tool_calls", [{"index": 0, "id": None}], True),
        (CHUNK, "choices.0.index", ..., False),
        ("Completion", "choices.0.text", None, False),
        ("Completion", "choices.0.finish_reason", "tool_calls", False),
        ("Completion", "choices.0.stop_reason", None, True),
        ("Model", "owned_by", ..., False),
        ("Model", "permission", [], True),
        ("Model", "pricing", {"prompt": 0.1}, False),
        ("ModelList", "object", "models", False),
        ("Error", "error.code", 400, True),
        ("Error", "error.param", ..., True),
        ("Error", "error.message", ..., False),
        ("Error", "object", "error", True),
        ("Error", "error", "no", True),
        ("Error", "error", "", False),
        ("Error", "error", None, False),
    ],
)
def test_wrong_values_are_stopped(name: str, path: str, value: Any, compatible: bool) -> None:
    """Always strictly; in the looser reading only what a client would stumble over. The place is told."""
    wrong = changed(name, path, value)
    found = problems(name, wrong)
    assert found and all(each.startswith("$") for each in found)
    assert (not problems(name, wrong, "compatible")) is compatible


def test_the_place_of_a_problem_is_the_deepest() -> None:
    """Within a choice of forms it is the one that was meant."""
    [line] = problems(CHAT, changed(CHAT, "choices.0.logprobs.content.0.bytes", ["a"]))
    assert line.startswith("$.choices[0].logprobs.content[0].bytes[0]")
