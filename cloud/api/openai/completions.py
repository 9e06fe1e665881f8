"""`POST /v1/completions`: the request model."""

from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from cloud.api.openai.common import GenerationRequest
from cloud.api.openai.job import Job
from shared.errors import InvalidInput

COMPLETIONS_PATH = "/v1/completions"
DEFAULT_MAX_TOKENS = 16
TokenIdField = Annotated[int, Field(ge=0, lt=2**31)]


class CompletionRequest(GenerationRequest):
    """A completion request for one prompt, as text or as token ids."""

    NOT_YET: ClassVar[dict[str, tuple[Any, ...]]] = {
        "best_of": (1,),
        "echo": (False,),
        "suffix": ("",),
    }

    prompt: str | Annotated[list[TokenIdField], Field(min_length=1, fail_fast=True)]
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_prompt(cls, value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], str | list):
            if len(value) > 1:
                raise InvalidInput("`prompt` must hold one prompt: send one request for each.", param="prompt")
            return value[0]
        return value

    def to_job(self) -> Job:
        payload = {"prompt": self.prompt, "max_tokens": DEFAULT_MAX_TOKENS, **self.sampling_payload()}
        if self.logprobs is not None or self.nexus.trace:
            payload["logprobs"] = self.logprobs or 0
        return self._job(COMPLETIONS_PATH, payload, logprobs=self.logprobs is not None)
