"""Every HTTP operation of the gateway, with what the document says about it. A route without one fails a test."""

from cloud.api.accounts.terms import KeyInput
from cloud.api.openai.chat import CHAT_PATH, ChatRequest
from cloud.api.openai.completions import COMPLETIONS_PATH, CompletionRequest
from cloud.api.openapi import examples
from cloud.api.openapi.money import MONEY
from cloud.api.openapi.operation import OF_A_BODY, OF_A_KEY, OF_ALL, Operation, Told
from cloud.api.openapi.people import PEOPLE

_GENERATION = (*OF_A_BODY, *OF_A_KEY, 402, 404, 409, 429, 502, 503, *OF_ALL)
_LIMITS = tuple(
    f"X-RateLimit-{part}-{unit}" for unit in ("Requests", "Tokens") for part in ("Limit", "Remaining", "Reset")
)
_GENERATION_HEADERS = ("X-Client-Request-Id", "OpenAI-Processing-Ms", "X-Nexus-Cost", "Idempotency-Replayed", *_LIMITS)
_REQUEST_HEADERS = ("X-Client-Request-Id", "Idempotency-Key")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="post",
        path=CHAT_PATH,
        name="createChatCompletion",
        tag="Generation",
        summary="Answer a conversation",
        description="One answer, or `n` of them, to a conversation. With `stream` it comes in pieces as server-sent "
        "events, ended by `data: [DONE]`; a failure in mid-stream is one event with an `error` object and the end.",
        request=ChatRequest,
        requests=examples.CHAT_REQUESTS,
        headers=_REQUEST_HEADERS,
        answers={
            200: Told(
                description="The answer, or a stream of chunks.",
                schema="ChatCompletion",
                examples=examples.CHAT_ANSWERS,
                chunk="ChatCompletionChunk",
                chunks=tuple(examples.CHAT_CHUNKS),
                headers=_GENERATION_HEADERS,
            )
        },
        errors=_GENERATION,
    ),
    Operation(
        method="post",
        path=COMPLETIONS_PATH,
        name="createCompletion",
        tag="Generation",
        summary="Go on with a text",
        description="One continuation, or `n` of them, of a text or of token ids. Streams as chat completions do.",
        request=CompletionRequest,
        requests=examples.COMPLETION_REQUESTS,
        headers=_REQUEST_HEADERS,
        answers={
            200: Told(
                description="The answer, or a stream of chunks.",
                schema="Completion",
                examples=examples.COMPLETION_ANSWERS,
                chunk="CompletionChunk",
                chunks=tuple(examples.COMPLETION_CHUNKS),
                headers=_GENERATION_HEADERS,
            )
        },
        errors=_GENERATION,
    ),
    Operation(
        method="get",
        path="/v1/models",
        name="listModels",
        tag="Models",
        summary="List the models that are served",
        description="What the attached verifiers serve, with OpenAI's fields and some of ours.",
        answers={200: Told(description="The list.", schema="ModelList", examples=examples.MODEL_LISTS)},
        errors=(*OF_A_KEY, 429, 502, 503, *OF_ALL),
    ),
    Operation(
        method="get",
        path="/v1/models/{model}",
        name="retrieveModel",
        tag="Models",
        summary="Describe one model",
        description="The same object as in the list. A name may hold slashes.",
        path_parameters={"model": "Name of the model."},
        answers={200: Told(description="The model.", schema="Model", examples=examples.MODEL_ANSWERS)},
        errors=(*OF_A_KEY, 404, 429, 502, 503, *OF_ALL),
    ),
    Operation(
        method="get",
        path="/admin/keys",
        name="listKeys",
        tag="Keys",
        by="either",
        summary="List all API keys",
        description="Every key with its terms and what it has cost this month; no secrets. Needs the scope `admin`, "
        "or an operator's session.",
        answers={200: Told(description="The list.", schema="ApiKeyList", examples=examples.KEY_LISTS)},
        errors=(*OF_A_KEY, 429, 503, *OF_ALL),
    ),
    Operation(
        method="post",
        path="/admin/keys",
        name="createKey",
        tag="Keys",
        by="either",
        summary="Create an API key",
        description="`key` in the answer is the secret, which is shown this once. Needs the scope `admin`, or an "
        "operator's session.",
        request=KeyInput,
        requests=examples.KEY_REQUESTS,
        answers={201: Told(description="The new key.", schema="NewApiKey", examples=examples.NEW_KEY_ANSWERS)},
        errors=(*OF_A_BODY, *OF_A_KEY, 404, 429, 503, *OF_ALL),
    ),
    Operation(
        method="delete",
        path="/admin/keys/{key}",
        name="revokeKey",
        tag="Keys",
        by="either",
        summary="Revoke an API key",
        description="It is refused from then on; a second time changes nothing. Needs the scope `admin`, or an "
        "operator's session.",
        path_parameters={"key": "`id` of the key, not its secret."},
        answers={200: Told(description="The revoked key.", schema="ApiKey", examples=examples.KEY_ANSWERS)},
        errors=(400, *OF_A_KEY, 404, 429, 503, *OF_ALL),
    ),
    *PEOPLE,
    *MONEY,
    Operation(
        method="get",
        path="/health",
        name="health",
        tag="Operation",
        summary="Whether the gateway can serve",
        description="For load balancers. `degraded`: some verifier or draft port is missing; it serves all the same.",
        key="free",
        answers={
            200: Told(description="It serves.", schema="Health", examples=examples.HEALTH),
            503: Told(description="It cannot.", schema="Health", examples=examples.UNHEALTHY),
        },
        errors=OF_ALL,
    ),
    Operation(
        method="get",
        path="/metrics",
        name="metrics",
        tag="Operation",
        summary="Metrics for Prometheus",
        description="Prometheus' text format. Needs a key when the gateway is open to the network.",
        key="depends",
        answers={200: Told(description="The metrics.", text=True)},
        errors=(*OF_A_KEY, *OF_ALL),
    ),
    Operation(
        method="get",
        path="/openapi.json",
        name="openapi",
        tag="Operation",
        summary="This document",
        description="The OpenAPI 3.1 description of this API.",
        key="free",
        answers={200: Told(description="The document.", schema="Document")},
        errors=OF_ALL,
    ),
)
