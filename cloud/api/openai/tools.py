"""Tools in a request: what may be called, what must be, and the calls of earlier messages."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cloud.api.openai.strict import JsonObject, Strict
from shared.errors import InvalidInput

TOOLS_MAX = 128
FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


def _no_function(data: Any) -> str | None:
    """The type, shortened to be shown, of what is said to be something else than a function."""
    kind = data.get("type") if isinstance(data, dict) else None
    return kind[:40] if isinstance(kind, str) and kind != "function" else None


class FunctionDefinition(Strict):
    name: FunctionName
    description: str | None = None
    parameters: JsonObject | None = None
    """JSON schema of the arguments."""
    strict: bool | None = None
    """Whether a grammar holds the arguments to the schema."""


class Tool(Strict):
    type: Literal["function"]
    function: FunctionDefinition

    @model_validator(mode="before")
    @classmethod
    def _only_functions(cls, data: Any) -> Any:
        if (kind := _no_function(data)) is not None:
            raise InvalidInput(f'`tools` of type "{kind}" are not supported: send functions.', param="tools")
        return data

    def for_engine(self) -> dict[str, Any]:
        return {"type": "function", "function": self.function.model_dump(exclude_none=True)}


class FunctionReference(Strict):
    name: FunctionName


class NamedTool(Strict):
    """A choice of the one tool that must be called."""

    type: Literal["function"]
    function: FunctionReference

    @model_validator(mode="before")
    @classmethod
    def _only_functions(cls, data: Any) -> Any:
        if (kind := _no_function(data)) is not None:
            raise InvalidInput(
                f'`tool_choice` of type "{kind}" is not supported: use none, auto, required or a function.',
                param="tool_choice",
            )
        return data


class CalledFunction(Strict):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: str


class ToolCall(Strict):
    """A call in an assistant message of the conversation so far."""

    id: Annotated[str, Field(min_length=1, max_length=256)]
    type: Literal["function"] = "function"
    function: CalledFunction


class ToolFields(Strict):
    """The part of a chat request that is about tools."""

    tools: Annotated[list[Tool], Field(max_length=TOOLS_MAX, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool = True

    @model_validator(mode="after")
    def _choice_is_offered(self) -> Self:
        names = [tool.function.name for tool in self.tools or ()]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidInput(f"`tools` has the function `{twice}` twice.", param="tools")
        match self.tool_choice:
            case NamedTool(function=FunctionReference(name=name)) if name not in names:
                raise InvalidInput(f"`tool_choice` names `{name}`, which is not among `tools`.", param="tool_choice")
            case "required" if not names:
                raise InvalidInput("`tool_choice` is required, but there are no `tools`.", param="tool_choice")
        return self

    def offers_tools(self) -> bool:
        """Whether the model is told of tools: not when it may call none, as it might call one nevertheless."""
        return bool(self.tools) and self.tool_choice != "none"

    def tools_payload(self) -> dict[str, Any]:
        """The engine's own fields; its parsers and grammars do the rest."""
        if not self.offers_tools():
            return {}
        choice: Any = self.tool_choice or "auto"
        if isinstance(choice, NamedTool):
            choice = choice.model_dump()
        return {
            "tools": [tool.for_engine() for tool in self.tools or ()],
            "tool_choice": choice,
            "parallel_tool_calls": self.parallel_tool_calls,
        }

    def constrains(self) -> bool:
        """Whether a grammar has a say in what the model writes."""
        strict = any(tool.function.strict for tool in self.tools or ())
        return self.offers_tools() and (
            strict or self.tool_choice not in (None, "auto") or not self.parallel_tool_calls
        )
