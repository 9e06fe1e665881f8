"""A vLLM server played by a list of words: what it answers depends on prompt and seed only, and costs nothing.

It speaks the part of vLLM 0.32's HTTP interface that the gateway uses. Run as a program it serves on a free port.
"""

import asyncio
import json
import random
import secrets
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

MODEL = "smollm2-135m"
CONTEXT = 1024
WORDS = (
    *(" the", " a", " sea", " of", " light", " is", " old", " and", " wide", ",", ".", "\n", " naïve", " 東京", "தமிழ்"),
    *(" 👩‍💻", " e\u0301", " {", "}", " 12", " Paris", "!", ' "so"', " one"),
)
"""One token each; some are characters of several code points."""
LONG = 500
"""An answer that may be so long is so long."""
STEP_TOKENS = (1, 3, 1, 2)
"""How many tokens each step commits, in turn."""


def app(*, pause_s: float = 0.0) -> Starlette:
    """`pause_s` of silence before each step."""

    async def generate(request: Request) -> Response:
        payload = await request.json()
        if refusal := _refusal(payload):
            return JSONResponse({"error": refusal}, refusal["code"])
        return StreamingResponse(_events(payload, pause_s), media_type="text/event-stream")

    async def models(_: Request) -> Response:
        card = {"id": MODEL, "object": "model", "created": 7, "max_model_len": CONTEXT}
        return JSONResponse({"object": "list", "data": [card]})

    async def health(_: Request) -> Response:
        return Response()

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/v1/models", models),
            Route("/v1/chat/completions", generate, methods=["POST"]),
            Route("/v1/completions", generate, methods=["POST"]),
        ]
    )


def _prompt_tokens(payload: dict[str, Any]) -> int:
    prompt = payload.get("messages", payload.get("prompt"))
    return len(prompt) if prompt and isinstance(prompt, list) and isinstance(prompt[0], int) else len(str(prompt)) // 4


def _refusal(payload: dict[str, Any]) -> dict[str, Any] | None:
    if (size := _prompt_tokens(payload)) >= CONTEXT:
        message = (
            f"This model's maximum context length is {CONTEXT} tokens. However, your prompt contains {size} input "
        )
        return {"message": message + "tokens.", "type": "BadRequestError", "param": None, "code": 400}
    if payload.get("max_tokens") and payload["max_tokens"] > CONTEXT:
        message = f"max_tokens={payload['max_tokens']} cannot be greater than max_model_len={CONTEXT}."
        return {"message": message, "type": "BadRequestError", "param": "max_tokens", "code": 400}
    return None


def _tokens(payload: dict[str, Any]) -> list[str]:
    """Of the whole answer, before `max_tokens` and `stop` cut it."""
    extra = payload.get("vllm_xargs", {})
    greedy = not payload.get("temperature", 1.0) or payload.get("top_k") == 1 or extra.get("nexus_min_p") == 1
    prompt = payload.get("messages", payload.get("prompt"))
    rng = random.Random(f"{json.dumps(prompt, sort_keys=True)}|{0 if greedy else payload.get('seed')}")
    if (answer := _shaped(payload)) is not None:
        return [answer[at : at + 4] for at in range(0, len(answer), 4)]
    limit: int = payload.get("max_tokens") or CONTEXT
    length = limit if payload.get("ignore_eos") or limit >= LONG else rng.randint(12, 60)
    pairs = extra.get("nexus_logit_bias", [])
    favoured = [WORDS[id_] for id_, bias in zip(pairs[::2], pairs[1::2], strict=True) if bias == 100]
    return [rng.choice(favoured or WORDS) for _ in range(length)]


def _shaped(payload: dict[str, Any]) -> str | None:
    """Text that a grammar or a forced tool call asks for."""
    if _forced_tool(payload):
        return json.dumps(_example(_forced_tool(payload)["function"].get("parameters", {})))
    wanted = payload.get("response_format") or {}
    if wanted.get("type") == "json_object":
        return json.dumps({"answer": 42})
    if wanted.get("type") == "json_schema":
        return json.dumps(_example(wanted["json_schema"]["schema"]))
    return None


def _forced_tool(payload: dict[str, Any]) -> Any:
    choice, tools = payload.get("tool_choice"), payload.get("tools")
    if not tools or choice in (None, "none", "auto"):
        return None
    if choice == "required":
        return tools[0]
    return next(tool for tool in tools if tool["function"]["name"] == choice["function"]["name"])


def _example(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Any:
    """Some value that the schema allows; enough of JSON Schema for what clients send."""
    root = root or schema
    if "$ref" in schema:
        return _example(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "enum" in schema:
        return schema["enum"][0]
    for word in ("anyOf", "allOf"):
        if word in schema:
            return _example(schema[word][0], root)
    match schema.get("type"):
        case "object":
            return {name: _example(each, root) for name, each in schema.get("properties", {}).items()}
        case "array":
            return [_example(schema.get("items", {"type": "null"}), root)]
        case "string":
            return "Paris"
        case "integer" | "number":
            return 7
        case "boolean":
            return True
    return None


async def _events(payload: dict[str, Any], pause_s: float) -> AsyncIterator[bytes]:
    chat, tool = "messages" in payload, _forced_tool(payload)
    tokens = _tokens(payload)
    limit = payload.get("max_tokens") or CONTEXT - _prompt_tokens(payload)
    finish = "length" if len(tokens) > limit else "stop"
    tokens, text, stopped = _cut(tokens[:limit], payload.get("stop") or [])
    finish = "stop" if stopped else finish
    head = {"id": "x", "object": "chunk", "created": 1, "model": MODEL}

    def event(choices: list[Any], **more: Any) -> bytes:
        return b"data: " + msgspec.json.encode({**head, "choices": choices, **more}) + b"\n\n"

    if chat:
        yield event([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
    at = begun = number = 0
    while at < len(tokens):
        await asyncio.sleep(pause_s)
        step = tokens[at : at + STEP_TOKENS[number % len(STEP_TOKENS)]]
        at, number = at + len(step), number + 1
        piece = text[begun : begun + sum(map(len, step))]
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish if at >= len(tokens) else None}
        choice |= {"delta": _delta(tool, piece, first=not begun)} if chat else {"text": piece}
        begun += len(piece)
        if payload.get("logprobs") not in (None, False):
            choice["logprobs"] = _logprobs(payload, step, chat)
        if payload.get("return_token_ids"):
            choice["token_ids"] = [WORDS.index(token) if token in WORDS else 0 for token in step]
        yield event([choice])
    size = _prompt_tokens(payload)
    usage = {"prompt_tokens": size, "completion_tokens": len(tokens), "total_tokens": size + len(tokens)}
    yield event([], usage={**usage, "prompt_tokens_details": {"cached_tokens": 0}})
    yield b"data: [DONE]\n\n"


def _delta(tool: Any, piece: str, *, first: bool) -> dict[str, Any]:
    if not tool:
        return {"content": piece}
    call: dict[str, Any] = {"index": 0, "function": {"arguments": piece}}
    if first:
        call |= {"id": f"chatcmpl-tool-{secrets.token_hex(8)}", "type": "function"}
        call["function"] = {"name": tool["function"]["name"], "arguments": piece}
    return {"tool_calls": [call]}


def _cut(tokens: list[str], stops: list[str]) -> tuple[list[str], str, bool]:
    """Tokens up to the one that completes a stop string, the text before that string, and whether there was one."""
    for count in range(1, len(tokens) + 1):
        text = "".join(tokens[:count])
        found = [place for place in (text.find(stop) for stop in stops) if place >= 0]
        if found:
            return tokens[:count], text[: min(found)], True
    return tokens, "".join(tokens), False


def _logprobs(payload: dict[str, Any], step: list[str], chat: bool) -> dict[str, Any]:
    top = payload.get("top_logprobs", 0) if chat else payload["logprobs"]
    others = [(token, -0.5 - place) for place, token in enumerate(WORDS[:top])]
    if not chat:
        return {
            "tokens": step,
            "token_logprobs": [-0.5] * len(step),
            "top_logprobs": [dict(others)] * len(step),
            "text_offset": [0] * len(step),
        }
    entries = [{"token": token, "logprob": value, "bytes": list(token.encode())} for token, value in others]
    return {
        "content": [
            {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": entries} for token in step
        ]
    }


if __name__ == "__main__":
    pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    uvicorn.run(app(pause_s=pause), port=int(sys.argv[1]), log_level="warning", access_log=False)
