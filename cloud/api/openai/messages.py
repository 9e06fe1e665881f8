"""The messages of a chat request: text, and the tool calls of earlier turns with their results."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cloud.api.openai.strict import Strict
from cloud.api.openai.tools import TOOLS_MAX, ToolCall
from shared.errors import InvalidInput

PARTS_MAX = 2048
"""Of one message."""
_IGNORED = ("refusal", "annotations", "audio", "function_call")
"""What an assistant's message has in an answer and may have when it is sent back: nothing that the model reads."""


class TextPart(Strict):
    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    """One message; text only, given as a string or as text parts."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(min_length=1, max_length=PARTS_MAX, fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=TOOLS_MAX, fail_fast=True)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_what_is_missing(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if data.get("role") == "function" or data.get("function_call"):
            raise InvalidInput(
                "`function_call` and the role `function` in `messages` are an old form of tool calls: use `tool_calls` "
                "and the role `tool`, which Nexus takes instead.",
                param="messages",
            )
        parts = data.get("content")
        for part in parts if isinstance(parts, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind != "text":
                raise InvalidInput(
                    f'Content parts of type "{kind[:40]}" in `messages` are not supported: send text parts.',
                    param="messages",
                )
        if data.get("role") != "assistant":
            return {k: v for k, v in data.items() if k not in _IGNORED or v is not None}
        if data.get("content") is None and isinstance(data.get("refusal"), str):
            data = {**data, "content": data["refusal"]}
        if data.get("reasoning_content") is None and isinstance(data.get("reasoning"), str):
            data = {**data, "reasoning_content": data["reasoning"]}
        ignored = (*_IGNORED, "reasoning")
        return {k: v for k, v in data.items() if k not in ignored and (k, v) != ("tool_calls", [])}

    def for_engine(self) -> dict[str, Any]:
        content: Any = self.content
        if isinstance(content, list):
            content = content[0].text if len(content) == 1 else [part.model_dump() for part in content]
        message: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": content,
        }
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        for name in ("name", "tool_call_id", "reasoning_content"):
            if (value := getattr(self, name)) is not None:
                message[name] = value
        return message

    def check(self, place: int) -> Self:
        """Raises `InvalidInput` for what does not go with the role."""
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            name = f"messages[{place}].content"
            raise InvalidInput(f"Missing required parameter: `{name}`.", param=name)
        for name, role in (("tool_calls", "assistant"), ("reasoning_content", "assistant"), ("tool_call_id", "tool")):
            if self.role != role and getattr(self, name) is not None:
                name = f"messages[{place}].{name}"
                raise InvalidInput(f"`{name}` is only allowed in messages of the role `{role}`.", param=name)
        if self.role == "tool" and self.tool_call_id is None:
            name = f"messages[{place}].tool_call_id"
            raise InvalidInput(f"Missing required parameter: `{name}`.", param=name)
        return self


def check_conversation(messages: Sequence[ChatMessage]) -> None:
    """Raises `InvalidInput` for a message that is wrong by itself, or answers a call that nobody made."""
    called: set[str] = set()
    for place, message in enumerate(messages):
        message.check(place)
        called.update(call.id for call in message.tool_calls or ())
        if message.role == "tool" and message.tool_call_id not in called:
            name = f"messages[{place}].tool_call_id"
            raise InvalidInput(
                f"`{name}` names no call: a message of the role `tool` answers one of the `tool_calls` of an assistant "
                "message before it.",
                param=name,
            )
