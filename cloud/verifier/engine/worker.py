"""The workers that vLLM starts: its own, with the sampler replaced once the model runner exists.

Hook: `init_device` of `vllm.v1.worker.gpu_worker.Worker` and `cpu_worker.CPUWorker` (0.32), first model runner only.
"""

from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu_worker import Worker

from cloud.verifier.engine.sampler import install
from shared.errors import EngineError


def _couple(worker: Any) -> None:
    if getattr(worker, "use_v2_model_runner", False):
        raise EngineError(
            "The engine chose its second model runner, whose draft path the plugin does not hook into. "
            "Set VLLM_USE_V2_MODEL_RUNNER=0."
        )
    install(worker.model_runner)


class CoupledCPUWorker(CPUWorker):
    """vLLM's CPU worker, sampling by coupling."""

    def init_device(self) -> None:
        super().init_device()
        _couple(self)


class CoupledGPUWorker(Worker):
    """vLLM's GPU worker, sampling by coupling."""

    def init_device(self) -> None:
        super().init_device()
        _couple(self)
