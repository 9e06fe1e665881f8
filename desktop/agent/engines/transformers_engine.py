"""The portable draft engine: a transformers model with one KV cache per stream, rolled back by cropping."""

import copy
import math
from collections.abc import Sequence

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache

from desktop.agent.engines.checks import check_round, check_streams, fit_model_len, read_model_config
from desktop.agent.engines.coupling import GREEDY, Coupling, choose_rows, coupling, rank_rows
from desktop.agent.engines.hardware import pick_device, pick_dtype, torch_dtype
from desktop.agent.engines.port import Drafted, EngineConfig
from shared.errors import EngineError
from shared.ids import StreamId
from shared.sampling import Sampling

PREFILL_CHUNK = 512
"""Most prefix tokens that one step computes for a stream, so that a long prompt does not stall the others."""


WORTH_COPYING = 32
"""Tokens that another stream's cache must hold beyond the own one to be copied."""


class _Line:
    """A stream's tokens, of which the first `cached` are in its KV cache, and the end of its round."""

    __slots__ = ("cache", "cached", "coupling", "end", "runners_up", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.coupling: Coupling | None = None
        self.runners_up = False
        self.cached = 0
        self.cache = DynamicCache()
        self.end = 0

    @property
    def running(self) -> bool:
        return len(self.tokens) < self.end

    def shares(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` are in the cache."""
        for index, (old, new) in enumerate(zip(self.tokens[: self.cached], tokens, strict=False)):
            if old != new:
                return index
        return min(self.cached, len(tokens))

    def copy_cache(self, other: "_Line") -> None:
        """Begin where another stream is."""
        self.cache, self.cached, self.tokens = copy.deepcopy(other.cache), other.cached, list(other.tokens)

    def rewind(self, tokens: Sequence[int]) -> None:
        """Replace the tokens; the cache keeps the shared prefix, and always leaves one token to compute."""
        keep = min(self.shares(tokens), len(tokens) - 1)
        if keep == 0:
            self.cache = DynamicCache()
        elif keep < self.cached:
            self.cache.crop(keep - self.cached)
        self.cached = keep
        self.tokens = list(tokens)


class TransformersEngine:
    """See `DraftEngine`. A step runs one forward pass per running stream.

    Drafting goes on past an end-of-sequence token, for the reason that `VllmEngine` gives.
    """

    def __init__(self, config: EngineConfig) -> None:
        model = read_model_config(config.model)
        self._device = pick_device(config)
        if config.threads:
            torch.set_num_threads(config.threads)
        dtype = pick_dtype(config, self._device)
        self.max_streams = config.max_streams
        self.max_model_len = fit_model_len(model, config.max_model_len)
        self.name = f"transformers {transformers.__version__} ({self._device})"
        self._lines: dict[StreamId, _Line] = {}
        try:
            loaded = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch_dtype(dtype), local_files_only=True)
        except Exception as exc:
            raise EngineError(f"transformers could not load the draft model in {config.model}: {exc}") from exc
        self._model = loaded.to(self._device).eval()
        rows = int(self._model.get_output_embeddings().weight.shape[0])
        self.vocabulary = min(config.vocabulary, rows) if config.vocabulary else rows

    @property
    def busy(self) -> bool:
        return any(line.running for line in self._lines.values())

    def start(
        self,
        stream: StreamId,
        tokens: Sequence[int],
        count: int,
        sampling: Sampling,
        seed: int | None,
        runners_up: bool = False,
    ) -> None:
        check_round(tokens, count, vocabulary=self.vocabulary, max_model_len=self.max_model_len)
        self.stop(stream)
        check_streams(sum(line.running for line in self._lines.values()), self.max_streams)
        line = self._lines.setdefault(stream, _Line())
        if len(tokens) - line.shares(tokens) > WORTH_COPYING:
            # Another candidate of the same answer may have computed most of it; a copy costs less than one more pass.
            nearest = max(self._lines.values(), key=lambda each: each.shares(tokens))
            if nearest.shares(tokens) - line.shares(tokens) >= WORTH_COPYING:
                line.copy_cache(nearest)
        line.rewind(tokens)
        line.coupling = coupling(sampling, seed)
        line.runners_up = runners_up
        line.end = min(len(tokens) + count, self.max_model_len)

    def stop(self, stream: StreamId) -> None:
        line = self._lines.get(stream)
        if line is not None:
            line.end = 0

    def forget(self, stream: StreamId) -> None:
        self._lines.pop(stream, None)

    def step(self) -> list[Drafted]:
        drafted: list[Drafted] = []
        for stream, line in self._lines.items():
            if not line.running:
                continue
            try:
                logits = self._forward(line)
            except Exception as exc:
                raise EngineError(f"transformers failed while drafting: {type(exc).__name__}: {exc}") from exc
            if logits is None:
                continue
            pos = len(line.tokens)
            token, runner_up, margin = _choose(line, logits)
            line.tokens.append(token)
            drafted.append(Drafted(stream, pos, token, not line.running, runner_up, margin))
        return drafted

    def _forward(self, line: _Line) -> torch.Tensor | None:
        """Compute the next chunk; the logits of the next token, [1, vocabulary], once the whole prefix is computed."""
        chunk = line.tokens[line.cached : line.cached + PREFILL_CHUNK]
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([chunk], device=self._device),
                past_key_values=line.cache,
                use_cache=True,
                logits_to_keep=1,
            )
        line.cached += len(chunk)
        if line.cached < len(line.tokens):
            return None
        logits: torch.Tensor = output.logits[:, -1, : self.vocabulary]
        return logits

    def close(self) -> None:
        self._lines.clear()
        self._model = None


def _choose(line: _Line, logits: torch.Tensor) -> tuple[int, int | None, float | None]:
    """Token, runner-up and margin."""
    if not line.runners_up:
        if line.coupling is None:
            return int(logits.argmax()), None, None
        return int(choose_rows(logits, [(line.coupling, len(line.tokens))])), None, None
    tokens, seconds, margins = rank_rows(logits, [(line.coupling or GREEDY, len(line.tokens))])
    margin = float(margins)
    return (int(tokens), int(seconds), margin) if math.isfinite(margin) else (int(tokens), None, None)


def create(config: EngineConfig) -> TransformersEngine:
    """Factory, as `choose` looks for it."""
    return TransformersEngine(config)
