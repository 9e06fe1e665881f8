"""The workers that vLLM starts: its own, with the sampler replaced once the model runner exists.

Hooks: `init_device` and `compile_or_warm_up_model` of `vllm.v1.worker.gpu_worker.Worker` and `cpu_worker.CPUWorker`
(0.32), first model runner only.
"""

from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu_worker import Worker

from cloud.verifier.engine.profile import profile
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

    def compile_or_warm_up_model(self) -> Any:
        times = super().compile_or_warm_up_model()
        profile(self)
        return times


class CoupledGPUWorker(Worker):
    """vLLM's GPU worker, sampling by coupling."""

    def init_device(self) -> None:
        super().init_device()
        _couple(self)

    def compile_or_warm_up_model(self) -> Any:
        times = super().compile_or_warm_up_model()
        profile(self)
        return times
