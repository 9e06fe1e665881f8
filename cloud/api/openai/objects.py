"""Usage and model cards, and which parameters a model takes."""

from dataclasses import dataclass
from typing import Any

from cloud.api.ports import Served
from cloud.api.upstream.chunks import Usage
from cloud.api.upstream.client import ServedModel

Json = dict[str, Any]

SUPPORTED_PARAMETERS = (
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "min_p",
    "n",
    "presence_penalty",
    "repetition_penalty",
    "response_format",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_k",
    "top_logprobs",
    "top_p",
)
"""Of every model."""
TOOL_PARAMETERS = ("parallel_tool_calls", "tool_choice", "tools")
"""Of models that are served with tool calls."""
EFFORT_PARAMETERS = ("reasoning_effort",)
"""Of models that can be told how much to reason."""


@dataclass(slots=True)
class Totals:
    """Usage of a request; the prompt counts once, whatever the number of choices."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int | None = None

    def add(self, index: int, usage: Usage) -> None:
        self.completion_tokens += usage.completion_tokens
        if usage.reasoning_tokens is not None:
            self.reasoning_tokens = (self.reasoning_tokens or 0) + usage.reasoning_tokens
        if index == 0:
            self.prompt_tokens = usage.prompt_tokens
            self.cached_tokens = usage.cached_tokens


def usage_object(totals: Totals) -> Json:
    usage: Json = {
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "total_tokens": totals.prompt_tokens + totals.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": totals.cached_tokens},
    }
    if totals.reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": totals.reasoning_tokens}
    return usage


def model_object(model: ServedModel, served: Served | None) -> Json:
    """`served`: what the draft port says of the model, if one is attached."""
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "nexus",
        "context_length": model.context_length,
        "supported_parameters": sorted(parameters(served)),
    }


def parameters(served: Served | None) -> list[str]:
    """Names of the optional parameters that this model takes."""
    names = list(SUPPORTED_PARAMETERS)
    if served is not None and served.tools:
        names += TOOL_PARAMETERS
    if served is not None and served.effort:
        names += EFFORT_PARAMETERS
    return names


def fingerprint(model: str, served: Served | None) -> str | None:
    """`system_fingerprint`: model, engine and sampler, each with its version; the same seed gives the same tokens only
    where it is the same. None while no draft port says what they are."""
    return f"{model}/{served.sampler}" if served is not None and served.sampler else None
