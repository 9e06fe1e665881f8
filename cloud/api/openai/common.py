"""What both generation endpoints share: reading a body into a model, the common fields, and the job they become."""

import asyncio
import math
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from cloud.api.accounts.money import nano
from cloud.api.bodies import json_object, shown, words
from cloud.api.broker.policy import StreamPolicy
from cloud.api.openai.job import Job
from cloud.api.openai.strict import Strict, refuse_not_yet
from shared.draftport.messages import LOGIT_BIAS_ARG, MIN_P_ARG
from shared.errors import InvalidInput, NexusError
from shared.wire.limits import TOKEN_ID_END, Limits

BIAS_MAX = 100.0
BIASES_MAX = 1024
"""Most entries of `logit_bias`: each is looked at in every step."""
CHOICES_MAX = 8
PARSED_AT_ONCE = 16 << 10
"""Largest body in bytes that is parsed on the event loop: well under a millisecond for an ordinary one."""
SEED_MAX = 2**63 - 1 - CHOICES_MAX
StopString = Annotated[str, Field(min_length=1)]


class StreamOptions(Strict):
    include_usage: bool = False
    continuous_usage_stats: bool = False
    """vLLM's, and what load generators send: with `include_usage`, each chunk tells the usage so far."""


class NexusOptions(Strict):
    """Our own part of a request."""

    privacy: Literal["verifier_only", "any"] | None = None
    """`verifier_only`: no draft node sees the prompt; none = what the deployment does by default."""
    nodes: bool | None = None
    """Whether nodes may draft; none = as `privacy` says."""
    max_draft_tokens: Annotated[int, Field(ge=0, le=Limits().draft_tokens)] | None = None
    max_wait_ms: Annotated[float, Field(ge=0, le=60_000)] | None = None
    max_price: str | None = None
    """Most dollars that the answer may cost."""
    trace: bool = False

    @model_validator(mode="before")
    @classmethod
    def _name_what_is_missing(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("privacy") in ("own_nodes", "trusted"):
            raise InvalidInput(
                f'`nexus.privacy` "{data["privacy"]}" is not supported yet; use verifier_only or any.',
                param="nexus.privacy",
            )
        return data

    @field_validator("max_price")
    @classmethod
    def _is_money(cls, value: str | None) -> str | None:
        if value is not None:
            nano(value)
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.nodes and self.privacy == "verifier_only":
            raise InvalidInput(
                '`nexus.nodes` is true, but `nexus.privacy` "verifier_only" lets no node see the prompt: '
                "leave one of them out.",
                param="nexus.nodes",
            )
        return self

    def to_policy(self) -> StreamPolicy:
        """What the broker is told; what is none there is the deployment's to decide."""
        allowed = None if self.privacy is None and self.nodes is None else True
        if self.privacy == "verifier_only" or self.nodes is False:
            allowed = False
        return StreamPolicy(allow_nodes=allowed, max_draft_tokens=self.max_draft_tokens, max_wait_ms=self.max_wait_ms)


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
    top_k: Annotated[int, Field(ge=-1, lt=TOKEN_ID_END)] = 0
    """0 and -1 keep all."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] = 1.0
    logit_bias: dict[int, float] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    stop: StopString | Annotated[list[StopString], Field(min_length=1, max_length=4)] | None = None
    seed: Annotated[int, Field(ge=0, le=SEED_MAX)] | None = None
    n: Annotated[int, Field(ge=1, le=CHOICES_MAX)] = 1
    ignore_eos: bool = False
    """vLLM's: go on to the output limit, for measurements."""
    user: str | None = None
    nexus: NexusOptions = NexusOptions()

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _is_bias_by_id(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if len(value) > BIASES_MAX:
            raise InvalidInput(f"`logit_bias` may name at most {BIASES_MAX} tokens.", param="logit_bias")
        biases: dict[int, float] = {}
        for key, bias in value.items():
            if not (key.isascii() and key.isdecimal()) or len(key) > 10:
                raise InvalidInput(
                    f"`logit_bias` names {key[:40]!r}, which is no token id: use decimal ids as keys.",
                    param="logit_bias",
                )
            if type(bias) not in (int, float) or not -BIAS_MAX <= bias <= BIAS_MAX:
                raise InvalidInput(
                    f"`logit_bias` of token {key} must be a number from -100 to 100.", param="logit_bias"
                )
            biases[int(key)] = float(bias)
        return biases

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
            "top_k": max(self.top_k, 0),
            "min_p": 0.0,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "stop": [self.stop] if isinstance(self.stop, str) else self.stop or [],
        }
        if (limit := self.output_limit()) is not None:
            payload["max_tokens"] = limit
        if self.ignore_eos:
            payload["ignore_eos"] = True
        return payload

    def engine_arguments(self) -> dict[str, Any]:
        """What the engine refuses by its own names when it speculates, as extra arguments for the sampler."""
        arguments: dict[str, Any] = {}
        if self.min_p:
            arguments[MIN_P_ARG] = self.min_p
        if self.logit_bias:
            arguments[LOGIT_BIAS_ARG] = [each for pair in self.logit_bias.items() for each in pair]
        return arguments

    def shaped(self) -> bool:
        """Whether the target's choice depends on things that draft nodes are not told."""
        neutral = self.repetition_penalty == 1 and not self.presence_penalty and not self.frequency_penalty
        return not neutral or bool(self.logit_bias)

    def _job(self, path: str, payload: dict[str, Any], *, logprobs: bool, **more: Any) -> Job:
        return Job(
            path=path,
            model=self.model,
            payload=payload,
            engine_arguments=self.engine_arguments(),
            biased=tuple(self.logit_bias or ()),
            n=self.n,
            seed=self.seed,
            stops=tuple(payload["stop"]),
            stream=self.stream,
            include_usage=self.stream_options is not None and self.stream_options.include_usage,
            continuous_usage=self.stream_options is not None and self.stream_options.continuous_usage_stats,
            logprobs=logprobs,
            trace=self.nexus.trace,
            max_price=None if self.nexus.max_price is None else nano(self.nexus.max_price),
            policy=self.nexus.to_policy(),
            shaped=self.shaped(),
            **more,
        )


R = TypeVar("R", bound=GenerationRequest)


async def read(body: bytes, model: type[R]) -> R:
    """As `parse`, without holding up the event loop: a large body may take long, above all a hostile one."""
    return await asyncio.to_thread(parse, body, model) if len(body) > PARSED_AT_ONCE else parse(body, model)


def parse(body: bytes, model: type[R]) -> R:
    """Read a request body; raises `InvalidInput` that names the first field that is wrong."""
    data = json_object(body)
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
    # Of the branches of a union, the one that got deepest is the one that was meant, or the one whose type it has.
    branches = [d for d in details if field_name(d["loc"]).startswith(field_name(first["loc"]))]
    first = max(branches, key=lambda d: (len(field_name(d["loc"])), not d["type"].endswith("_type")))
    param = field_name(first["loc"])
    if first["type"] == "extra_forbidden":
        param = _unknown(first["loc"])
        return InvalidInput(f"Unknown parameter: `{param}`.", param=param)
    if first["type"] == "missing":
        return InvalidInput(f"Missing required parameter: `{param}`.", param=param)
    return InvalidInput(f"Invalid value for `{param}`: {words(first)}", param=param)


def _unknown(loc: tuple[int | str, ...]) -> str:
    """The place of a field that nobody knows."""
    name, parent = shown(str(loc[-1])), field_name(loc[:-1])
    return (name or "body") if parent == "body" else f"{parent}.{name}"


def field_name(loc: tuple[int | str, ...]) -> str:
    """`messages[0].content` from pydantic's location; names of union branches are left out."""
    name = ""
    for part in loc:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part.isidentifier() and part not in _BRANCHES:
            name += f".{part}" if name else part
    return name or "body"


_BRANCHES = frozenset({"str", "int", "list", "constrained", "NamedTool"})
"""What pydantic puts into a location for the branch of a union."""


def finite(value: float | None) -> float | None:
    """A number that JSON can carry; the engine's floor stands in for minus infinity."""
    if value is None or math.isfinite(value):
        return value
    return -9999.0
