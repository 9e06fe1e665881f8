"""vLLM's parser for calls in Hermes' form, without the loss of text: loaded with `--tool-parser-plugin`.

When it streams, vLLM's own (0.32) holds back what may be the beginning of a call and never gives it out if no call
comes of it: an answer that ends with `<` loses that, and one that mentions `<tool_call>` loses all that follows. Hooks:
`extract_tool_calls_streaming`, and `finish_streaming`, which is called at the end of a text for parsers that say they
are engine-based.
"""

from collections.abc import Sequence
from typing import Any

from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.tool_parsers.abstract_tool_parser import ToolParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

from cloud.verifier.template import HERMES_PARSER


class WholeHermesToolParser(Hermes2ProToolParser):
    """Gives the text back, as it is, from which no call came."""

    engine_based_streaming = True
    _sent_content_idx: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._text = ""

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
        before, self._text = self._text, self._text + delta_text
        return super().extract_tool_calls_streaming(
            before, self._text, delta_text, previous_token_ids, current_token_ids, delta_token_ids, request
        )

    def finish_streaming(self) -> DeltaMessage | None:
        """What has been held back, unless a call was told."""
        if any("name" in call for call in self.prev_tool_call_arr):
            return None
        sent: int = self._sent_content_idx
        rest, self._sent_content_idx = self._text[sent:], len(self._text)
        return DeltaMessage(content=rest) if rest else None


ToolParserManager.register_module(HERMES_PARSER, module=WholeHermesToolParser)
