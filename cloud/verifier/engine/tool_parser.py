"""vLLM's parser for calls in Hermes' form, put right in two points: loaded with `--tool-parser-plugin`.

When it streams, vLLM's own (0.32) holds back what may be the beginning of a call and never gives it out if no call
comes of it: an answer that ends with `<` loses that, and one that mentions `<tool_call>` loses all that follows. And
small models, Qwen2.5-Coder above all, often write the call without its tags, bare or as a block of code. Hooks:
`extract_tool_calls_streaming`, and `finish_streaming`, which is called at the end of a text for parsers that say they
are engine-based.
"""

import json
from collections.abc import Sequence
from typing import Any

import regex  # type: ignore[import-untyped]
from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.tool_parsers.abstract_tool_parser import ToolParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

from cloud.verifier.template import HERMES_PARSER

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class WholeHermesToolParser(Hermes2ProToolParser):
    """Takes an answer that begins with a call to an offered tool for that call; loses no text from which none came."""

    engine_based_streaming = True
    _sent_content_idx: int

    def __init__(self, tokenizer: Any, tools: Any = None) -> None:
        super().__init__(tokenizer, tools)
        self._text = ""
        self._bare = bare_call([tool.function.name for tool in tools or () if hasattr(tool, "function")])

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> DeltaMessage | None:
        """The engine gives an engine-based parser only what is new: the whole is kept here."""
        self._text += delta_text
        text: str | None = self._text
        if getattr(request, "response_format", None) is None:
            text = with_tags(self._text, self._bare)
        if text is None:
            return None
        return super().extract_tool_calls_streaming(
            "", text, delta_text, previous_token_ids, current_token_ids, delta_token_ids, request
        )

    def finish_streaming(self) -> DeltaMessage | None:
        """What has been held back, unless a call was told."""
        if any("name" in call for call in self.prev_tool_call_arr):
            return None
        sent: int = self._sent_content_idx
        rest, self._sent_content_idx = self._text[sent:], len(self._text)
        return DeltaMessage(content=rest) if rest else None


def bare_call(names: Sequence[str]) -> Any:
    """Pattern of the beginning of a call to one of these tools, without tags."""
    offered = "|".join(map(regex.escape, names)) or r"(?!)"
    return regex.compile(
        rf'\s*(?:```(?:json)?\s*)?(?P<call>\{{\s*"name"\s*:\s*"(?:{offered})"\s*,\s*"arguments"\s*:\s*\{{)'
    )


def with_tags(text: str, bare: Any) -> str | None:
    """The text with the tags that its first calls lack; none while it may still become a call or something else."""
    done, at = "", 0
    while True:
        found = bare.match(text, at, partial=True)
        if found is None or (done and found.partial):
            return done + text[at:]
        if found.partial:
            return None
        start = found.start("call")
        try:
            _, end = json.JSONDecoder().raw_decode(text, start)
        except ValueError:
            return done + _OPEN + text[start:]
        done, at = done + _OPEN + text[start:end] + _CLOSE, end


ToolParserManager.register_module(HERMES_PARSER, module=WholeHermesToolParser)
