"""Small ways for a server to go wrong, to be put together into tables of broken servers."""

import itertools
import json
from typing import Any

from support.defects import Defect, Raw, every_choice, every_chunk, patched

Json = dict[str, Any]
COUNT = itertools.count()

# --- small ways to go wrong ---


def error(**changes: Any) -> Defect:
    return Defect(error=lambda told: {"error": patched(told, **changes)})


def top(**changes: Any) -> Defect:
    """Other values at the top of a whole answer."""
    return Defect(answer=lambda ask, answer: patched(answer, **changes))


def choice(**changes: Any) -> Defect:
    """Other values in each choice of a whole answer."""
    return Defect(answer=lambda ask, a: {**a, "choices": [patched(each, **changes) for each in a["choices"]]})


def message(**changes: Any) -> Defect:
    def change(ask: Json, answer: Json) -> Json:
        for each in answer["choices"]:
            each["message"] = patched(each["message"], **changes)
        return answer

    return Defect(answer=change)


def usage(**changes: Any) -> Defect:
    return Defect(answer=lambda ask, a: {**a, "usage": patched(a["usage"], **changes)})


def said(change: Any) -> Defect:
    """`change(ask, text)` in place of the text of each choice."""

    def each(ask: Json, answer: Json) -> Json:
        for one in answer["choices"]:
            if "text" in one:
                one["text"] = change(ask, one["text"])
            else:
                one["message"]["content"] = change(ask, one["message"]["content"] or "")
        return answer

    return Defect(answer=each)


def html(_: str, raw: Raw) -> Raw:
    return (raw[0], {**raw[1], "content-type": "text/html"}, b"<html>nginx</html>") if raw[0] >= 400 else raw


def streamed_error(_: str, raw: Raw) -> Raw:
    if raw[0] < 400:
        return raw
    return 200, {**raw[1], "content-type": "text/event-stream"}, b"data: " + raw[2] + b"\n\n"


def body_of(path: str, change: Any) -> Defect:
    """Another JSON body of the answer to GET `path`."""

    def raw(asked: str, raw: Raw) -> Raw:
        if not asked.startswith(f"GET {path}") or raw[0] != 200:
            return raw
        return raw[0], raw[1], json.dumps(change(json.loads(raw[2]))).encode()

    return Defect(raw=raw)


def with_card(**changes: Any) -> Any:
    """The models list, or one of its entries, with other values in each entry."""
    return lambda b: {**b, "data": [patched(c, **changes) for c in b["data"]]} if "data" in b else patched(b, **changes)


def ask(**changes: Any) -> Defect:
    """Other values in every request."""
    return Defect(request=lambda given: patched(given, **changes))


def ask_by(change: Any) -> Defect:
    return Defect(request=change)


def chunk(**changes: Any) -> Defect:
    return Defect(stream=every_chunk(lambda each: patched(each, **changes)))


def part(**changes: Any) -> Defect:
    """Other values in every choice object of a stream."""
    return Defect(stream=every_choice(lambda each: patched(each, **changes)))


def delta(change: Any) -> Defect:
    return Defect(
        stream=every_choice(lambda each: {**each, "delta": change(each["delta"])} if "delta" in each else each)
    )


def stream(change: Any) -> Defect:
    return Defect(stream=lambda given, found: change(found))


def finishes(event: Any) -> bool:
    return isinstance(event, dict) and any(each.get("finish_reason") for each in event["choices"])


def _says(event: Any) -> bool:
    return isinstance(event, dict) and any(
        each.get("text") or (each.get("delta") or {}).get("content") for each in event["choices"]
    )


def lost(given: Json, found: list[Any]) -> list[Any]:
    """The second event with text is lost."""
    place = [place for place, event in enumerate(found) if _says(event)][1]
    return found[:place] + found[place + 1 :]


def doubled(given: Json, found: list[Any]) -> list[Any]:
    place = [place for place, event in enumerate(found) if _says(event)][1]
    return [*found[:place], found[place], *found[place:]]


def finish_with_text(found: list[Any]) -> list[Any]:
    """The reason comes with the last text instead of behind it."""
    for index in {each["index"] for event in found if isinstance(event, dict) for each in event["choices"]}:
        own = [
            each
            for event in found
            if isinstance(event, dict)
            for each in event["choices"]
            if each["index"] == index and (each.get("finish_reason") or each.get("text") or each.get("delta"))
        ]
        own[-2]["finish_reason"] = own[-1]["finish_reason"]
        own[-1]["finish_reason"] = None
    return [event for event in found if not (isinstance(event, dict) and event["choices"] and not _any(event))]


def _any(event: Json) -> bool:
    return any(each.get("finish_reason") or each.get("text") or each.get("delta") for each in event["choices"])


def usage_place(found: list[Any]) -> list[Any]:
    """Usage comes with the chunk that ends the choice."""
    last = next((event for event in found if isinstance(event, dict) and event.get("usage")), None)
    if last is None:
        return found
    rest = [event for event in found if event is not last]
    at = max(place for place, event in enumerate(rest) if finishes(event))
    return [*rest[:at], {**rest[at], "usage": last["usage"]}, *rest[at + 1 :]]


def everywhere(found: list[Any]) -> list[Any]:
    """Usage with every chunk, as some servers send it to follow the count."""
    last = next((event for event in found if isinstance(event, dict) and event.get("usage")), None)
    return (
        found
        if last is None
        else [each if isinstance(each, str) else {**each, "usage": last["usage"]} for each in found]
    )


def usage_anyway(given: Json) -> Json:
    """`include_usage: false` is taken for true."""
    return {**given, "stream_options": {"include_usage": True}} if "stream_options" in given else given


def entries(change: Any) -> Defect:
    """`change(entries)` in place of the log probabilities of a whole chat answer."""

    def each(given: Json, answer: Json) -> Json:
        for one in answer["choices"]:
            if one.get("logprobs"):
                one["logprobs"]["content"] = change(one["logprobs"]["content"])
        return answer

    return Defect(answer=each)


def lists(change: Any) -> Defect:
    """The same for text completions: `change(logprobs)`."""

    def each(given: Json, answer: Json) -> Json:
        for one in answer["choices"]:
            one["logprobs"] = change(one["logprobs"])
        return answer

    return Defect(answer=each)


def call(**changes: Any) -> Defect:
    """Other values in the function of each whole call."""

    def each(given: Json, answer: Json) -> Json:
        for one in answer["choices"]:
            for made in one["message"].get("tool_calls", []):
                made["function"] = patched(made["function"], **changes)
        return answer

    return Defect(answer=each)


def _calls(change: Any) -> Defect:
    """`change(calls)` in place of the calls of a whole answer."""

    def each(given: Json, answer: Json) -> Json:
        for one in answer["choices"]:
            if one["message"].get("tool_calls"):
                one["message"]["tool_calls"] = change(one["message"]["tool_calls"])
        return answer

    return Defect(answer=each)


twice = _calls(lambda found: found + [{**each, "id": "call_2"} for each in found])
same_id = _calls(lambda found: [{**each, "id": "call_1"} for each in found])


def calls(change: Any) -> Defect:
    """`change(call)` in place of each call of a stream's deltas."""
    return delta(lambda d: {**d, "tool_calls": [change(each) for each in d["tool_calls"]]} if "tool_calls" in d else d)


def choices_by(change: Any) -> Defect:
    """`change(choices)` in place of the choices of a whole answer."""
    return Defect(answer=lambda given, a: {**a, "choices": change(a["choices"])})


def swapped(choices: list[Json]) -> list[Json]:
    """The last two choices exchange their numbers."""
    if len(choices) < 3:
        return choices
    choices[1]["index"], choices[2]["index"] = 2, 1
    return choices


def same_text(choices: list[Json]) -> list[Json]:
    return [{**choices[0], "index": index} for index in range(len(choices))]


def short_stop(given: Json) -> Json:
    """Stop strings of more than a few characters are not looked for."""
    stops = [given["stop"]] if isinstance(given.get("stop"), str) else given.get("stop") or []
    return {**given, "stop": [stop for stop in stops if len(stop) < 4] or None}


def stops(given: Json) -> list[str]:
    asked = given.get("stop") or []
    return [asked] if isinstance(asked, str) else list(asked)


def leak(given: Json, found: list[Any]) -> list[Any]:
    """The beginning of the stop string is sent too."""
    if not stops(given):
        return found
    at = next(place for place, event in enumerate(found) if finishes(event))
    more = json.loads(json.dumps(found[at]))
    more["choices"][0] |= {"delta": {"content": stops(given)[0][:2]}, "finish_reason": None}
    return [*found[:at], more, *found[at:]]


STRICT, COMPATIBLE = "strict", "compatible"
Broken = tuple[str, str, str, Defect]
"""The case that finds it, the level of the finding, what is wrong, and the defect."""
