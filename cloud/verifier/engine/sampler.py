"""Coupled sampling in vLLM's first model runner: replaces its `_sample`, and so its rejection sampler.

Hook: the instance attribute `_sample` of `vllm.v1.worker.gpu_model_runner.GPUModelRunner` (0.32), which is called
once per step with the logits of all rows. A request's rows lie together: one per draft token, then the bonus row.
The engine's own code still applies penalties, bad words, allowed tokens, bias and grammar masks.
"""

from typing import Any

import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.logits_processor.builtin import LogitBiasLogitsProcessor, MinPLogitsProcessor
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from cloud.verifier.sampling.accept import REJECTED, accept
from cloud.verifier.sampling.coupled import RowParameters, choose
from cloud.verifier.sampling.seed import effective_seed
from shared.errors import EngineError


class CoupledSampler:
    """Callable in place of the runner's `_sample`; holds no state of its own between steps."""

    def __init__(self, runner: Any) -> None:
        """
        Args:
            runner: the model runner whose batch, requests, sampler and rejection sampler are used.
        """
        self._runner = runner
        self._engine_seed: int = runner.model_config.seed

    def __call__(self, logits: torch.Tensor | None, spec_decode_metadata: SpecDecodeMetadata | None) -> SamplerOutput:
        """One step: chooses the target's token of every row and commits what the drafts agree with.

        Args:
            logits: [sum(1 + drafts), vocabulary], any float type.
            spec_decode_metadata: which rows are drafts; none when the engine runs without speculation.
        """
        assert logits is not None
        batch = self._runner.input_batch
        sampling: SamplingMetadata = batch.sampling_metadata
        batch.update_async_output_token_ids()
        requests = batch.num_reqs
        if spec_decode_metadata is None:
            lengths = torch.zeros(requests, dtype=torch.int64)
            drafted = torch.empty(0, dtype=torch.int64, device=logits.device)
        else:
            lengths = torch.tensor(spec_decode_metadata.num_draft_tokens, dtype=torch.int64)
            drafted = spec_decode_metadata.draft_token_ids
        lengths = lengths.to(logits.device)
        raw = logits.float()
        processed = self._process(raw, sampling, spec_decode_metadata)
        chosen = choose(processed, self._rows(sampling, lengths))
        tokens = accept(chosen, drafted, lengths)
        logprobs = None
        if sampling.max_num_logprobs is not None:
            logprobs = self._logprobs(raw, tokens, lengths, sampling.max_num_logprobs)
        return SamplerOutput(sampled_token_ids=tokens, logprobs_tensors=logprobs)

    def _rows(self, sampling: SamplingMetadata, lengths: torch.Tensor) -> RowParameters:
        """Parameters of each request, repeated for its rows; positions count on from its committed tokens."""
        batch, device = self._runner.input_batch, lengths.device
        per_request = lengths + 1
        owner = torch.arange(lengths.numel(), device=device).repeat_interleave(per_request)
        first_row = torch.cumsum(per_request, 0) - per_request
        local = torch.arange(owner.numel(), device=device) - first_row[owner]
        seeds = torch.tensor(
            [
                effective_seed(self._runner.requests[name].sampling_params.seed, self._engine_seed, name)
                for name in batch.req_ids
            ],
            dtype=torch.int64,
        ).to(device)
        committed = torch.from_numpy(batch.num_tokens_no_spec[: lengths.numel()].astype("int64")).to(device)
        temperature = sampling.temperature
        if temperature is None:
            temperature = torch.zeros(lengths.numel(), device=device)
        return RowParameters(
            temperature=temperature[owner],
            seed=seeds[owner],
            position=committed[owner] + local - 1,
            top_k=None if sampling.top_k is None else sampling.top_k[owner],
            top_p=None if sampling.top_p is None else sampling.top_p[owner],
            min_p=self._min_p(sampling, owner),
        )

    @staticmethod
    def _min_p(sampling: SamplingMetadata, owner: torch.Tensor) -> torch.Tensor | None:
        for processor in sampling.logitsprocs.argmax_invariant:
            if isinstance(processor, MinPLogitsProcessor) and processor.min_p_count:
                return processor.min_p.reshape(-1)[owner]
        return None

    def _process(self, raw: torch.Tensor, sampling: SamplingMetadata, spec: SpecDecodeMetadata | None) -> torch.Tensor:
        """What the engine does to logits before it samples: penalties and masks, with drafts as history."""
        sampler = self._runner.sampler
        if spec is None:
            return sampler.apply_logits_processors(raw.clone(), sampling, False)
        processed = torch.empty_like(raw)
        bonus = spec.bonus_logits_indices.long()
        processed[bonus] = sampler.apply_logits_processors(raw[bonus], sampling, True)
        target = spec.target_logits_indices.long()
        if target.numel():
            rows = self._bias(raw[target], sampling, spec)
            # The engine's own method leaves the bias out, since it refuses such requests when they name it.
            processed[target] = self._runner.rejection_sampler.apply_logits_processors(rows, sampling, spec)
        return processed

    @staticmethod
    def _bias(rows: torch.Tensor, sampling: SamplingMetadata, spec: SpecDecodeMetadata) -> torch.Tensor:
        for processor in sampling.logitsprocs.non_argmax_invariant:
            if isinstance(processor, LogitBiasLogitsProcessor) and processor.biases:
                owner = torch.arange(len(spec.num_draft_tokens)).repeat_interleave(torch.tensor(spec.num_draft_tokens))
                for request, biases in processor.biases.items():
                    mine = (owner == request).nonzero().squeeze(1).to(rows.device)
                    tokens = torch.tensor(list(biases), device=rows.device)
                    rows[mine.unsqueeze(1), tokens] += torch.tensor(list(biases.values()), device=rows.device)
        return rows

    def _logprobs(self, raw: torch.Tensor, tokens: torch.Tensor, lengths: torch.Tensor, top: int) -> Any:
        """The target's log-probabilities, before any processing, for every committed token (and fillers behind)."""
        sampler = self._runner.sampler
        first_row = torch.cumsum(lengths + 1, 0) - (lengths + 1)
        column = torch.arange(tokens.shape[1], device=tokens.device)
        row = (first_row.unsqueeze(1) + column).clamp(max=raw.shape[0] - 1).flatten()
        ids = torch.where(tokens == REJECTED, 0, tokens).flatten().long()
        return sampler.gather_logprobs(sampler.compute_logprobs(raw[row]), top, ids)


def install(runner: Any) -> None:
    """Makes a model runner sample by coupling.

    Raises:
        EngineError: the engine is set up in a way that coupling does not support.
    """
    if runner.sampler.logprobs_mode != "raw_logprobs":
        raise EngineError(
            f"--logprobs-mode {runner.sampler.logprobs_mode} is not supported: Nexus returns the target model's own "
            "log-probabilities (raw_logprobs)."
        )
    runner._sample = CoupledSampler(runner)
