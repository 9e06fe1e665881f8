"""The rules of a stream: a good one has no faults, and each fault is found."""

import json
from typing import Any

import pytest

from cloud.conformance.transcript import Fault, Transcript

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
Chunk = dict[str, Any]


def chunk(delta: Chunk | None = None, finish: str | None = None, index: int = 0, **more: Any) -> Chunk:
    choice = {"index": index, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "tiny"}
    return head | {"choices": [choice]} | more


OPEN, TEXT, END = chunk({"role": "assistant", "content": ""}), chunk({"content": "Hi"}), chunk(finish="stop")
ERROR = {"error": {"message": "broke", "type": "server_error", "param": None, "code": None}}


def call(number: int, function: Chunk, **more: Any) -> Chunk:
    return chunk({"tool_calls": [{"index": number, "function": function, **more}]})


def body(*events: Chunk | str) -> bytes:
    datas = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {data}\n\n" for data in datas).encode()


def faults(raw: bytes, **options: Any) -> list[Fault]:
    return Transcript.read(raw, "chat", **options).faults()


def test_a_good_stream() -> None:
    """Its parts add up and nothing is wrong with it, also with comments, CR LF and several choices."""
    raw = body(OPEN, TEXT, TEXT, END, "[DONE]")
    stream = Transcript.read(b": keep-alive\n\n" + raw.replace(b"\n", b"\r\n"), "chat")
    assert stream.faults() == [] and (stream.text(), stream.finish(), stream.usage()) == ("HiHi", "stop", None)
    second = chunk({"role": "assistant", "content": "a"}, index=1), chunk(finish="length", index=1)
    assert faults(body(OPEN, second[0], TEXT, END, second[1], "[DONE]"), n=2) == []


def test_a_good_stream_with_usage() -> None:
    """Null until the last chunk, which has no choices."""
    raw = body(
        *(each | {"usage": None} for each in (OPEN, TEXT, END)), OPEN | {"choices": [], "usage": USAGE}, "[DONE]"
    )
    stream = Transcript.read(raw, "chat", include_usage=True)
    assert stream.faults() == [] and stream.usage() == USAGE
    assert Fault("strict", "usage", "a chunk carries usage that was not asked for") in faults(raw)


def test_a_good_stream_of_tool_calls() -> None:
    """Id and name in the first delta of each call."""
    first = call(0, {"name": "f", "arguments": ""}, id="call-1", type="function")
    second = call(1, {"name": "g", "arguments": "{}"}, id="call-2", type="function")
    raw = body(OPEN, first, call(0, {"arguments": "{}"}), second, chunk(finish="tool_calls"), "[DONE]")
    assert faults(raw) == []


def test_a_stream_that_was_left_or_failed_need_not_end() -> None:
    """What came until then is judged all the same."""
    assert faults(body(OPEN, TEXT) + b'data: {"id', complete=False) == []
    assert faults(body(OPEN, TEXT, ERROR)) == []
    assert faults(body(TEXT, ERROR)) and faults(body(TEXT), complete=False)


@pytest.mark.parametrize(
    ("raw", "level", "words"),
    [
        (body(OPEN, TEXT, END), "compatible", "[DONE] came 0 times"),
        (body(OPEN, TEXT, END, "[DONE]", "[DONE]"), "strict", "[DONE] came 2 times"),
        (body(OPEN, TEXT, END, "[DONE]", TEXT), "compatible", "an event follows [DONE]"),
        (body(OPEN, ERROR, "[DONE]"), "strict", "[DONE] comes beside an error event"),
        (body(OPEN, ERROR, TEXT), "compatible", "an event follows the error event"),
        (body(OPEN, TEXT, "[DONE]"), "compatible", "never gets a finish_reason"),
        (body(OPEN, END, TEXT, END, "[DONE]"), "compatible", "gets 2 finish_reasons"),
        (body(OPEN, END, TEXT, "[DONE]"), "compatible", "goes on behind its finish_reason"),
        (body(OPEN, END, chunk(), "[DONE]"), "strict", "goes on behind its finish_reason"),
        (body(TEXT, OPEN, END, "[DONE]"), "compatible", "first chunk does not give the role"),
        (body(OPEN, OPEN, END, "[DONE]"), "strict", "the role is given 2 times"),
        (body(OPEN, chunk({"content": "Hi"}, finish="stop"), "[DONE]"), "strict", "has no empty delta"),
        (body(OPEN, chunk({"content": ""}, finish="stop"), "[DONE]"), "strict", "has keys"),
        (body(OPEN, TEXT | {"id": "c-2"}, END, "[DONE]"), "strict", "`id` changes"),
        (body(OPEN, chunk({"content": "\ufffd"}), END, "[DONE]"), "compatible", "half a character"),
        (body(OPEN, TEXT | {"usage": None}, END, "[DONE]"), "strict", "`usage: null` although"),
        (body(OPEN, TEXT, END, OPEN | {"choices": []}, "[DONE]"), "compatible", "without choices"),
        (body(OPEN, chunk({"content": "x"}, index=3), END, "[DONE]"), "compatible", "were not asked for"),
        (body(OPEN, chunk({"tool_calls": []}), END, "[DONE]"), "compatible", "should be non-empty"),
        (body(OPEN, call(0, {"arguments": ""}), END, "[DONE]"), "compatible", "begins without its id"),
        (body(OPEN, call(1, {"name": "f"}, id="c"), END, "[DONE]"), "compatible", "numbered [1]"),
        (body(OPEN, "nonsense", END, "[DONE]"), "compatible", "no JSON"),
        (body(OPEN, "[1]", END, "[DONE]"), "compatible", "no object"),
        (body(OPEN, '{"created": NaN}', END, "[DONE]"), "compatible", "no JSON"),
        (body(OPEN, TEXT, END, "[DONE]").replace(b"Hi", b"\xf0\x9f"), "compatible", "not UTF-8"),
        (body(OPEN, TEXT, END, "[DONE]")[:-1], "compatible", "empty line"),
    ],
)
def test_each_fault_is_found(raw: bytes, level: str, words: str) -> None:
    """At the level at which clients stumble."""
    assert [fault for fault in faults(raw) if fault.level == level and words in fault.text]


@pytest.mark.parametrize(
    ("again", "level"),
    [({"id": "call-1"}, "compatible"), ({"id": None}, "strict"), ({"type": "function"}, "strict")],
)
def test_a_call_that_says_its_id_again(again: Chunk, level: str) -> None:
    """Clients that add up what they get would double it."""
    first = call(0, {"name": "f", "arguments": ""}, id="call-1", type="function")
    found = faults(body(OPEN, first, call(0, {"arguments": "{}"}, **again), chunk(finish="tool_calls"), "[DONE]"))
    assert [fault.level for fault in found if "again" in fault.text] == [level]


@pytest.mark.parametrize(
    ("events", "level", "words"),
    [
        ((OPEN, TEXT, END), "compatible", "never came"),
        ((OPEN, TEXT, END | {"usage": USAGE}), "strict", "`choices: []`"),
        ((OPEN, TEXT | {"usage": USAGE}, END), "compatible", "not in the last chunk"),
        ((OPEN, TEXT | {"usage": USAGE}, END, OPEN | {"choices": [], "usage": USAGE}), "strict", "not in the last"),
        ((OPEN, TEXT, END, OPEN | {"choices": [], "usage": USAGE}), "strict", "lacks `usage`"),
    ],
)
def test_usage_out_of_place(events: tuple[Chunk, ...], level: str, words: str) -> None:
    """It comes once, at the very end."""
    found = faults(body(*events, "[DONE]"), include_usage=True)
    assert [fault for fault in found if fault.level == level and words in fault.text]
