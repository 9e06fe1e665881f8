"""Servers whose whole answers, models or headers are wrong."""

from support.broken.kinds import (
    COMPATIBLE,
    COUNT,
    STRICT,
    Broken,
    ask,
    ask_by,
    body_of,
    choice,
    error,
    message,
    said,
    top,
    usage,
    with_card,
)
from support.defects import Defect, every_chunk, forced, header, instead, patched, status_of, without

ANSWERS: list[Broken] = [
    ("models.list", COMPATIBLE, "empty", body_of("/v1/models", lambda b: {**b, "data": []})),
    ("models.list", COMPATIBLE, "a bare list", body_of("/v1/models", lambda b: b["data"])),
    ("models.list", STRICT, "one field more", body_of("/v1/models", with_card(permission=[]))),
    ("models.retrieve", STRICT, "it differs", body_of("/v1/models/", with_card(created=1))),
    ("models.retrieve", COMPATIBLE, "404", Defect(raw=status_of("GET /v1/models/", 404, b"{}"))),
    ("models.unknown", COMPATIBLE, "400", Defect(raw=instead(404, 400))),
    ("models.unknown", STRICT, "another code", error(code=None)),
    ("models.details", STRICT, "no parameters", body_of("/v1/models", with_card(supported_parameters=[]))),
    (
        "models.details",
        STRICT,
        "prices are numbers",
        body_of("/v1/models", with_card(pricing={"prompt": 1, "completion": 1})),
    ),
    ("models.details", STRICT, "no context", body_of("/v1/models", with_card(context_length=None))),
    ("models.details", STRICT, "no prices", body_of("/v1/models", with_card(pricing=...))),
    ("headers.request_id", STRICT, "none", Defect(raw=header("x-request-id", None))),
    ("headers.request_id", STRICT, "always the same", Defect(raw=header("x-request-id", "req_1"))),
    ("headers.client_request_id", STRICT, "none", Defect(raw=header("x-client-request-id", None))),
    ("headers.client_request_id", STRICT, "anything is sent back", Defect(echo=True)),
    ("headers.processing_ms", STRICT, "a fraction", Defect(raw=header("openai-processing-ms", "1.5"))),
    ("headers.rate_limits", STRICT, "a word", Defect(raw=header("x-ratelimit-limit-requests", "many"))),
    ("headers.rate_limits", STRICT, "only one", Defect(raw=header("x-ratelimit-limit-tokens", "10"))),
    ("headers.stream", STRICT, "may be cached", Defect(raw=header("cache-control", None))),
    ("headers.stream", STRICT, "may be held back", Defect(raw=header("x-accel-buffering", None))),
    ("headers.stream", COMPATIBLE, "no event stream", Defect(raw=header("content-type", "application/json"))),
    ("chat.schema", STRICT, "one field more", top(prompt_logprobs=None)),
    ("chat.schema", STRICT, "one more in a choice", choice(stop_reason=None)),
    ("chat.schema", STRICT, "no refusal", message(refusal=...)),
    ("chat.schema", STRICT, "another model", top(model="other")),
    ("chat.schema", COMPATIBLE, "an empty list of calls", message(tool_calls=[])),
    ("chat.schema", COMPATIBLE, "an engine's reason", choice(finish_reason="abort")),
    ("chat.schema", COMPATIBLE, "no id", top(id=...)),
    ("chat.schema", COMPATIBLE, "no text", message(content=None)),
    ("chat.schema", COMPATIBLE, "NaN in it", top(spent=float("nan"))),
    ("chat.schema", STRICT, "milliseconds", top(created=1764547200000)),
    ("chat.schema", COMPATIBLE, "seconds with a fraction", top(created=1.5)),
    ("chat.ids", COMPATIBLE, "always the same", top(id="chatcmpl-1")),
    ("chat.ids", STRICT, "another prefix", Defect(answer=lambda given, a: {**a, "id": f"x-{next(COUNT)}"})),
    ("chat.usage", COMPATIBLE, "it does not add up", usage(total_tokens=1)),
    ("chat.usage", COMPATIBLE, "none", top(usage=...)),
    ("chat.usage", COMPATIBLE, "nothing is counted", usage(completion_tokens=0, total_tokens=8)),
    ("chat.usage", STRICT, "no cached_tokens", usage(prompt_tokens_details=None)),
    ("chat.usage", STRICT, "a prediction", usage(completion_tokens_details={"accepted_prediction_tokens": 3})),
    ("chat.length", COMPATIBLE, "it says stop", choice(finish_reason="stop")),
    ("chat.length", COMPATIBLE, "one too many", ask_by(lambda g: {**g, "max_tokens": g["max_tokens"] + 1})),
    ("chat.limit_names", COMPATIBLE, "the newer is ignored", Defect(request=without("max_completion_tokens"))),
    (
        "chat.limit_names",
        COMPATIBLE,
        "the older wins",
        ask_by(lambda g: g if "max_tokens" not in g else patched(g, max_completion_tokens=...)),
    ),
    (
        "chat.messages",
        STRICT,
        "parts are lost",
        ask_by(
            lambda g: {
                **g,
                "messages": [
                    {**m, "content": "x" if isinstance(m["content"], list) else m["content"]} for m in g["messages"]
                ],
            }
        ),
    ),
    (
        "chat.messages",
        COMPATIBLE,
        "developer is unknown",
        ask_by(
            lambda g: {**g, "messages": [{**m, "role": m["role"].replace("developer", "dev")} for m in g["messages"]]}
        ),
    ),
    ("chat.accepted", COMPATIBLE, "metadata is refused", ask_by(lambda g: {**g, "odd": g.get("metadata")})),
    (
        "chat.fingerprint",
        STRICT,
        "it changes",
        Defect(answer=lambda given, a: {**a, "system_fingerprint": f"f{next(COUNT)}"}),
    ),
    ("completion.schema", STRICT, "one field more", choice(prompt_logprobs=None)),
    ("completion.schema", STRICT, "another prefix", top(id="x-1")),
    ("completion.schema", COMPATIBLE, "no text", choice(text=None)),
    ("completion.schema", COMPATIBLE, "of the other kind", top(object="chat.completion")),
    ("completion.usage", COMPATIBLE, "more than asked for", usage(completion_tokens=33)),
    ("completion.default_limit", COMPATIBLE, "64", ask_by(lambda g: {"max_tokens": 64, **g})),
    ("completion.limit_names", STRICT, "the newer is ignored", Defect(request=without("max_completion_tokens"))),
    (
        "completion.prompts",
        STRICT,
        "lists are texts",
        ask_by(lambda g: {**g, "prompt": str(g["prompt"]) if isinstance(g["prompt"][0], str) else g["prompt"]}),
    ),
    (
        "completion.prompts",
        COMPATIBLE,
        "ids are texts",
        ask_by(
            lambda g: (
                {**g, "prompt": str(g["prompt"]) if 5 in g["prompt"] else g["prompt"]}
                if isinstance(g["prompt"], list)
                else g
            )
        ),
    ),
    ("completion.missing", COMPATIBLE, "made up", ask_by(lambda g: {"prompt": "x", **patched(g, messages=...)})),
    ("completion.missing", STRICT, "not named", error(param=None)),
    ("callers.crowd", COMPATIBLE, "answers of another", ask(max_tokens=4)),
    ("callers.crowd", COMPATIBLE, "one id", top(id="chatcmpl-1")),
    ("callers.idempotency", COMPATIBLE, "another body is replayed too", Defect(request=forced(max_tokens=6))),
    ("callers.idempotency", COMPATIBLE, "not the same answer", said(lambda given, text: f"{text}{next(COUNT)}")),
    ("callers.idempotency_at_once", COMPATIBLE, "two answers", said(lambda given, text: f"{text}{next(COUNT)}")),
    (
        "callers.idempotency_at_once",
        COMPATIBLE,
        "another stream",
        Defect(stream=every_chunk(lambda c: {**c, "created": next(COUNT)})),
    ),
    ("callers.retry", COMPATIBLE, "two answers", said(lambda given, text: f"{text}{next(COUNT)}")),
    ("nexus.figures", STRICT, "another seed", Defect(answer=lambda g, a: {**a, "nexus": {**a["nexus"], "seed": 1}})),
    ("nexus.figures", STRICT, "no figures", top(nexus={"seed": 1})),
    (
        "nexus.trace",
        STRICT,
        "not the text",
        Defect(answer=lambda g, a: {**a, "nexus": {**a["nexus"], "trace": a["nexus"].get("trace", [])[1:]}}),
    ),
    ("nexus.cost", STRICT, "only a header", Defect(raw=header("x-nexus-cost", "free"))),
]
