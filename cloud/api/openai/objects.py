"""Usage and model cards, and which parameters a model takes."""

from dataclasses import dataclass, field
from typing import Any

from cloud.api.accounts.money import PICO_PLACES, dollars
from cloud.api.accounts.prices import FREE, Price
from cloud.api.ports import Served
from cloud.api.upstream.chunks import Usage
from cloud.api.upstream.client import ServedModel

Json = dict[str, Any]

SUPPORTED_PARAMETERS = (
    "frequency_penalty",
    "ignore_eos",
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

    counted: dict[int, Usage] = field(default_factory=dict)
    """The engine's latest count of each choice that it has counted."""

    def add(self, index: int, usage: Usage) -> None:
        self.counted[index] = usage

    @property
    def prompt_tokens(self) -> int:
        return self._first.prompt_tokens if self.counted else 0

    @property
    def cached_tokens(self) -> int:
        return self._first.cached_tokens if self.counted else 0

    @property
    def completion_tokens(self) -> int:
        return sum(usage.completion_tokens for usage in self.counted.values())

    @property
    def reasoning_tokens(self) -> int | None:
        known = [u.reasoning_tokens for u in self.counted.values() if u.reasoning_tokens is not None]
        return sum(known) if known else None

    @property
    def _first(self) -> Usage:
        return self.counted[min(self.counted)]


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


def model_object(model: ServedModel, served: Served | None, price: Price = FREE) -> Json:
    """`served`: what the draft port says of the model, if one is attached."""
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "nexus",
        "context_length": model.context_length,
        "max_output_length": model.context_length,
        "pricing": {
            "prompt": dollars(price.prompt, PICO_PLACES),
            "completion": dollars(price.completion, PICO_PLACES),
            "input_cache_read": dollars(price.cached, PICO_PLACES),
        },
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
