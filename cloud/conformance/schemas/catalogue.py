"""Every schema by name. Data only: checking values against it is `judge`."""

from collections.abc import Mapping

from cloud.conformance.schemas import answers
from cloud.conformance.schemas.shapes import (
    COUNT,
    LOOSE,
    NUMBER,
    STRING,
    Schema,
    array,
    choice,
    const,
    loosened,
    nullable,
    record,
    ref,
)

_MONEY: Schema = {"type": "string", "pattern": r"^\d+(\.\d+)?$", "description": "Dollars, as a decimal number."}

NEXUS_FIGURES = record(
    {},
    {
        "drafted": COUNT,
        "accepted": COUNT,
        "verify_steps": COUNT,
        "tokens_per_step": nullable(NUMBER),
        "seed": COUNT,
        "nodes": choice("none", "any"),
        "cost": _MONEY,
        "trace": array(ref("TracedToken")),
    },
    description="What Nexus says about a generation; in a stream on its last chunk, and `trace` alone on earlier ones.",
)
TRACED_TOKEN = record(
    {"id": nullable(COUNT), "text": STRING, "origin": choice("accepted", "corrected", "bonus", "plain")},
    {"index": COUNT},
)

MODEL = record(
    {"id": STRING, "object": const("model"), "created": {"type": "integer"}, "owned_by": STRING},
    {"shutdown_date": STRING},
    extensions={
        "pricing": {"type": "object", "additionalProperties": _MONEY},
        "context_length": nullable(COUNT),
        "max_output_length": nullable(COUNT),
        "supported_parameters": array(STRING),
    },
)
MODEL_LIST = record({"object": const("list"), "data": array(ref("Model"))})

_CODE: Schema = {**nullable(STRING), LOOSE: {"type": ["string", "integer", "null"]}}
_MESSAGE: Schema = {"type": "string", "minLength": 1}
_TOLD = record(
    {"message": _MESSAGE, "type": STRING, "param": nullable(STRING), "code": _CODE}, spared=["type", "param", "code"]
)
# Clients find their message as long as `error` is there, whatever it is.
_SOME_ERROR: Schema = {"properties": {"error": {"anyOf": [_MESSAGE, loosened(_TOLD)]}}, "required": ["error"]}
ERROR: Schema = {**record({"error": _TOLD}), LOOSE: {"type": "object", **_SOME_ERROR}}

SCHEMAS: Mapping[str, Schema] = {
    "ChatCompletion": answers.CHAT_COMPLETION,
    "ChatChoice": answers.CHAT_CHOICE,
    "Message": answers.MESSAGE,
    "ToolCall": answers.TOOL_CALL,
    "ChatCompletionChunk": answers.CHAT_CHUNK,
    "ChunkChoice": answers.CHUNK_CHOICE,
    "Delta": answers.DELTA,
    "ToolCallDelta": answers.TOOL_CALL_DELTA,
    "ChatLogprobs": answers.CHAT_LOGPROBS,
    "TokenLogprob": answers.TOKEN_LOGPROB,
    "Spelling": answers.SPELLING,
    "Completion": answers.COMPLETION,
    "CompletionChoice": answers.COMPLETION_CHOICE,
    "CompletionChunk": answers.COMPLETION_CHUNK,
    "CompletionChunkChoice": answers.COMPLETION_CHUNK_CHOICE,
    "CompletionLogprobs": answers.COMPLETION_LOGPROBS,
    "Usage": answers.USAGE,
    "NexusFigures": NEXUS_FIGURES,
    "TracedToken": TRACED_TOKEN,
    "Model": MODEL,
    "ModelList": MODEL_LIST,
    "Error": ERROR,
}
