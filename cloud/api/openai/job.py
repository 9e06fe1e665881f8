"""One request, ready for the verifier, and what about it the answer has to know."""

from dataclasses import dataclass
from typing import Any

from cloud.api.accounts.money import Nano
from cloud.api.broker.policy import StreamPolicy
from cloud.api.ports import Served
from cloud.api.upstream.errors import NO_TOOLS
from shared.draftport.messages import LOGIT_BIAS_ARG, MIN_P_ARG
from shared.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ToolRules:
    """How the answer may call tools: one call or several, and whether the caller named the one to call."""

    parallel: bool = True
    named: bool = False


@dataclass(frozen=True, kw_only=True)
class Job:
    """One request, ready for the verifier: a payload for each choice differs only in seed and stream."""

    path: str
    model: str
    payload: dict[str, Any]
    engine_arguments: dict[str, Any]
    """Parameters that travel beside the engine's own."""
    biased: tuple[int, ...]
    """Token ids that `logit_bias` names; whether the model has them is checked when the model is known."""
    n: int
    seed: int | None
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    logprobs: bool
    """The caller asked for log probabilities."""
    trace: bool
    policy: StreamPolicy
    shaped: bool
    """The target's choice depends on things that draft nodes are not told: their misses say nothing about them."""
    tools: ToolRules | None = None
    """None when the answer calls no tools."""
    max_price: Nano | None = None
    """Most that the answer may cost."""
    has_calls: bool = False
    """The conversation so far has tool calls."""
    continuous_usage: bool = False
    """With `include_usage`: each chunk tells the usage so far."""
    top_logprobs: int | None = None
    """Alternatives for each token that the caller wants to see; none: as many as the engine lists."""

    def for_plugin(self, *, known: bool) -> dict[str, Any]:
        """The part of a payload that travels beside the engine's own fields. While the plugin of the verifier is not
        known to be there, the engine's own fields say it: a plain engine would ignore the other ones in silence."""
        if known or not self.engine_arguments:
            return {"vllm_xargs": self.engine_arguments}
        pairs = self.engine_arguments.get(LOGIT_BIAS_ARG, ())
        own: dict[str, Any] = {"vllm_xargs": {}}
        if (min_p := self.engine_arguments.get(MIN_P_ARG)) is not None:
            own["min_p"] = min_p
        if pairs:
            own["logit_bias"] = {str(token): bias for token, bias in zip(pairs[::2], pairs[1::2], strict=True)}
        return own

    def check(self, served: Served | None) -> None:
        """Raises `InvalidInput` when the model cannot do what is asked. What is not known is the engine's to say,
        except for what it would ignore."""
        if "reasoning_effort" in self.payload and (served is None or not served.effort):
            raise InvalidInput(
                "`reasoning_effort` is not possible with this model: it does not reason, or its effort cannot be set.",
                param="reasoning_effort",
            )
        if served is None:
            return
        if self.biased and (largest := max(self.biased)) >= served.vocabulary:
            raise InvalidInput(
                f"`logit_bias` names token {largest}, but this model's token ids end at {served.vocabulary - 1}.",
                param="logit_bias",
            )
        if self.tools is not None and not served.tools:
            raise InvalidInput(NO_TOOLS, param="tools")
        if self.has_calls and not served.tools:
            raise InvalidInput(
                "`messages` hold tool calls, which this model is not told of: it is served without them.",
                param="messages",
            )
