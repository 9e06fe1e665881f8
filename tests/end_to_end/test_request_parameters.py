"""Request parameters on the real engine, which refuses some of them under speculation by their own names."""

import json
from typing import Any

import pytest
from openai import BadRequestError
from support.gateway import Gateway, Nodes, nexus_figures
from support.verifier import PROMPTS, Verifier, complete

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

MODEL = "smollm2-135m"
SEEDED: dict[str, Any] = {"model": MODEL, "temperature": 1.0, "seed": 11, "max_tokens": 24}
CHAT: Any = [{"role": "user", "content": "Name a city in Europe and how many people live there."}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "people": {"type": "integer", "maximum": 9}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
PARAMETERS: list[dict[str, Any]] = [
    {"extra_body": {"min_p": 0.3}},
    {"extra_body": {"top_k": 3}},
    {"extra_body": {"repetition_penalty": 1.5}},
    {"frequency_penalty": 1.5, "presence_penalty": 1.0},
    {"logit_bias": {"28": -100, "30": -100}},
]


def completion(gateway: Gateway, **body: Any) -> tuple[str, dict[str, Any]]:
    answer = gateway.client.completions.create(prompt=PROMPTS[5], **{**SEEDED, **body})
    return answer.choices[0].text, nexus_figures(answer)


def chat(gateway: Gateway, *, streamed: bool, **body: Any) -> str:
    create = gateway.client.chat.completions.create
    if not streamed:
        return create(messages=CHAT, **{**SEEDED, **body}).choices[0].message.content or ""
    chunks = create(messages=CHAT, stream=True, **{**SEEDED, **body})
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_each_parameter_shapes_the_answer_alike_with_and_without_a_node(gateway: Gateway, nodes: Nodes) -> None:
    """On both endpoints, whole and streamed, by the official client. One node for all: it takes long to start."""
    usual, _ = completion(gateway)
    plain = [completion(gateway, **body)[0] for body in PARAMETERS]
    assert all(answer != usual for answer in plain), "one has no effect"
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
    spoken = chat(gateway, streamed=False, response_format=wanted, max_tokens=60)
    assert set(json.loads(spoken)) == {"city", "people"}
    everything: dict[str, Any] = {"frequency_penalty": 1.5, "logit_bias": {"28": -100}, "extra_body": {"min_p": 0.1}}
    streamed = chat(gateway, streamed=True, **everything)
    nodes()
    for body, answer in zip(PARAMETERS, plain, strict=True):
        drafted, figures = completion(gateway, **body)
        assert drafted == answer, body
        assert figures["nodes"] == "any" and figures["seed"] == 11
    assert chat(gateway, streamed=True, response_format=wanted, max_tokens=60) == spoken
    assert chat(gateway, streamed=False, **everything) == streamed
    for wishes, seen in (({"max_draft_tokens": 0}, "none"), ({"nodes": False}, "none"), ({"max_wait_ms": 0}, "any")):
        answer, figures = completion(gateway, extra_body={"nexus": wishes})
        assert answer == usual, wishes
        assert figures["nodes"] == seen
        assert figures["drafted"] == 0 or wishes != {"max_draft_tokens": 0}


def test_a_bias_of_100_decides_and_one_of_minus_100_forbids(gateway: Gateway, verifier: Verifier) -> None:
    """As OpenAI describes it; log probabilities stay the target's own."""
    first = complete(verifier.url, PROMPTS[0], temperature=0, max_tokens=1)["token_ids"][0]
    forced = gateway.client.completions.create(
        model=MODEL, prompt=PROMPTS[0], temperature=0, max_tokens=3, logit_bias={"28": 100}, logprobs=0
    )
    logprobs = forced.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens is not None and logprobs.token_logprobs is not None
    assert len(set(logprobs.tokens)) == 1, logprobs.tokens
    assert all(value is not None and value < -0.5 for value in logprobs.token_logprobs[:1])
    body: dict[str, Any] = {"model": MODEL, "prompt": PROMPTS[0], "temperature": 0, "max_tokens": 1}
    usual = gateway.client.completions.create(**body)
    other = gateway.client.completions.create(**body, logit_bias={str(first): -100})
    assert usual.choices[0].text != other.choices[0].text


def test_ids_beyond_the_vocabulary_are_refused(gateway: Gateway) -> None:
    """With the largest id that there is."""
    with pytest.raises(BadRequestError, match=r"token 60000.*end at 49151") as caught:
        gateway.client.completions.create(prompt="x", **SEEDED, logit_bias={"60000": 1})
    assert caught.value.param == "logit_bias"


def test_a_schema_that_the_engine_cannot_follow_is_answered_in_words(gateway: Gateway) -> None:
    """400 that names the field, not a failure in mid-answer."""
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no-such-type"}}}
    with pytest.raises(BadRequestError, match="response_format") as caught:
        chat(gateway, streamed=False, response_format=wanted)
    assert caught.value.param == "response_format"
