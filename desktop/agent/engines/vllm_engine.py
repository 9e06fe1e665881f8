"""The draft engine on vLLM, in this process: one vLLM request per round, KV cache shared through prefix caching.

A new request whose prefix is cached costs about half a decode step more than going on (block size 32). A
diverged suffix merely misses the cache, so rollback needs no call.
"""

import os
from collections.abc import Sequence

from desktop.agent.engines.checks import check_round, check_streams, fit_model_len, read_model_config
from desktop.agent.engines.port import Drafted, EngineConfig
from desktop.agent.engines.vllm_coupling import RUNNERS_UP, CoupledChoice
from shared.errors import EngineError
from shared.ids import StreamId
from shared.sampling import Sampling

# vLLM reads these when it is imported and built. Without processes of its own, ending this process is enough
# to free everything; with them, a killed parent leaves workers behind.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

import vllm
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind

from desktop.agent.engines.coupling import EXTRA, coupling
from desktop.agent.engines.hardware import pick_device, pick_dtype

CPU_BLOCK = 32
"""vLLM's CPU attention needs multiples of 32; its default of 128 makes a new round cost 3 steps."""
GPU_BLOCK = 16
CPU_PREFILL = 512
"""Most prefix tokens in one step on a CPU, so that a long prompt does not stall the other streams."""


class _Round:
    __slots__ = ("end", "number", "pos", "request", "stream")

    def __init__(self, stream: StreamId, number: int, pos: int, end: int) -> None:
        self.stream = stream
        self.number = number
        self.request = f"{stream}:{number}"
        self.pos = pos
        self.end = end


class VllmEngine:
    """See `DraftEngine`. All rounds share one continuous batch.

    Drafting goes on past an end-of-sequence token: either the target ends the stream there, or it disagrees
    and everything behind is dropped, or the caller asked to ignore the token and the draft is right. What is
    drafted in vain is bounded by the stream's window.
    """

    def __init__(self, config: EngineConfig) -> None:
        model = read_model_config(config.model)
        device = pick_device(config)
        self.max_streams = config.max_streams
        self.max_model_len = fit_model_len(model, config.max_model_len)
        self.name = f"vllm {vllm.__version__} ({device})"
        self._rounds: dict[StreamId, _Round] = {}
        self._requests: dict[str, _Round] = {}
        self._number = 0
        try:
            self._engine = LLMEngine.from_engine_args(self._arguments(config, device))
        except EngineError:
            raise
        except Exception as exc:
            raise EngineError(f"vLLM could not load the draft model in {config.model}: {exc}") from exc
        rows = int(self._engine.model_config.get_vocab_size())
        self.vocabulary = min(config.vocabulary, rows) if config.vocabulary else rows

    def _arguments(self, config: EngineConfig, device: str) -> EngineArgs:
        cpu = device == "cpu"
        return EngineArgs(
            model=config.model,
            dtype=pick_dtype(config, device),
            enforce_eager=cpu,
            block_size=CPU_BLOCK if cpu else GPU_BLOCK,
            enable_prefix_caching=True,
            async_scheduling=False,
            max_model_len=self.max_model_len,
            max_num_seqs=config.max_streams,
            max_num_batched_tokens=max(CPU_PREFILL, config.max_streams) if cpu else None,
            kv_cache_memory_bytes=config.kv_cache_bytes if cpu else None,
            gpu_memory_utilization=config.gpu_memory_utilization,
            skip_tokenizer_init=True,
            disable_log_stats=True,
            distributed_executor_backend="uni",
            logits_processors=[CoupledChoice],
        )

    @property
    def busy(self) -> bool:
        return bool(self._rounds)

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
        check_streams(len(self._rounds), self.max_streams)
        count = min(count, self.max_model_len - len(tokens))
        self._number += 1
        current = _Round(stream, self._number, len(tokens), len(tokens) + count)
        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=count,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args={EXTRA: coupling(sampling, seed), RUNNERS_UP: current.number if runners_up else None},
        )
        try:
            self._engine.add_request(current.request, tokens_input(list(tokens)), parameters)
        except Exception as exc:
            raise EngineError(f"vLLM refused to draft: {exc}") from exc
        if runners_up:
            CoupledChoice.notes[current.number] = None
        self._rounds[stream] = self._requests[current.request] = current

    def stop(self, stream: StreamId) -> None:
        current = self._rounds.get(stream)
        if current is not None:
            self._end(current)
            self._engine.abort_request([current.request])

    def forget(self, stream: StreamId) -> None:
        """Cached blocks belong to all streams; the least recently used are overwritten when needed."""
        self.stop(stream)

    def step(self) -> list[Drafted]:
        if not self._rounds:
            return []
        try:
            outputs = self._engine.step()
        except Exception as exc:
            raise EngineError(f"vLLM failed while drafting: {type(exc).__name__}: {exc}") from exc
        drafted: list[Drafted] = []
        for output in outputs:
            current = self._requests.get(output.request_id)
            if current is None:
                continue
            for token in output.outputs[0].token_ids:
                drafted.append(self._take(current, int(token)))
                if drafted[-1].last:
                    break
            else:
                if output.finished:
                    self._end(current)
                    drafted.append(Drafted(current.stream, current.pos, None, True))
        return drafted

    def _take(self, current: _Round, token: int) -> Drafted:
        if not 0 <= token < self.vocabulary:
            self.stop(current.stream)
            return Drafted(current.stream, current.pos, None, True)
        pos, note = current.pos, CoupledChoice.notes.get(current.number)
        current.pos += 1
        last = current.pos >= current.end
        if last:
            self._end(current)
        if note is None or note.pos != pos or note.runner_up >= self.vocabulary:
            return Drafted(current.stream, pos, token, last)
        return Drafted(current.stream, pos, token, last, note.runner_up, note.margin)

    def _end(self, current: _Round) -> None:
        del self._rounds[current.stream]
        del self._requests[current.request]
        CoupledChoice.notes.pop(current.number, None)

    def close(self) -> None:
        for stream in list(self._rounds):
            self.stop(stream)
        self._engine.engine_core.shutdown()


def create(config: EngineConfig) -> VllmEngine:
    """Factory, as `choose` looks for it."""
    return VllmEngine(config)
