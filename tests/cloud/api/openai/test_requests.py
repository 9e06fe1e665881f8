"""What request bodies are accepted, and how the refused ones are explained."""

import asyncio
from typing import Any

import msgspec
import pytest

from cloud.api.coordinator import Served
from cloud.api.openai import common
from cloud.api.openai.chat import ChatRequest
from cloud.api.openai.common import parse
from cloud.api.openai.completions import CompletionRequest
from cloud.api.openai.job import ToolRules
from shared.errors import InvalidInput

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"model": "tiny", "prompt": "x"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"name": "answer", "schema": {"type": "object"}}
DEEP: dict[str, Any] = {}
for _ in range(80):
    DEEP = {"items": [DEEP]}
SAMPLING = [
    ({"top_k": -2}, "top_k"),
    ({"top_k": 2**31}, "top_k"),
    ({"top_k": 1.5}, "top_k"),
    ({"min_p": -0.1}, "min_p"),
    ({"min_p": 1.1}, "min_p"),
    ({"min_p": "0.1"}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"repetition_penalty": 2.1}, "repetition_penalty"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"²": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 100.5}}, "logit_bias"),
    ({"logit_bias": {"5": "1"}}, "logit_bias"),
    ({"logit_bias": {"5": True}}, "logit_bias"),
    ({"logit_bias": {"5": None}}, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
]
"""Wrong for both endpoints."""
BOTH = [(CHAT, ChatRequest), (COMPLETION, CompletionRequest)]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"model": None}, "model"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "alien", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x", "odd": 1}]}, "messages[0].odd"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "a"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": "x", "tool_call_id": "a"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "user", "content": "x", "audio": {"id": "a"}}]}, "messages[0].audio"),
        ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "tool_calls": []}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "messages[0].tool_calls[0].function"),
        ({"messages": [{"role": "assistant", "content": "x", "function_call": {"name": "f"}}]}, "messages"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": [""]}, "stop[0]"),
        ({"n": 9}, "n"),
        ({"n": True}, "n"),
        ({"seed": -1}, "seed"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        *SAMPLING,
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"odd": 1}}, "stream_options.odd"),
        ({"store": True}, "store"),
        ({"nexus": {"privacy": "own_nodes"}}, "nexus.privacy"),
        ({"nexus": {"privacy": "nobody"}}, "nexus.privacy"),
        ({"nexus": {"max_price": 1}}, "nexus.max_price"),
        ({"nexus": {"max_price": "cheap"}}, "nexus.max_price"),
        ({"nexus": {"odd": 1}}, "nexus.odd"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]}, "tools[0].function.parameters"),
        ({"tools": [{"type": "function", "function": {"name": "f", "odd": 1}}]}, "tools[0].function.odd"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [TOOL] * 129}, "tools"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": DEEP}}]},
            "tools[0].function.parameters",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": DEEP}}},
            "response_format.json_schema.schema",
        ),
        ({f"k{place}": 1 for place in range(200)}, "k0"),
        ({"messages": CHAT["messages"] * 8193}, "messages"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object", "json_schema": SCHEMA}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA | {"name": "a b"}}},
            "response_format.json_schema.name",
        ),
        ({"nexus": {"max_draft_tokens": 257}}, "nexus.max_draft_tokens"),
        ({"nexus": {"max_wait_ms": -1}}, "nexus.max_wait_ms"),
        ({"nexus": {"nodes": "no"}}, "nexus.nodes"),
        ({"nexus": {"nodes": True, "privacy": "verifier_only"}}, "nexus.nodes"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"prompt": "x"}, "prompt"),
    ],
)
def test_invalid_chat_field_is_named(change, param):
    """The error names the field, in `param` and in its words."""
    with pytest.raises(InvalidInput) as caught:
        parse(msgspec.json.encode(CHAT | change), ChatRequest)
    assert caught.value.param == param
    assert param.split("[")[0].split(".")[-1] in caught.value.message


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"x" * 100_000: 1}, "x" * 64 + "…"),
        ({"a-b c": 1}, "a-b c"),
        ({"a`\n\u202e": 1}, "a???"),
        ({"": 1}, "body"),
        ({"nexus": {"a-b": 1}}, "nexus.a-b"),
        ({"messages": [{"role": "user", "content": "x", "/" * 1000: 1}]}, "messages[0]." + "/" * 64 + "…"),
    ],
)
def test_an_unknown_field_is_named_as_far_as_helps(change, param):
    """Whatever its name is, and however long."""
    with pytest.raises(InvalidInput) as caught:
        parse(msgspec.json.encode(CHAT | change), ChatRequest)
    assert caught.value.param == param and f"`{param}`" in caught.value.message


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"logprobs": 6}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        *SAMPLING,
        ({"messages": []}, "messages"),
    ],
)
def test_invalid_completion_field_is_named(change, param):
    """The same for completions."""
    with pytest.raises(InvalidInput) as caught:
        parse(msgspec.json.encode(COMPLETION | change), CompletionRequest)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "neutral",
    [
        {"tools": []},
        {"tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"parallel_tool_calls": True},
        {"logit_bias": {}},
        {"functions": [], "function_call": "auto"},
        {"safety_identifier": "a", "prompt_cache_key": "b", "service_tier": "auto", "verbosity": "medium"},
        {"n": 1, "seed": 0, "stop": "x", "temperature": 0, "top_p": 1, "store": False, "metadata": {"a": "b"}},
        {"messages": [{"role": "assistant", "content": "x", "refusal": None, "tool_calls": None, "name": "y"}]},
    ],
)
def test_neutral_values_are_accepted(neutral):
    """A field that is not supported yet may be sent with the value that changes nothing."""
    assert "tools" not in parse(msgspec.json.encode(CHAT | neutral), ChatRequest).to_job().payload


@pytest.mark.parametrize(("body", "model"), BOTH)
def test_sampling_parameters_reach_the_engine(body, model):
    """Its own fields where it takes them; extra arguments where it refuses its own fields under speculation."""
    change = {"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": -1}
    job = parse(msgspec.json.encode(body | change | {"logit_bias": {"5": -100, "7": 2.5}}), model).to_job()
    payload = {name: job.payload[name] for name in change}
    assert payload == change | {"min_p": 0.0} and "logit_bias" not in job.payload
    assert job.engine_arguments == {"nexus_min_p": 0.05, "nexus_logit_bias": [5, -100.0, 7, 2.5]}
    assert extras_of_flat(job.engine_arguments["nexus_logit_bias"]) == {5: -100.0, 7: 2.5}
    plain = parse(msgspec.json.encode(body | {"top_k": -1, "min_p": 0, "logit_bias": {}}), model).to_job()
    assert (plain.engine_arguments, plain.payload["top_k"]) == ({}, 0)


def extras_of_flat(pairs):
    """As the verifier reads them back."""
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def test_a_bias_for_a_token_that_the_model_lacks_is_refused():
    """The engine would silently leave it out."""
    job = parse(msgspec.json.encode(CHAT | {"logit_bias": {"5": 1, "99": 1}}), ChatRequest).to_job()
    job.check(None)
    job.check(Served(100, tools=False, effort=False, sampler=""))
    with pytest.raises(InvalidInput, match=r"token 99.*end at 98") as caught:
        job.check(Served(99, tools=False, effort=False, sampler=""))
    assert caught.value.param == "logit_bias"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tools": [TOOL]}, "tools"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "messages"),
    ],
)
def test_what_the_model_cannot_do_is_refused(change, param):
    """By name, where the engine would ignore it."""
    job = parse(msgspec.json.encode(CHAT | change), ChatRequest).to_job()
    job.check(Served(100, tools=True, effort=True, sampler=""))
    if param == "reasoning_effort":
        with pytest.raises(InvalidInput, match=param):  # the engine would say nothing
            job.check(None)
    else:
        job.check(None)
    with pytest.raises(InvalidInput, match=param) as caught:
        job.check(Served(100, tools=False, effort=False, sampler=""))
    assert caught.value.param == param


def test_tools_reach_the_engine_in_its_own_fields():
    """With the choice spelled out; nulls in a schema mean something there."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"enum": [None]}, "strict": True}}
    body = CHAT | {"tools": [tool], "parallel_tool_calls": False}
    job = parse(msgspec.json.encode(body), ChatRequest).to_job()
    sent = {name: job.payload[name] for name in ("tools", "tool_choice", "parallel_tool_calls")}
    assert sent == {"tools": [tool], "tool_choice": "auto", "parallel_tool_calls": False}
    assert job.tools == ToolRules(parallel=False) and job.shaped
    named = {"type": "function", "function": {"name": "f"}}
    job = parse(msgspec.json.encode(CHAT | {"tools": [TOOL], "tool_choice": named}), ChatRequest).to_job()
    assert job.payload["tool_choice"] == named and job.tools == ToolRules(named=True) and job.shaped
    assert not parse(msgspec.json.encode(CHAT | {"tools": [TOOL]}), ChatRequest).to_job().shaped


def test_tools_that_may_not_be_called_are_not_told():
    """The model might call one nevertheless."""
    job = parse(msgspec.json.encode(CHAT | {"tools": [TOOL], "tool_choice": "none"}), ChatRequest).to_job()
    assert job.tools is None and not {"tools", "tool_choice", "parallel_tool_calls"} & set(job.payload)


def test_a_conversation_with_calls_reaches_the_engine():
    """An answer can be sent back as it came, with what is null in it and what only answers have."""
    said = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL], "reasoning_content": "hm"}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "7"}]}
    more = [
        {"role": "assistant", "refusal": "no", "annotations": [], "audio": None, "function_call": None},
        {"role": "assistant", "content": "x", "tool_calls": [], "reasoning": "so"},
    ]
    body = CHAT | {"messages": [*CHAT["messages"], said, result, *more]}
    sent = parse(msgspec.json.encode(body), ChatRequest).to_job().payload["messages"]
    assert sent[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
        {"role": "tool", "content": "7", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "no"},
        {"role": "assistant", "content": "x", "reasoning_content": "so"},
    ]


def test_a_schema_reaches_the_engine_unchanged():
    """Nulls in a schema mean something there."""
    schema = {"type": "object", "properties": {"a": {"enum": [None, 1]}}, "default": None}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    job = parse(msgspec.json.encode(CHAT | {"response_format": wanted}), ChatRequest).to_job()
    assert job.payload["response_format"] == wanted
    assert "response_format" not in parse(msgspec.json.encode(CHAT), ChatRequest).to_job().payload


@pytest.mark.parametrize(
    "change",
    [
        {"logit_bias": {"5": 1}},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"repetition_penalty": 1.2},
        {"response_format": {"type": "json_object"}},
    ],
)
def test_what_nodes_are_not_told_says_nothing_about_them(change):
    """Their misses on such a stream are not theirs."""
    assert parse(msgspec.json.encode(CHAT | change), ChatRequest).to_job().shaped


def test_filters_and_seed_are_told_to_nodes():
    """So their drafts can be measured."""
    body = CHAT | {"top_k": 5, "top_p": 0.9, "min_p": 0.1, "temperature": 0.7, "seed": 3, "logit_bias": {}}
    assert not parse(msgspec.json.encode(body), ChatRequest).to_job().shaped


@pytest.mark.parametrize(
    ("nexus", "allowed"),
    [
        ({}, None),
        ({"privacy": "any"}, True),
        ({"nodes": True}, True),
        ({"privacy": "verifier_only"}, False),
        ({"privacy": "any", "nodes": False}, False),
        ({"privacy": "verifier_only", "nodes": False}, False),
    ],
)
def test_privacy_and_nodes_say_who_may_draft(nexus, allowed):
    """Without a word it is the deployment's to decide."""
    assert parse(msgspec.json.encode(CHAT | {"nexus": nexus}), ChatRequest).to_job().policy.allow_nodes is allowed


def test_trace_asks_for_tokens():
    """nexus.trace needs log probabilities from the verifier, which the caller then does not see."""
    job = parse(msgspec.json.encode(CHAT | {"nexus": {"trace": True}}), ChatRequest).to_job()
    assert job.trace and not job.logprobs and job.payload["logprobs"] is True
    job = parse(msgspec.json.encode(COMPLETION | {"nexus": {"trace": True}}), CompletionRequest).to_job()
    assert job.trace and not job.logprobs and job.payload["logprobs"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"1",
        b'{"model": ',
        b"\xff",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"model": NaN}',
        b'{"model": "\\ud800"}',
        b'{"temperature": 1e999}',
        b"\xef\xbb\xbf{}",
        b'{"seed": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_body_that_is_no_json_object_is_refused_in_words(body):
    """Also one that is nested without end."""
    with pytest.raises(InvalidInput, match="JSON"):
        parse(body, ChatRequest)


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[' + b",".join([b"{}"] * 200_000) + b"]}",
        b'{"messages":[{"role":"user","content":[' + b",".join([b'{"type":"text"}'] * 50_000) + b"]}]}",
        b"{" + b",".join(b'"k%d":1' % i for i in range(100_000)) + b"}",
        b'{"logit_bias":{' + b",".join(b'"%d":1' % i for i in range(100_000)) + b"}}",
    ],
    ids=["messages", "parts", "fields", "biases"],
)
def test_the_error_of_a_hostile_body_is_one_error(body, monkeypatch):
    """Whatever is in it a hundred thousand times, no more than a few errors are made of it."""
    seen = []

    def explain(error):
        seen.append(error.error_count())
        return InvalidInput("x")

    monkeypatch.setattr(common, "_explain", explain)
    with pytest.raises(InvalidInput):
        parse(body, ChatRequest)
    assert sum(seen) < 200


async def test_a_large_body_is_read_beside_the_event_loop():
    """Others are served meanwhile."""
    body = msgspec.json.encode(CHAT | {"messages": [{"role": "user", "content": "x" * 100}] * 8000})
    assert len(body) > common.PARSED_AT_ONCE
    reading = asyncio.create_task(common.read(body, ChatRequest))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert len((await reading).messages) == 8000 and turns > 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stop": []}, "Invalid value for `stop`: list should have at least 1 item"),
        ({"stop": 5}, "Invalid value for `stop`: input should be a valid string"),
        ({"messages": [{"role": "user", "content": []}]}, "Invalid value for `messages[0].content`: list should"),
    ],
)
def test_of_a_union_the_branch_with_the_type_is_explained(given, said):
    """An empty list is told that it is empty, not that it is no string."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **given}
    with pytest.raises(InvalidInput) as caught:
        parse(msgspec.json.encode(body), ChatRequest)
    assert caught.value.message.startswith(said)
