"""Examples of requests and answers. A test sends every request and holds every answer against its schema."""

from typing import Any

Json = dict[str, Any]
MODEL = "qwen2.5-coder-1.5b"
_QUESTION: list[Json] = [{"role": "user", "content": "Say hello."}]
_USAGE: Json = {
    "prompt_tokens": 12,
    "completion_tokens": 3,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 0},
}
_FIGURES: Json = {
    "drafted": 4,
    "accepted": 2,
    "verify_steps": 1,
    "tokens_per_step": 3.0,
    "seed": 7,
    "nodes": "any",
    "cost": "0.0000105",
}
_WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
_HEAD: Json = {"id": "chatcmpl-1f4c", "created": 1764547200, "model": MODEL}


def _chat(**more: Any) -> Json:
    return {"model": MODEL, "messages": _QUESTION, **more}


CHAT_REQUESTS: dict[str, Json] = {
    "plain": {"summary": "A question", "value": _chat()},
    "streamed": {
        "summary": "Streamed, with usage at the end",
        "value": _chat(stream=True, stream_options={"include_usage": True}),
    },
    "sampled": {
        "summary": "Sampled, and repeatable",
        "value": _chat(temperature=0.7, top_p=0.9, seed=7, n=2, stop=["\n\n"], max_completion_tokens=200),
    },
    "tools": {
        "summary": "With a tool",
        "value": {
            "model": MODEL,
            "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
            "tools": [_WEATHER],
            "tool_choice": "auto",
        },
    },
    "result": {
        "summary": "A tool's result goes back",
        "value": {
            "model": MODEL,
            "messages": [
                {"role": "user", "content": "What is the weather in Paris?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "Sunny, 20 degrees."},
            ],
            "tools": [_WEATHER],
        },
    },
    "schema": {
        "summary": "JSON by a schema",
        "value": _chat(
            response_format={
                "type": "json_schema",
                "json_schema": {
                    "name": "place",
                    "schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
                },
            }
        ),
    },
    "logprobs": {"summary": "With log probabilities", "value": _chat(logprobs=True, top_logprobs=2, max_tokens=8)},
    "nexus": {
        "summary": "No draft node sees the prompt; the origin of every token is told",
        "value": _chat(nexus={"privacy": "verifier_only", "trace": True}),
    },
}

COMPLETION_REQUESTS: dict[str, Json] = {
    "plain": {"summary": "Text that goes on", "value": {"model": MODEL, "prompt": "def add(a, b):", "max_tokens": 32}},
    "streamed": {"summary": "Streamed", "value": {"model": MODEL, "prompt": "Once upon", "stream": True, "stop": "."}},
    "tokens": {"summary": "A prompt of token ids", "value": {"model": MODEL, "prompt": [1, 2, 3], "logprobs": 2}},
}


def _choice(message: Json, reason: str = "stop", logprobs: Json | None = None) -> Json:
    return {
        "index": 0,
        "message": {"role": "assistant", "refusal": None, **message},
        "logprobs": logprobs,
        "finish_reason": reason,
    }


def _completion(choice: Json, **more: Any) -> Json:
    return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE, "nexus": {**_FIGURES, **more}}


_TRACE = [
    {"id": 9707, "text": "Hello", "origin": "accepted"},
    {"id": 0, "text": "!", "origin": "accepted"},
    {"id": 151645, "text": "", "origin": "bonus"},
]
_ENTRY: Json = {"token": "Hello", "logprob": -0.02, "bytes": [72, 101, 108, 108, 111]}
_CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}},
]

CHAT_ANSWERS: dict[str, Json] = {
    "plain": {"summary": "An answer", "value": _completion(_choice({"content": "Hello!"}))},
    "tools": {
        "summary": "A call of a tool",
        "value": _completion(_choice({"content": None, "tool_calls": _CALLS}, "tool_calls")),
    },
    "logprobs": {
        "summary": "With log probabilities",
        "value": _completion(
            _choice(
                {"content": "Hello"},
                "length",
                {"content": [{**_ENTRY, "top_logprobs": [_ENTRY, {**_ENTRY, "token": "Hi"}]}], "refusal": None},
            )
        ),
    },
    "trace": {
        "summary": "With the origin of every token",
        "value": _completion(_choice({"content": "Hello!"}), trace=_TRACE),
    },
}


def _chunk(choices: list[Json], **more: Any) -> Json:
    return {**_HEAD, "object": "chat.completion.chunk", "choices": choices, **more}


def _delta(delta: Json, reason: str | None = None) -> list[Json]:
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]


CHAT_CHUNKS: list[Json] = [
    _chunk(_delta({"role": "assistant", "content": ""}), usage=None),
    _chunk(_delta({"content": "Hello"}), usage=None),
    _chunk(_delta({"content": "!"}), usage=None),
    _chunk(_delta({}, "stop"), usage=None),
    _chunk([], usage=_USAGE, nexus=_FIGURES),
]


def _text(text: str, reason: str | None, **more: Any) -> Json:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    return {**_HEAD, "id": "cmpl-1f4c", "object": "text_completion", "choices": [choice], **more}


COMPLETION_ANSWERS: dict[str, Json] = {
    "plain": {"summary": "An answer", "value": _text("\n    return a + b", "stop", usage=_USAGE, nexus=_FIGURES)},
}
COMPLETION_CHUNKS: list[Json] = [_text(" a time", None), _text("", "stop", nexus=_FIGURES)]

_MODEL: Json = {
    "id": MODEL,
    "object": "model",
    "created": 1764547200,
    "owned_by": "nexus",
    "context_length": 32768,
    "max_output_length": 32768,
    "pricing": {"prompt": "0.0000005", "completion": "0.0000015", "input_cache_read": "0.00000025"},
    "supported_parameters": ["max_tokens", "seed", "stop", "temperature", "top_p"],
}
MODEL_ANSWERS: dict[str, Json] = {"model": {"value": _MODEL}}
MODEL_LISTS: dict[str, Json] = {"list": {"value": {"object": "list", "data": [_MODEL]}}}

HEALTH: dict[str, Json] = {
    "ok": {
        "summary": "Everything is attached",
        "value": {
            "status": "ok",
            "verifiers": {"configured": 1, "reachable": 1},
            "draft_ports": {"configured": 1, "attached": 1},
            "nodes": 3,
        },
    }
}
UNHEALTHY: dict[str, Json] = {
    "unavailable": {
        "summary": "No verifier can be reached",
        "value": {
            "status": "unavailable",
            "verifiers": {"configured": 1, "reachable": 0},
            "draft_ports": {"configured": 1, "attached": 0},
            "nodes": 3,
        },
    }
}

_KEY: Json = {
    "id": "key_3f2a",
    "object": "api_key",
    "name": "my laptop",
    "start": "nx-4kq",
    "state": "active",
    "in_settings": False,
    "scopes": ["inference", "models"],
    "created_at": 1764547200,
    "expires_at": None,
    "revoked_at": None,
    "requests_per_minute": 60,
    "tokens_per_minute": None,
    "concurrent_streams": 4,
    "monthly_budget": "12.50",
    "spent_this_month": "0.25",
    "privacy": None,
    "account": None,
}
KEY_REQUESTS: dict[str, Json] = {
    "limited": {
        "summary": "A key with limits",
        "value": {
            "name": "my laptop",
            "requests_per_minute": 60,
            "concurrent_streams": 4,
            "monthly_budget": "12.50",
        },
    }
}
KEY_ANSWERS: dict[str, Json] = {"key": {"value": _KEY}}
NEW_KEY_ANSWERS: dict[str, Json] = {"key": {"value": {**_KEY, "key": "nx-4kq9…"}}}
KEY_LISTS: dict[str, Json] = {"list": {"value": {"object": "list", "data": [_KEY]}}}
