"""What both generation endpoints share: reading a body into a model, the common fields, and the job they become."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from shared.errors import InvalidInput, NexusError

CHOICES_MAX = 8
SEED_MAX = 2**63 - 1 - CHOICES_MAX
StopString = Annotated[str, Field(min_length=1)]


def refuse_not_yet(data: dict[str, Any], names: dict[str, tuple[Any, ...]], prefix: str = "") -> None:
    """Refuse known parameters that Nexus cannot honour yet, unless the value is the neutral one; drop those."""
    for name, neutral in names.items():
        if (value := data.get(name)) is None:
            continue
        if not any(type(value) is type(n) and value == n for n in neutral):
            raise InvalidInput(f"`{prefix}{name}` is not supported by Nexus yet; leave it out.", param=prefix + name)
        del data[name]


class Strict(BaseModel):
    """Unknown fields are refused, and a string is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data


class StreamOptions(Strict):
    include_usage: bool = False


class NexusOptions(Strict):
    """Our own part of a request."""

    privacy: Literal["verifier_only", "any"] = "any"
    """`verifier_only`: no draft node sees the prompt."""
    trace: bool = False

    NOT_YET: ClassVar[dict[str, tuple[Any, ...]]] = {"max_price": ()}

    @model_validator(mode="before")
    @classmethod
    def _name_what_is_missing(cls, data: Any) -> Any:
        if isinstance(data, dict):
            data = dict(data)
            refuse_not_yet(data, cls.NOT_YET, prefix="nexus.")
            if data.get("privacy") in ("own_nodes", "trusted"):
                raise InvalidInput(
                    f'`nexus.privacy` "{data["privacy"]}" is not supported yet; use verifier_only or any.',
                    param="nexus.privacy",
                )
        return data


class GenerationRequest(Strict):
    """Fields that chat completions and completions have in common."""

    NOT_YET: ClassVar[dict[str, tuple[Any, ...]]] = {}

    model: Annotated[str, Field(min_length=1, max_length=256)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    stop: StopString | Annotated[list[StopString], Field(min_length=1, max_length=4)] | None = None
    seed: Annotated[int, Field(ge=0, le=SEED_MAX)] | None = None
    n: Annotated[int, Field(ge=1, le=CHOICES_MAX)] = 1
    user: str | None = None
    nexus: NexusOptions = NexusOptions()

    @model_validator(mode="after")
    def _options_need_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise InvalidInput("`stream_options` is only allowed together with `stream: true`.", param="stream_options")
        return self

    def output_limit(self) -> int | None:
        """Most output tokens; the newer name wins."""
        return self.max_completion_tokens or self.max_tokens

    def sampling_payload(self) -> dict[str, Any]:
        """Every parameter spelled out, so that no default of the model's folder shapes the answer."""
        payload: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "stop": [self.stop] if isinstance(self.stop, str) else self.stop or [],
        }
        if (limit := self.output_limit()) is not None:
            payload["max_tokens"] = limit
        return payload


@dataclass(frozen=True, kw_only=True)
class Job:
    """One request, ready for the verifier: a payload for each choice differs only in seed and stream."""

    path: str
    model: str
    payload: dict[str, Any]
    n: int
    seed: int | None
    stream: bool
    include_usage: bool
    logprobs: bool
    """The caller asked for log probabilities."""
    trace: bool
    privacy: str


R = TypeVar("R", bound=GenerationRequest)


def parse(body: bytes, model: type[R]) -> R:
    """Read a request body; raises `InvalidInput` that names the first field that is wrong."""
    try:
        data = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidInput(f"The request body is not valid JSON: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidInput("The request body must be a JSON object.")
    refuse_not_yet(data, model.NOT_YET)
    try:
        return model.model_validate(data)
    except NexusError:
        raise
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> InvalidInput:
    details = error.errors(include_url=False, include_context=True)
    unknown = [d for d in details if d["type"] == "extra_forbidden"]
    first = (unknown or details)[0]
    # Of the branches of a union, the one that got deepest is the one that was meant.
    branches = [d for d in details if field_name(d["loc"]).startswith(field_name(first["loc"]))]
    first = max(branches, key=lambda d: len(field_name(d["loc"])))
    param = field_name(first["loc"])
    if first["type"] == "extra_forbidden":
        return InvalidInput(f"Unknown parameter: `{param}`.", param=param)
    if first["type"] == "missing":
        return InvalidInput(f"Missing required parameter: `{param}`.", param=param)
    return InvalidInput(f"Invalid value for `{param}`: {_words(first)}", param=param)


def _words(detail: ErrorDetails) -> str:
    message = detail["msg"].removeprefix("Value error, ")
    return message[0].lower() + message[1:] + ("" if message.endswith(".") else ".")


def field_name(loc: tuple[int | str, ...]) -> str:
    """`messages[0].content` from pydantic's location; names of union branches are left out."""
    name = ""
    for part in loc:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part.isidentifier() and part not in _BRANCHES:
            name += f".{part}" if name else part
    return name or "body"


_BRANCHES = frozenset({"str", "int", "list", "function", "constrained"})


def finite(value: float | None) -> float | None:
    """A number that JSON can carry; the engine's floor stands in for minus infinity."""
    if value is None or math.isfinite(value):
        return value
    return -9999.0
