"""`POST /v1/chat/completions`: the request model."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cloud.api.openai.common import GenerationRequest
from cloud.api.openai.job import Job, ToolRules
from cloud.api.openai.messages import ChatMessage, check_conversation
from cloud.api.openai.strict import JsonObject, Strict
from cloud.api.openai.tools import NamedTool, ToolFields
from shared.errors import InvalidInput

CHAT_PATH = "/v1/chat/completions"
MESSAGES_MAX = 8192
"""More than any context holds in sensible messages; each one costs time before anything is known of its length."""


class JsonSchema(Strict):
    """A JSON schema that the answer must follow."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    content: Annotated[JsonObject, Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(Strict):
    """Free text, any JSON object, or JSON by a schema; the engine's grammars see to it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_with_its_type(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise InvalidInput(
                '`response_format.json_schema` must be there when `response_format.type` is "json_schema", and only '
                "then.",
                param="response_format.json_schema",
            )
        return self


class ChatRequest(ToolFields, GenerationRequest):
    """A chat completion request; `to_job` is what the verifier gets."""

    NOT_YET: ClassVar[dict[str, tuple[Any, ...]]] = {
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "verbosity": ("medium",),
        "service_tier": ("auto", "default"),
        "web_search_options": (),
        "prompt_cache_retention": (),
    }

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MESSAGES_MAX, fail_fast=True)]
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    store: bool = False
    response_format: ResponseFormat | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_old_functions(cls, data: Any) -> Any:
        """The form before `tools`, refused in words; the values that ask for nothing are dropped."""
        if not isinstance(data, dict):
            return data
        for name, neutral in (("functions", [[]]), ("function_call", ["none", "auto"])):
            if data.get(name) is not None and data[name] not in neutral:
                instead = "tools" if name == "functions" else "tool_choice"
                raise InvalidInput(f"`{name}` is the old form of `{instead}`, which Nexus takes instead.", param=name)
        return {k: v for k, v in data.items() if k not in ("functions", "function_call")}

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidInput("`top_logprobs` is only allowed together with `logprobs: true`.", param="top_logprobs")
        if self.store:
            raise InvalidInput("`store: true` is not supported: Nexus keeps no answers.", param="store")
        check_conversation(self.messages)
        return self

    def _grammar(self) -> dict[str, Any] | None:
        if self.response_format is None or self.response_format.type == "text":
            return None
        return self.response_format.model_dump(by_alias=True, exclude_none=True)

    def shaped(self) -> bool:
        return super().shaped() or self._grammar() is not None or self.constrains()

    def to_job(self) -> Job:
        payload = {"messages": [m.for_engine() for m in self.messages], **self.sampling_payload()}
        if self._grammar() is not None:
            payload["response_format"] = self._grammar()
        if self.reasoning_effort is not None:
            payload["reasoning_effort"] = self.reasoning_effort
        if self.logprobs or self.nexus.trace:
            payload |= {"logprobs": True, "top_logprobs": engine_top(self.top_logprobs or 0)}
        rules = None
        has_calls = any(message.tool_calls or message.role == "tool" for message in self.messages)
        if self.offers_tools():
            payload |= self.tools_payload()
            rules = ToolRules(parallel=self.parallel_tool_calls, named=isinstance(self.tool_choice, NamedTool))
        return self._job(
            CHAT_PATH,
            payload,
            logprobs=self.logprobs,
            tools=rules,
            has_calls=has_calls,
            top_logprobs=self.top_logprobs or 0,
        )


def engine_top(asked: int) -> int:
    """How many alternatives to ask the engine for. It counts the token itself as the first, likely or not, so that one
    more is needed to see the likeliest ones."""
    return asked + 1 if asked else 0
