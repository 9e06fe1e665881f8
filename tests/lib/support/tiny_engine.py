"""The real sampler over a table instead of a model: logits depend on the last token only, so all is known exactly.

Everything but the forward pass is the product's and vLLM's own code: `CoupledSampler`, vLLM's sampler and rejection
sampler for penalties and masks, its metadata of batch and drafts.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from cloud.verifier.engine.sampler import CoupledSampler

Drafter = Callable[["TinyEngine"], "list[list[int]]"]
"""What to draft for each request in the coming step."""


class TinyEngine:
    """A batch of requests with one set of parameters and one prompt; `step` is what an engine's step is to them."""

    def __init__(
        self, table: torch.Tensor, prompt: Sequence[int], names: Sequence[str], make: Callable[[int], dict[str, Any]]
    ) -> None:
        """
        Args:
            table: float32 [vocabulary, vocabulary], logits after each token.
            prompt: token ids; all requests begin behind the last of them.
            names: request ids.
            make: request's number -> keywords of its sampling parameters.
        """
        self.table, self.prompt, self.names = table, list(prompt), list(names)
        self.params = [SamplingParams(max_tokens=1000, **make(number)) for number in range(len(names))]
        self.offset = len(prompt)
        """Position of the first output token. May be set, so that one batch serves as many: noise goes by position."""
        self.outputs: list[list[int]] = [[] for _ in names]
        sampler = Sampler()
        self.batch = SimpleNamespace(
            num_reqs=len(names), req_ids=self.names, update_async_output_token_ids=lambda: None
        )
        runner = SimpleNamespace(
            input_batch=self.batch,
            requests={
                name: SimpleNamespace(sampling_params=params)
                for name, params in zip(self.names, self.params, strict=True)
            },
            sampler=sampler,
            rejection_sampler=RejectionSampler(sampler),
            model_config=SimpleNamespace(seed=0),
        )
        self.sampler = CoupledSampler(runner)
        self._fixed = self._what_stays()

    def restart(self, offset: int) -> None:
        """All requests anew, with their first output token at this position."""
        self.offset, self.outputs = offset, [[] for _ in self.names]

    def last(self, request: int) -> int:
        """The token that the next one follows."""
        return (self.outputs[request] or self.prompt)[-1]

    def step(self, drafts: Sequence[Sequence[int]] | None = None) -> list[list[int]]:
        """One step of all requests; what each committed."""
        proposed = [list(draft) for draft in drafts or [[] for _ in self.names]]
        inputs = [token for request, draft in enumerate(proposed) for token in (self.last(request), *draft)]
        self.batch.num_tokens_no_spec = np.array([self.offset + len(output) for output in self.outputs], dtype=np.int32)
        self.batch.sampling_metadata = self._metadata(proposed)
        out = self.sampler(self.table[torch.tensor(inputs)], _rows_of(proposed) if any(proposed) else None)
        committed = [[token for token in row if token >= 0] for row in out.sampled_token_ids.tolist()]
        for output, tokens in zip(self.outputs, committed, strict=True):
            output += tokens
        return committed

    def run(self, tokens: int, drafter: Drafter | None = None) -> torch.Tensor:
        """Steps until every request has so many tokens; int64 [requests, tokens]."""
        while any(len(output) < tokens for output in self.outputs):
            self.step(drafter(self) if drafter else None)
        return torch.tensor([output[:tokens] for output in self.outputs])

    def _metadata(self, proposed: list[list[int]]) -> SamplingMetadata:
        penalised = not self._fixed["no_penalties"]
        return SamplingMetadata(
            **self._fixed, output_token_ids=self.outputs if penalised else [], spec_token_ids=proposed
        )

    def _what_stays(self) -> dict[str, Any]:
        """The metadata that no step changes."""

        def column(name: str) -> torch.Tensor:
            return torch.tensor([float(getattr(params, name)) for params in self.params])

        vocabulary = self.table.shape[1]
        temperature, top_p = column("temperature"), column("top_p")
        top_k = torch.tensor([params.top_k if params.top_k > 0 else vocabulary for params in self.params])
        frequency, presence, repetition = (
            column(f"{name}_penalty") for name in ("frequency", "presence", "repetition")
        )
        free = not bool((frequency != 0).any() | (presence != 0).any() | (repetition != 1).any())
        return {
            "temperature": temperature,
            "all_greedy": bool((temperature == 0).all()),
            "all_random": bool((temperature > 0).all()),
            "top_p": top_p if bool((top_p < 1).any()) else None,
            "top_k": top_k if bool((top_k < vocabulary).any()) else None,
            "generators": {},
            "max_num_logprobs": None,
            "no_penalties": free,
            "prompt_token_ids": None if free else torch.tensor([self.prompt]).expand(len(self.names), -1),
            "frequency_penalties": frequency,
            "presence_penalties": presence,
            "repetition_penalties": repetition,
            "allowed_token_ids_mask": None,
            "bad_words_token_ids": {},
            "logitsprocs": LogitsProcessors(),
        }


def _rows_of(proposed: list[list[int]]) -> SpecDecodeMetadata:
    """Which rows are drafts and which come after them, as the model runner lays them out."""
    counts = np.array([len(draft) for draft in proposed])
    ends = np.cumsum(counts + 1)
    bonus = ends - 1
    target = np.setdiff1d(np.arange(ends[-1]), bonus)
    as_int = {"dtype": torch.int32}
    return SpecDecodeMetadata(
        draft_token_ids=torch.tensor([token for draft in proposed for token in draft], **as_int),
        num_draft_tokens=counts.tolist(),
        cu_num_draft_tokens=torch.tensor(np.cumsum(counts), **as_int),
        cu_num_sampled_tokens=torch.tensor(ends, **as_int),
        target_logits_indices=torch.tensor(target, **as_int),
        bonus_logits_indices=torch.tensor(bonus, **as_int),
        logits_indices=torch.arange(ends[-1], **as_int),
    )
