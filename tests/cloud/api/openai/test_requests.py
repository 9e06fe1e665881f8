"""What request bodies are accepted, and how the refused ones are explained."""

import msgspec
import pytest

from cloud.api.openai.chat import ChatRequest
from cloud.api.openai.common import parse
from cloud.api.openai.completions import CompletionRequest
from shared.errors import InvalidInput

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"model": "tiny", "prompt": "x"}


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
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
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
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"odd": 1}}, "stream_options.odd"),
        ({"store": True}, "store"),
        ({"nexus": {"privacy": "own_nodes"}}, "nexus.privacy"),
        ({"nexus": {"privacy": "nobody"}}, "nexus.privacy"),
        ({"nexus": {"max_price": 1}}, "nexus.max_price"),
        ({"nexus": {"odd": 1}}, "nexus.odd"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"min_p": 0.1}, "min_p"),
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
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"logprobs": 6}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"best_of": 2}, "best_of"),
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
        {"n": 1, "seed": 0, "stop": "x", "temperature": 0, "top_p": 1, "store": False, "metadata": {"a": "b"}},
        {"messages": [{"role": "assistant", "content": "x", "refusal": None, "tool_calls": None, "name": "y"}]},
    ],
)
def test_neutral_values_are_accepted(neutral):
    """A field that is not supported yet may be sent with the value that changes nothing."""
    assert "tools" not in parse(msgspec.json.encode(CHAT | neutral), ChatRequest).to_job().payload


def test_trace_asks_for_tokens():
    """nexus.trace needs log probabilities from the verifier, which the caller then does not see."""
    job = parse(msgspec.json.encode(CHAT | {"nexus": {"trace": True}}), ChatRequest).to_job()
    assert job.trace and not job.logprobs and job.payload["logprobs"] is True
    job = parse(msgspec.json.encode(COMPLETION | {"nexus": {"trace": True}}), CompletionRequest).to_job()
    assert job.trace and not job.logprobs and job.payload["logprobs"] == 0
