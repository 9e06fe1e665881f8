"""The parser for tool calls and the gateway's reading of it: the same calls, however many tokens a step brings."""

import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from support.byte_level import tokens_of
from support.jobs import CHAT_JOB
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionRequest,
    ChatCompletionResponseStreamChoice,
    ChatCompletionStreamResponse,
)
from vllm.parser.parser_manager import ParserManager
from vllm.tool_parsers.abstract_tool_parser import ToolParserManager

from cloud.api.openai.choice import Choice, Whole
from cloud.api.upstream.chunks import Delta, read_chunk
from cloud.api.upstream.errors import Asked
from cloud.verifier.engine import tool_parser
from cloud.verifier.template import HERMES_PARSER

pytestmark = pytest.mark.model

TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("weather", "time")
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "São Paulo", "note": "a } \\" <b> 東京"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
ARGUMENTS = {"city": "São Paulo", "note": 'a } " <b> 東京'}
ANSWERS = {
    "one": CALL,
    "two": f"{CALL}\n{OTHER}",
    "three": f"{OTHER}\n{CALL}\n{OTHER}",
    "text before": f"Let me look.\n\n{CALL}",
    "no call": "Just <b>text</b>, 東京 and 1 < 2.",
    "the beginning of a tag": "Almost a call: <tool",
    "a tag and no call": "Use <tool_call> like this.",
    "bare": CALL[12:-13],
    "bare twice": f"{CALL[12:-13]}\n{OTHER[12:-13]}\n",
    "a block of code": f"```json\n{CALL[12:-13]}\n```",
    "bare and cut off": CALL[12:60],
    "JSON that is no call": '{"name": "weather report", "arguments": {}}',
    "JSON of another kind": '{"name": "weather", "args": {}}',
    "JSON that begins as a call": '{"name": "wea',
    "cut off": CALL[:60],
    "cut off in the name": CALL[:22],
}


@lru_cache
def tokenizers(folder: Path) -> tuple[Any, Tokenizer]:
    return AutoTokenizer.from_pretrained(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))


def answer(folder: Path, text: str, group: int | None) -> Whole:
    """What the caller gets when the model writes `text`, in steps of so many tokens; none: at random."""
    tokenizer, fast = tokenizers(folder)
    ids, _ = tokens_of(fast, text)
    ToolParserManager.import_tool_parser(tool_parser.__name__)
    parser_class = ParserManager.get_parser(tool_parser_name=HERMES_PARSER, enable_auto_tools=True, tokenizer=tokenizer)
    assert parser_class is not None
    request = ChatCompletionRequest(messages=[{"role": "user", "content": "x"}], tools=TOOLS, tool_choice="auto")
    parser = parser_class(tokenizer, request.tools)
    stream = DecodeStream(skip_special_tokens=False)
    choice = Choice(0, CHAT_JOB)
    rng = random.Random(1)
    while ids:
        size = group or rng.randint(1, 6)
        new, ids = ids[:size], ids[size:]
        delta = "".join(stream.step(fast, id_) or "" for id_ in new)
        message = parser.parse_delta(delta, new, request, [1, 2], finished=not ids)
        reason = None if ids else "stop"
        if message is None and reason is None:
            continue
        chunk = ChatCompletionStreamResponse(
            model="m",
            choices=[ChatCompletionResponseStreamChoice(index=0, delta=message or {}, finish_reason=reason)],
        )
        for piece in read_chunk(chunk.model_dump_json(exclude_unset=True).encode(), Asked("m", "messages", None)):
            assert isinstance(piece, Delta)
            choice.feed(piece)
    return choice.whole()


def shown(whole: Whole) -> tuple[Any, ...]:
    """All but the ids, which are made up."""
    return whole.text, [(call.name, call.text()) for call in whole.calls], whole.reason


@pytest.mark.parametrize("name", ANSWERS)
def test_calls_do_not_depend_on_the_size_of_steps(small_model: Path, name: str) -> None:
    """One token a step, five, or any number: the same text, calls and end."""
    by_one, *others = [shown(answer(small_model, ANSWERS[name], group)) for group in (1, 5, None, 1000)]
    assert all(other == by_one for other in others), [by_one, *others]


def test_what_is_called(small_model: Path) -> None:
    """Names, arguments, ids and ends."""
    whole = answer(small_model, ANSWERS["two"], 3)
    assert [call.name for call in whole.calls] == ["weather", "time"]
    assert [json.loads(call.text()) for call in whole.calls] == [ARGUMENTS, {}]
    assert len({call.id for call in whole.calls}) == 2 and all(call.id.startswith("call_") for call in whole.calls)
    assert (whole.text, whole.reason) == (None, "tool_calls")
    assert answer(small_model, ANSWERS["text before"], 3).text == "Let me look.\n\n"
    for name, count in (("bare", 1), ("bare twice", 2), ("a block of code", 1)):
        whole = answer(small_model, ANSWERS[name], 3)
        assert [json.loads(call.text()) for call in whole.calls] == [ARGUMENTS, {}][:count], name
        assert (whole.text, whole.reason) == (None, "tool_calls"), name
    for name in (
        "JSON that is no call",
        "JSON of another kind",
        "JSON that begins as a call",
        "no call",
        "the beginning of a tag",
        "a tag and no call",
        "cut off in the name",
    ):
        whole = answer(small_model, ANSWERS[name], 2)  # nothing of the text is lost
        assert (whole.text, whole.calls, whole.reason) == (ANSWERS[name], [], "stop"), name
