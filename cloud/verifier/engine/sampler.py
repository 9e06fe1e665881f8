"""Coupled sampling in vLLM's first model runner: replaces its `_sample`, and so its rejection sampler.

Hook: the instance attribute `_sample` of `vllm.v1.worker.gpu_model_runner.GPUModelRunner` (0.32), which is called
once per step with the logits of all rows. A request's rows lie together: one per draft token, then the bonus row.
The engine's own code still applies penalties, bad words, allowed tokens and grammar masks. `min_p` and `logit_bias`
are refused by the engine when it speculates, for reasons that do not concern coupling; they come as extra arguments.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from cloud.verifier.sampling.accept import REJECTED, accept
from cloud.verifier.sampling.extras import extras_of
from cloud.verifier.sampling.seed import effective_seed
from shared.coupling.choice import RowParameters, choose
from shared.errors import EngineError


class _Known(NamedTuple):
    """What a request brings along, read once."""

    params: Any
    min_p: float
    biased: torch.Tensor | None
    """int64, token ids with a bias; none when there are none."""
    bias: torch.Tensor | None
    """float32, theirs."""


class CoupledSampler:
    """Callable in place of the runner's `_sample`; between steps it remembers only what requests brought along."""

    def __init__(self, runner: Any) -> None:
        """
        Args:
            runner: the model runner whose batch, requests, sampler and rejection sampler are used.
        """
        self._runner = runner
        self._engine_seed: int = runner.model_config.seed
        self._known: dict[str, _Known] = {}

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
        if spec_decode_metadata is None:
            lengths = torch.zeros(batch.num_reqs, dtype=torch.int64, device=logits.device)
            drafted = torch.empty(0, dtype=torch.int64, device=logits.device)
        else:
            lengths = torch.tensor(spec_decode_metadata.num_draft_tokens, dtype=torch.int64).to(logits.device)
            drafted = spec_decode_metadata.draft_token_ids
        owner = torch.arange(lengths.numel(), device=logits.device).repeat_interleave(lengths + 1)
        requests = [self._runner.requests[name].sampling_params for name in batch.req_ids]
        known = self._read(batch.req_ids, requests, logits)
        raw = logits.float()
        biased = _bias(raw, lengths, known)
        processed = self._process(biased, sampling, spec_decode_metadata)
        seeds = [
            effective_seed(params.seed, self._engine_seed, name)
            for name, params in zip(batch.req_ids, requests, strict=True)
        ]
        tokens = accept(choose(processed, self._rows(sampling, lengths, owner, seeds, known)), drafted, lengths)
        logprobs = None
        if sampling.max_num_logprobs is not None:
            logprobs = self._logprobs(raw, tokens, lengths, sampling.max_num_logprobs)
        return SamplerOutput(sampled_token_ids=tokens, logprobs_tensors=logprobs)

    def _read(self, names: Sequence[str], requests: Sequence[Any], logits: torch.Tensor) -> list[_Known]:
        """What each request of the batch brought along; a bias may have a thousand entries, too many for every step."""
        before, self._known = self._known, {}
        for name, params in zip(names, requests, strict=True):
            old = before.get(name)
            self._known[name] = old if old is not None and old.params is params else _read(params, logits)
        return [self._known[name] for name in names]

    def _rows(
        self,
        sampling: SamplingMetadata,
        lengths: torch.Tensor,
        owner: torch.Tensor,
        seeds: list[int],
        known: list[_Known],
    ) -> RowParameters:
        """Parameters of each request, repeated for its rows; positions count on from its committed tokens."""
        count, device = lengths.numel(), lengths.device
        first_row = torch.cumsum(lengths + 1, 0) - (lengths + 1)
        local = torch.arange(owner.numel(), device=device) - first_row[owner]
        committed = torch.from_numpy(self._runner.input_batch.num_tokens_no_spec[:count].astype("int64")).to(device)
        temperature = sampling.temperature
        if temperature is None:
            temperature = torch.zeros(count, device=device)
        min_p = None
        if any(each.min_p for each in known):
            min_p = torch.tensor([each.min_p for each in known]).to(device)[owner]
        return RowParameters(
            temperature=temperature[owner],
            seed=torch.tensor(seeds, dtype=torch.int64).to(device)[owner],
            position=committed[owner] + local - 1,
            top_k=None if sampling.top_k is None else sampling.top_k[owner],
            top_p=None if sampling.top_p is None else sampling.top_p[owner],
            min_p=min_p,
        )

    def _process(
        self, logits: torch.Tensor, sampling: SamplingMetadata, spec: SpecDecodeMetadata | None
    ) -> torch.Tensor:
        """What the engine does to logits before it samples: penalties and masks, with drafts as history.

        The engine treats bonus rows apart, and there it counts the drafts before them into penalties but not towards
        `min_tokens`: an end that the target wants would come or not come depending on the draft. So every row is given
        to the code for draft rows, the bonus row as one draft more, whose own token nothing looks at.
        """
        sampler = self._runner.sampler
        if spec is None:
            return sampler.apply_logits_processors(logits.clone(), sampling, False)
        drafts = sampling.spec_token_ids
        rows = replace(
            sampling,
            spec_token_ids=None if drafts is None else [[*draft, 0] for draft in drafts],
            thinking_budget_state_holder=None,
        )
        counts = replace(spec, num_draft_tokens=[count + 1 for count in spec.num_draft_tokens])
        processed = self._runner.rejection_sampler.apply_logits_processors(logits.clone(), rows, counts)
        holder = sampling.thinking_budget_state_holder
        if holder is not None and holder.has_tracked_requests():
            holder.update_state(sampling.output_token_ids, drafts, repeat_indices=None)
            for index, is_bonus in ((spec.bonus_logits_indices, True), (spec.target_logits_indices, False)):
                at = index.long()
                processed[at] = holder.apply_to_logits(processed[at], is_bonus, drafts)
        return processed

    def _logprobs(self, raw: torch.Tensor, tokens: torch.Tensor, lengths: torch.Tensor, top: int) -> Any:
        """The target's log-probabilities, before any processing, of each committed token (and fillers behind)."""
        sampler = self._runner.sampler
        first_row = torch.cumsum(lengths + 1, 0) - (lengths + 1)
        column = torch.arange(tokens.shape[1], device=tokens.device)
        row = (first_row.unsqueeze(1) + column).clamp(max=raw.shape[0] - 1).flatten()
        ids = torch.where(tokens == REJECTED, 0, tokens).flatten().long()
        return sampler.gather_logprobs(sampler.compute_logprobs(raw[row]), top, ids)


def _read(params: Any, logits: torch.Tensor) -> _Known:
    extras = extras_of(params.extra_args)
    entries = {token: bias for token, bias in extras.logit_bias.items() if 0 <= token < logits.shape[1]}
    if not entries:
        return _Known(params, extras.min_p, None, None)
    biased = torch.tensor(list(entries), dtype=torch.int64).to(logits.device)
    return _Known(
        params, extras.min_p, biased, torch.tensor(list(entries.values()), dtype=torch.float32).to(biased.device)
    )


def _bias(logits: torch.Tensor, lengths: torch.Tensor, known: Sequence[_Known]) -> torch.Tensor:
    """Adds each request's bias to all its rows; the tensor itself when nobody has one."""
    if all(each.biased is None for each in known):
        return logits
    out, ends = logits.clone(), torch.cumsum(lengths + 1, 0).tolist()
    for each, start, end in zip(known, [0, *ends], ends, strict=False):
        if each.biased is not None:
            out[start:end, each.biased] += each.bias
    return out


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
