"""`POST /v1/chat/completions`: the request model."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cloud.api.openai.common import GenerationRequest, Job, Strict
from shared.errors import InvalidInput

CHAT_PATH = "/v1/chat/completions"


class TextPart(Strict):
    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    """One message; text only, given as a string or as text parts."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1)]
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_what_is_missing(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if data.get("role") in ("tool", "function") or data.get("tool_calls") or data.get("function_call"):
            raise InvalidInput("Tool calls in `messages` are not supported by Nexus yet.", param="messages")
        parts = data.get("content")
        for part in parts if isinstance(parts, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind != "text":
                raise InvalidInput(
                    f'Content parts of type "{kind[:40]}" in `messages` are not supported: send text parts.',
                    param="messages",
                )
        return {k: v for k, v in data.items() if k not in ("refusal", "tool_calls", "annotations", "audio")}

    def for_engine(self) -> dict[str, Any]:
        content: Any = self.content
        if not isinstance(content, str):
            content = content[0].text if len(content) == 1 else [part.model_dump() for part in content]
        message: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": content,
        }
        if self.name is not None:
            message["name"] = self.name
        return message


class JsonSchema(Strict):
    """A JSON schema that the answer must follow."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    content: Annotated[dict[str, Any], Field(alias="schema")]
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


class ChatRequest(GenerationRequest):
    """A chat completion request; `to_job` is what the verifier gets."""

    NOT_YET: ClassVar[dict[str, tuple[Any, ...]]] = {
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "parallel_tool_calls": (True, False),
        "functions": ([],),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "reasoning_effort": (),
        "verbosity": ("medium",),
        "service_tier": ("auto", "default"),
        "web_search_options": (),
        "safety_identifier": (),
        "prompt_cache_key": (),
        "prompt_cache_retention": (),
    }

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    store: bool = False
    response_format: ResponseFormat | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidInput("`top_logprobs` is only allowed together with `logprobs: true`.", param="top_logprobs")
        if self.store:
            raise InvalidInput("`store: true` is not supported: Nexus keeps no answers.", param="store")
        return self

    def _grammar(self) -> dict[str, Any] | None:
        if self.response_format is None or self.response_format.type == "text":
            return None
        return self.response_format.model_dump(by_alias=True, exclude_none=True)

    def shaped(self) -> bool:
        return super().shaped() or self._grammar() is not None

    def to_job(self) -> Job:
        payload = {"messages": [m.for_engine() for m in self.messages], **self.sampling_payload()}
        if self._grammar() is not None:
            payload["response_format"] = self._grammar()
        if self.logprobs or self.nexus.trace:
            payload |= {"logprobs": True, "top_logprobs": self.top_logprobs or 0}
        return self._job(CHAT_PATH, payload, logprobs=self.logprobs)
