"""Answers and chunks of `/v1/chat/completions` and `/v1/completions`.

Facts: the API reference of OpenAI (objects "chat completion", "chat completion chunk" and "completion"), and for
`finish_reason` of a streamed text completion, which the reference leaves out, what its servers send: null to the end.
"""

from cloud.conformance.schemas.shapes import (
    BYTES,
    COUNT,
    LOOSE,
    NUMBER,
    SPARED,
    STRING,
    Schema,
    array,
    choice,
    const,
    nullable,
    record,
    ref,
)

_ID: Schema = {"type": "string", "minLength": 1}
_CREATED: Schema = {"type": "integer", "minimum": 1, "description": "Unix time, seconds."}
_CHAT_ENDS = choice("stop", "length", "tool_calls", "content_filter", "function_call")
_TEXT_ENDS = choice("stop", "length", "content_filter")
_FINITE: Schema = {"type": "number", "maximum": 0, LOOSE: NUMBER}
_ONLY_CHAT: dict[str, Schema] = {
    "service_tier": nullable(choice("auto", "default", "flex", "scale", "priority", "fast")),
    "moderation": nullable({"type": "object"}),
}
_NEXUS: dict[str, Schema] = {"nexus": ref("NexusFigures")}


def _head(kind: str, choices: Schema, more: dict[str, Schema], *, streamed: bool = False) -> Schema:
    usage = nullable(ref("Usage")) if streamed else ref("Usage")
    return record(
        {"id": _ID, "object": const(kind), "created": _CREATED, "model": STRING, "choices": choices},
        {"system_fingerprint": STRING, "usage": usage, **more},
        extensions=_NEXUS,
    )


SPELLING = record({"token": STRING, "logprob": _FINITE, "bytes": nullable(BYTES)}, spared=["bytes"])
TOKEN_LOGPROB = record(
    {**SPELLING["properties"], "top_logprobs": array(ref("Spelling"), maxItems=20)}, spared=["bytes", "top_logprobs"]
)
CHAT_LOGPROBS = record(
    {"content": nullable(array(ref("TokenLogprob"))), "refusal": nullable(array(ref("TokenLogprob")))},
    spared=["refusal"],
)

USAGE = record(
    {"prompt_tokens": COUNT, "completion_tokens": COUNT, "total_tokens": COUNT},
    {
        "prompt_tokens_details": record(
            {},
            {
                "cached_tokens": COUNT,
                "cache_write_tokens": COUNT,
                "audio_tokens": COUNT,
                "image_tokens": COUNT,
                "text_tokens": COUNT,
            },
        ),
        "completion_tokens_details": record(
            {},
            {
                "reasoning_tokens": COUNT,
                "audio_tokens": COUNT,
                "text_tokens": COUNT,
                "accepted_prediction_tokens": COUNT,
                "rejected_prediction_tokens": COUNT,
            },
        ),
    },
)

TOOL_CALL = record(
    {
        "id": _ID,
        "type": const("function"),
        "function": record({"name": _ID, "arguments": STRING}),
    }
)
TOOL_CALL_DELTA = record(
    {"index": COUNT},
    {"id": _ID, "type": const("function"), "function": record({}, {"name": _ID, "arguments": STRING})},
)

_REASONING: dict[str, Schema] = {"reasoning_content": STRING, "reasoning": STRING}
"""What a model thought before it answered, where it says so: no field of OpenAI's, but a common one."""

MESSAGE = record(
    {"role": const("assistant"), "content": nullable(STRING), "refusal": nullable(STRING)},
    {"tool_calls": array(ref("ToolCall"), minItems=1), "annotations": array({"type": "object"})},
    spared=["refusal"],
    extensions=_REASONING,
)
DELTA = record(
    {},
    {
        "role": const("assistant"),
        "content": nullable(STRING),
        "refusal": nullable(STRING),
        "tool_calls": array(ref("ToolCallDelta"), minItems=1),
    },
    extensions=_REASONING,
)

CHAT_CHOICE = record(
    {
        "index": COUNT,
        "message": ref("Message"),
        "logprobs": nullable(ref("ChatLogprobs")),
        "finish_reason": _CHAT_ENDS,
    },
    spared=["logprobs"],
)
CHUNK_CHOICE = record(
    {"index": COUNT, "delta": ref("Delta"), "finish_reason": nullable(_CHAT_ENDS)},
    {"logprobs": nullable(ref("ChatLogprobs"))},
    spared=["finish_reason"],
)
CHAT_COMPLETION = _head(
    "chat.completion",
    array(ref("ChatChoice"), minItems=1),
    _ONLY_CHAT | {"metadata": nullable({"type": "object", "additionalProperties": STRING})},
)
CHAT_CHUNK = _head(
    "chat.completion.chunk", array(ref("ChunkChoice")), _ONLY_CHAT | {"obfuscation": STRING}, streamed=True
)

COMPLETION_LOGPROBS = record(
    {},
    {
        "tokens": array(STRING),
        "token_logprobs": array(nullable(_FINITE)),
        "top_logprobs": array(nullable({"type": "object", "additionalProperties": _FINITE})),
        "text_offset": array(COUNT),
    },
)


def _text_choice(ends: Schema) -> Schema:
    required = {
        "index": COUNT,
        "text": STRING,
        "logprobs": nullable(ref("CompletionLogprobs")),
        "finish_reason": ends,
    }
    return record(required, spared=["logprobs"])


COMPLETION_CHOICE = _text_choice(_TEXT_ENDS)
COMPLETION_CHUNK_CHOICE = _text_choice(nullable(_TEXT_ENDS)) | {SPARED: ["logprobs", "finish_reason"]}
COMPLETION = _head("text_completion", array(ref("CompletionChoice"), minItems=1), {})
COMPLETION_CHUNK = _head("text_completion", array(ref("CompletionChunkChoice")), {}, streamed=True)
