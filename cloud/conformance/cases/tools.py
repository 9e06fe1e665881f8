"""Tool calls and answers in a given format, where a server offers them."""

import json
from typing import Any

from cloud.conformance.case import Findings, NotOffered, case
from cloud.conformance.target import Answer, Target
from cloud.conformance.transcript import Transcript

Json = dict[str, Any]
LONG = 160
"""Output limit of a call or a JSON answer, tokens."""
SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Json = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": SCHEMA},
}
TIME: Json = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
QUESTION: list[Json] = [{"role": "user", "content": "What is the weather in Paris?"}]
FORCED: Json = {"type": "function", "function": {"name": "get_weather"}}
NAMES = ("tools", "tool_choice")
"""Parameters that a server without tools names."""
ASKED: Json = {"messages": QUESTION, "tools": [WEATHER], "tool_choice": FORCED, "max_tokens": LONG}


def _calls(answer: Answer) -> list[Json]:
    message = answer.choice().get("message")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return [each for each in calls if isinstance(each, dict)] if isinstance(calls, list) else []


def _check_call(see: Findings, name: Any, arguments: Any) -> None:
    see.must(name == "get_weather", f"the call is of {name!r}")
    try:
        given = json.loads(arguments)
    except (TypeError, ValueError):
        see.must(False, f"the arguments are no JSON: {arguments!r:.80}")
        return
    see.strictly(isinstance(given, dict) and given.get("city") in ("Paris", "Oslo"), f"arguments {given!r:.80}")


@case("tools.forced")
async def forced(target: Target, see: Findings) -> None:
    """A call that is asked for by name comes as `tool_calls`, with an id and JSON arguments."""
    answer = see.offered(await target.kept(**ASKED), *NAMES)
    see.schema("ChatCompletion", answer.json)
    calls = _calls(answer)
    see.need(len(calls) == 1, f"{len(calls)} calls")
    function = calls[0].get("function") or {}
    _check_call(see, function.get("name"), function.get("arguments"))
    see.must(answer.finish() in ("stop", "tool_calls"), f"finish_reason {answer.finish()!r}")
    see.strictly(not answer.said(), f"content beside the call: {answer.said()!r:.40}")


@case("tools.required")
async def required(target: Target, see: Findings) -> None:
    """`tool_choice: "required"` gives a call of one of the tools and ends with `tool_calls`."""
    answer = see.offered(
        await target.ask(**ASKED | {"tools": [WEATHER, TIME], "tool_choice": "required"}), "tools", "tool_choice"
    )
    names = [(call.get("function") or {}).get("name") for call in _calls(answer)]
    see.must(names and set(names) <= {"get_weather", "get_time"}, f"calls of {names}")
    see.must(answer.finish() == "tool_calls", f"finish_reason {answer.finish()!r}")


@case("tools.one")
async def one(target: Target, see: Findings) -> None:
    """With `parallel_tool_calls: false` there is one call; ids of calls differ between answers."""
    asked = ASKED | {"tools": [WEATHER, TIME], "tool_choice": "required", "parallel_tool_calls": False}
    answers = [see.offered(await target.ask(**asked), *NAMES) for _ in range(2)]
    counts = [len(_calls(answer)) for answer in answers]
    see.must(counts == [1, 1], f"{counts} calls")
    ids = {call.get("id") for answer in answers for call in _calls(answer)}
    see.strictly(len(ids) == 2, f"both calls have the id {sorted(map(str, ids))}")


def _joined(stream: Transcript) -> tuple[str, str]:
    """Name and arguments of call 0."""
    name = arguments = ""
    for part in stream.choices():
        for call in (part.get("delta") or {}).get("tool_calls") or ():
            if call.get("index") == 0:
                function = call.get("function") or {}
                name += function.get("name") or ""
                arguments += function.get("arguments") or ""
    return name, arguments


@case("tools.streamed")
async def streamed(target: Target, see: Findings) -> None:
    """A streamed call: id and name once, arguments in pieces, absent keys omitted, no empty list."""
    whole = see.offered(await target.kept(**ASKED), *NAMES)
    answer, stream = await target.stream(**ASKED)
    see.ok(answer)
    see.stream(stream.faults())
    name, arguments = _joined(stream)
    _check_call(see, name, arguments)
    wanted = (_calls(whole) or [{}])[0].get("function") or {}
    see.must(arguments == wanted.get("arguments"), f"streamed {arguments!r:.40}, whole {wanted.get('arguments')!r:.40}")
    see.must(stream.finish() == whole.finish(), f"streamed {stream.finish()!r}, whole {whole.finish()!r}")


@case("tools.none")
async def none(target: Target, see: Findings) -> None:
    """With `tool_choice: "none"` there is no call."""
    answer = see.offered(await target.ask(**ASKED | {"tool_choice": "none", "max_tokens": 16}), *NAMES)
    see.must(not _calls(answer), "there is a call")
    message = answer.choice().get("message") or {}
    see.strictly("tool_calls" not in message, "`tool_calls` is there without a call")
    see.must(answer.finish() != "tool_calls", "finish_reason 'tool_calls' without a call")


@case("tools.conversation")
async def conversation(target: Target, see: Findings) -> None:
    """A call and its result may be sent back as messages."""
    see.offered(await target.kept(**ASKED), *NAMES)
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny, 20 degrees."},
    ]
    see.ok(await target.ask(messages=messages, tools=[WEATHER], max_tokens=8))


@case("tools.unknown")
async def unknown(target: Target, see: Findings) -> None:
    """A `tool_choice` that names no given tool is 400, and so is a tool without a name."""
    see.offered(await target.kept(**ASKED), *NAMES)
    choice = {"type": "function", "function": {"name": "no_such_tool"}}
    see.error(await target.ask(**ASKED | {"tool_choice": choice}), 400, 422, param="tool_choice")
    see.error(await target.ask(**ASKED | {"tools": [{"type": "function", "function": {}}]}), 400, 422)


@case("format.json_object")
async def json_object(target: Target, see: Findings) -> None:
    """`response_format: json_object` gives one JSON object."""
    asked: Json = {"response_format": {"type": "json_object"}, "max_tokens": LONG}
    asked["messages"] = [{"role": "user", "content": 'Answer with the JSON object {"answer": 42} and nothing else.'}]
    answer = see.offered(await target.ask(**asked), "response_format")
    if answer.finish() == "length":
        raise NotOffered("the model does not end its object")
    try:
        given = json.loads(answer.said())
    except ValueError:
        given = None
    see.must(isinstance(given, dict), f"the answer is no JSON object: {answer.said()!r:.60}")


@case("format.json_schema")
async def json_schema(target: Target, see: Findings) -> None:
    """`response_format: json_schema` gives JSON by the schema, streamed too."""
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    answer = see.offered(await target.kept(response_format=wanted, max_tokens=LONG), "response_format")
    for said in (answer.said(), (await target.stream(response_format=wanted, max_tokens=LONG))[1].text()):
        try:
            given = json.loads(said)
        except ValueError:
            given = None
        right = isinstance(given, dict) and set(given) == {"city"} and given["city"] in ("Paris", "Oslo")
        see.must(right, f"the answer is not by the schema: {said!r:.60}")


@case("format.refused")
async def refused(target: Target, see: Findings) -> None:
    """A format that does not exist, or a schema without its type, is 400 and named."""
    see.error(await target.ask(response_format={"type": "xml"}), 400, 422)
    see.error(await target.ask(response_format={"type": "json_schema"}), 400, 422)
