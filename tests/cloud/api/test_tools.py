"""Tool calls and reasoning: what the engine's parsers give, in the shape of OpenAI's API."""

import json
from typing import Any

import openai
import pytest

TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}


def call(index: int, *, id: str | None = None, name: str | None = None, arguments: str | None = None) -> dict[str, Any]:
    """As vLLM spells a part of a call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    head = {"id": id, "type": "function"} if id else {}
    return {**head, "index": index, "function": function}


def chunks_of(text: str) -> list[dict[str, Any]]:
    datas = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    assert datas[-1] == "[DONE]"
    return [json.loads(data) for data in datas[:-1]]


@pytest.fixture
def weather(gateway, step):
    """The verifier calls the tool twice, in vLLM's way: name and arguments apart in one chunk, and a repeated id."""
    gateway.verifier.steps = [
        step("", [(1, "<tool_call>")], {"content": "\n"}),
        step("", [(2, "x")], {"tool_calls": [call(0, id="chatcmpl-tool-" + "a" * 32, name="weather")]}),
        step("", [(3, "y")], {"tool_calls": [call(0, arguments='{"city": '), call(0, arguments='"Oslo')]}),
        step(
            "",
            [(4, "z"), (5, "w")],
            {"tool_calls": [call(0, arguments='"}'), call(3, id="own:1", name="weather"), call(3, arguments="{")]},
        ),
        step("", [(6, "}")], {"tool_calls": [call(3, id="own:1", name="weather", arguments="}")]}),
        step("", [(9, "<eos>")], {"content": "\n"}),
    ]
    gateway.verifier.finish = "tool_calls"
    return gateway


ARGUMENTS = ['{"city": "Oslo"}', "{}"]


async def test_whole(weather):
    """Content is null when there are only calls; usage counts what was generated."""
    answer = await weather.client.chat.completions.create(**ASK)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == (None, "tool_calls")
    assert [c.function.arguments for c in choice.message.tool_calls] == ARGUMENTS
    assert [c.function.name for c in choice.message.tool_calls] == ["weather", "weather"]
    assert [c.id for c in choice.message.tool_calls] == ["call_" + "a" * 24, "own:1"]
    assert answer.usage.completion_tokens == 7


async def test_streamed(weather):
    """`index` counts calls; id, type and name only in the first delta of a call; nothing absent is spelled out."""
    chunks = chunks_of((await weather.post(ASK | {"stream": True})).text)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": None} and deltas[-1] == {}
    told = [entry for delta in deltas for entry in delta.get("tool_calls", [])]
    assert all("tool_calls" not in delta or delta["tool_calls"] for delta in deltas)
    assert all("content" not in delta for delta in deltas[1:])
    assert [entry["index"] for entry in told] == [0, 0, 0, 1, 1]
    assert [set(entry) == {"index", "id", "type", "function"} for entry in told] == [True, False, False, True, False]
    assert all(set(entry["function"]) == {"arguments"} for entry in told if "id" not in entry)
    for index, arguments in enumerate(ARGUMENTS):
        assert "".join(e["function"]["arguments"] for e in told if e["index"] == index) == arguments
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_the_official_client_collects_a_stream(weather):
    """Its own accumulation gives the whole answer."""
    async with weather.client.chat.completions.stream(**ASK) as stream:
        final = await stream.get_final_completion()
    [choice] = final.choices
    assert [c.function.arguments for c in choice.message.tool_calls] == ARGUMENTS
    assert choice.finish_reason == "tool_calls" and not choice.message.content


@pytest.mark.parametrize("stream", [False, True])
async def test_no_parallel_calls(weather, stream):
    """Only the first call is told when the caller wants one at a time."""
    answer = await weather.post(ASK | {"parallel_tool_calls": False, "stream": stream})
    assert answer.text.count('"own:1"') == 0 and answer.text.count("Oslo") == 1
    assert weather.verifier.requests[0]["parallel_tool_calls"] is False


async def test_a_call_by_name_ends_with_stop(gateway, step):
    """As OpenAI documents it."""
    gateway.verifier.steps = [step("", (), {"tool_calls": [call(0, id="a", name="weather", arguments="{}")]})]
    named = {"type": "function", "function": {"name": "weather"}}
    answer = await gateway.client.chat.completions.create(**ASK, tool_choice=named)
    assert answer.choices[0].finish_reason == "stop" and answer.choices[0].message.tool_calls[0].id == "a"


async def test_a_call_without_arguments_has_an_empty_object(gateway, step):
    """Arguments are JSON, also when the model wrote none; but what was cut off stays as it is."""
    gateway.verifier.steps = [step("", (), {"tool_calls": [call(0, id="a", name="weather")]}), step("")]
    answer = await gateway.client.chat.completions.create(**ASK)
    assert answer.choices[0].message.tool_calls[0].function.arguments == "{}"
    gateway.verifier.finish = "length"
    answer = await gateway.client.chat.completions.create(**ASK)
    assert answer.choices[0].message.tool_calls[0].function.arguments == ""
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
async def test_text_before_a_call_is_content(gateway, step, stream):
    """White space in front belongs to it."""
    gateway.verifier.steps = [
        step("", (), {"content": "\n"}),
        step("", (), {"content": "Let me see.\n"}),
        step("", (), {"tool_calls": [call(0, id="a", name="weather", arguments="{}")]}),
        step("", (), {"content": "\n"}),
    ]
    answer = await gateway.post(ASK | {"stream": stream})
    if stream:
        deltas = [choice["delta"] for chunk in chunks_of(answer.text) for choice in chunk["choices"]]
        text = "".join(delta.get("content") or "" for delta in deltas)
    else:
        text = answer.json()["choices"][0]["message"]["content"]
    assert text == "\nLet me see.\n"


async def test_an_answer_without_a_call(gateway, step):
    """Its white space is all there, and it ends with stop."""
    gateway.verifier.steps = [step("\n"), step("\n"), step("Sunny "), step(" ")]
    answer = await gateway.client.chat.completions.create(**ASK)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("\n\nSunny  ", "stop")
    gateway.verifier.steps = [step("\n"), step(" ")]
    answer = await gateway.client.chat.completions.create(**ASK)
    assert answer.choices[0].message.content == "\n "


async def test_a_call_that_never_gets_a_name_is_none(gateway, step):
    """The rest of the answer stands."""
    gateway.verifier.steps = [step("", (), {"tool_calls": [call(0, arguments="{")]}), step("", (), {"content": "x"})]
    answer = await gateway.client.chat.completions.create(**ASK)
    message = answer.choices[0].message
    assert (message.content, message.tool_calls, answer.choices[0].finish_reason) == ("x", None, "stop")


async def test_calls_with_several_choices(weather):
    """Each choice has its own calls, numbered from 0."""
    answer = await weather.client.chat.completions.create(**ASK, n=2)
    assert [len(choice.message.tool_calls) for choice in answer.choices] == [2, 2]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_reasoning(gateway, step, name):
    """It is told apart from content, whole and streamed, and its tokens are part of the usage."""
    gateway.verifier.steps = [step("", [(1, "hm")], {name: "hm"}), step("", [(2, "so")], {name: " so"}), step("Yes")]
    gateway.verifier.usage = {"completion_tokens_details": {"reasoning_tokens": 2}}
    body = {"model": "tiny", "messages": ASK["messages"], "reasoning_effort": "low"}
    answer = (await gateway.post(body)).json()
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm so", "Yes")
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    deltas = [c["choices"][0]["delta"] for c in chunks_of((await gateway.post(body | {"stream": True})).text)]
    assert deltas[0] == {"role": "assistant", "content": None}
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "hm so"
    assert "".join(d.get("content") or "" for d in deltas) == "Yes"
    assert gateway.verifier.requests[0]["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("change", "param"), [({"tools": [TOOL]}, "tools"), ({"reasoning_effort": "low"}, "reasoning_effort")]
)
async def test_what_the_model_cannot_do_never_reaches_the_verifier(gateway, change, param):
    """400 that names the parameter, and the models list does not name it."""
    gateway.coordinator.about.tools = gateway.coordinator.about.effort = False
    with pytest.raises(openai.BadRequestError, match=param) as caught:
        await gateway.client.chat.completions.create(model="tiny", messages=ASK["messages"], **change)
    assert caught.value.param == param and not gateway.verifier.requests
    assert param not in (await gateway.client.models.retrieve("tiny")).supported_parameters
    gateway.coordinator.about.tools = gateway.coordinator.about.effort = True
    assert param in (await gateway.client.models.retrieve("tiny")).supported_parameters


@pytest.mark.parametrize(
    "words",
    [
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        'tool_choice="required" requires --tool-call-parser to be set',
    ],
)
async def test_a_verifier_without_a_parser_says_so(gateway, words):
    """Also when no draft port told us before; the engine's flags are not shown."""
    gateway.coordinator.about = None
    gateway.verifier.status, gateway.verifier.body = 400, {"error": {"message": words, "code": 400}}
    with pytest.raises(openai.BadRequestError, match="tools") as caught:
        await gateway.client.chat.completions.create(**ASK)
    assert caught.value.param == "tools" and "--" not in caught.value.message


async def test_a_schema_that_no_grammar_can_follow_is_blamed_on_tools(gateway):
    """When the request has tools and no other schema."""
    gateway.verifier.status = 400
    gateway.verifier.body = {"error": {"message": "Grammar error: unsupported schema", "code": 400}}
    with pytest.raises(openai.BadRequestError) as caught:
        await gateway.client.chat.completions.create(**ASK, tool_choice="required")
    assert caught.value.param == "tools"
