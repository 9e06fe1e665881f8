"""A choice from its pieces: what is told in parts is what is told at once, however the pieces are cut."""

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.jobs import CHAT_JOB

from cloud.api.inbox import MERGE_AT, Event, Inbox, merged
from cloud.api.openai.choice import Choice, Part, Whole
from cloud.api.openai.job import ToolRules
from cloud.api.openai.shapes import ChatShape
from cloud.api.upstream.chunks import CallDelta, Delta, Finish, Token

JOB = replace(CHAT_JOB, logprobs=True, top_logprobs=2)
SHAPE = ChatShape("m", None, lambda: 0)

calls = st.builds(
    CallDelta,
    index=st.integers(0, 3),
    id=st.sampled_from([None, "a", "b", "chatcmpl-tool-0123456789abcdef0123456789abcdef"]),
    name=st.sampled_from([None, None, "f", "g"]),
    arguments=st.sampled_from(["", " ", '{"x"', ": 1}", "{}"]),
)
tokens = st.builds(Token, id=st.none(), text=st.sampled_from(["", "a", "ab"]), logprob=st.just(-1.0), top=st.just(()))
deltas = st.builds(
    Delta,
    text=st.sampled_from(["", "", " ", "\n", "a", " b "]),
    reasoning=st.sampled_from(["", "", "hm"]),
    calls=st.lists(calls, max_size=3).map(tuple),
    tokens=st.lists(tokens, max_size=2).map(tuple),
)
EOS = Token(None, "<eos>", -1.0, ())
ends = st.builds(Finish, reason=st.sampled_from(["stop", "length", "tool_calls"]))


def run(pieces: list[Delta], rules: ToolRules | None = None) -> tuple[list[Part], Whole]:
    choice = Choice(0, replace(JOB, tools=rules or ToolRules()))
    parts = [choice.feed(piece) for piece in pieces]
    return parts, choice.whole()


def collected(parts: list[Part]) -> dict[str, Any]:
    """As a client adds chunks up."""
    message: dict[str, Any] = {"content": "", "reasoning": "", "calls": []}
    for part in parts:
        delta = SHAPE.delta(0, part, logprobs=False)["delta"]
        assert all(delta.values()), "nothing absent is spelled out"
        message["content"] += delta.get("content", "")
        message["reasoning"] += delta.get("reasoning_content", "")
        for entry in delta.get("tool_calls", []):
            if entry["index"] == len(message["calls"]):
                assert set(entry) == {"index", "id", "type", "function"}
                message["calls"].append({"id": entry["id"], "name": entry["function"]["name"], "arguments": ""})
            else:
                assert set(entry) == {"index", "function"} and set(entry["function"]) == {"arguments"}
            message["calls"][entry["index"]]["arguments"] += entry["function"]["arguments"]
    return message


@given(st.lists(deltas, max_size=8), deltas, ends, st.booleans())
def test_parts_add_up_to_the_whole(pieces: list[Delta], last: Delta, end: Finish, parallel: bool) -> None:
    """Text, reasoning, calls; ids and names once, in the order of calls."""
    rules = ToolRules(parallel=parallel)
    parts, whole = run([*pieces, Delta(last.text, last.tokens, last.reasoning, last.calls, end)], rules)
    message = collected(parts)
    assert message["content"] == (whole.text or "") and message["reasoning"] == whole.reasoning
    assert message["calls"] == [{"id": c.id, "name": c.name, "arguments": c.text()} for c in whole.calls]
    assert parallel or len(whole.calls) <= 1
    assert (whole.text is None) <= bool(whole.calls)
    expected = "length" if end.reason == "length" else "tool_calls" if whole.calls else "stop"
    assert whole.reason == expected
    if end.reason != "length":
        assert all(call.text().strip() for call in whole.calls)


@given(st.lists(deltas, min_size=1, max_size=8), ends, st.data())
def test_how_pieces_are_merged_changes_nothing(pieces: list[Delta], end: Finish, data: st.DataObject) -> None:
    """For a slow server several are one."""
    last = pieces[-1]
    pieces = [*pieces[:-1], Delta(last.text, (*last.tokens, EOS), last.reasoning, last.calls, end)]
    cuts = [*sorted(data.draw(st.sets(st.integers(1, len(pieces)), max_size=len(pieces)))), len(pieces)]
    groups = [pieces[a:b] for a, b in zip([0, *cuts], cuts, strict=False) if a < b]
    _, one = run(pieces)
    _, other = run([merged(group) if len(group) > 1 else group[0] for group in groups])
    assert comparable(one) == comparable(other)


@given(st.lists(deltas, min_size=1, max_size=8), ends)
def test_a_slow_reader_is_told_the_same(pieces: list[Delta], end: Finish) -> None:
    """To the letter, white space around calls included: what waits is merged only where that changes nothing."""
    pieces = [Delta(reasoning="r")] * MERGE_AT + [*pieces, Delta("", (EOS,), end=end)]

    async def waited() -> list[Delta]:
        inbox = Inbox()
        await inbox.put_all(0, pieces)
        await inbox.put(Event(0, None))
        events = [await inbox.get()]
        while events[-1].piece is not None:
            events.append(await inbox.get())
        return [event.piece for event in events if isinstance(event.piece, Delta)]

    (_, one), (_, other) = run(pieces), run(asyncio.run(waited()))
    assert told(one) == told(other)


def told(whole: Whole) -> tuple[Any, ...]:
    """All but ids of calls, which may be made up."""
    calls = [(call.name, call.text()) for call in whole.calls]
    return whole.text, whole.reasoning, calls, whole.reason, whole.tokens


def comparable(whole: Whole) -> tuple[Any, ...]:
    """Ids of calls may be made up. White space between a text and a call may count as the text's."""
    calls = sorted((call.name, call.text()) for call in whole.calls)
    return "".join((whole.text or "").split()), whole.reasoning, calls, whole.reason, len(whole.tokens)


def test_the_likeliest_alternatives_are_told() -> None:
    """The engine lists the token itself first, and one more than asked for."""
    token = Token(None, "x", -5.0, (("x", -5.0), ("a", -0.1), ("b", -2.0)))
    [part], _ = run([Delta("x", (token,))])
    assert part.tokens[0].top == (("a", -0.1), ("b", -2.0))
