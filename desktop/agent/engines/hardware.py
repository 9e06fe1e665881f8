"""Which device and number format suit this machine. Imports torch."""

import torch

from desktop.agent.engines.port import EngineConfig
from shared.errors import EngineError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(config: EngineConfig) -> str:
    """`cuda` or `cpu`. Raises `EngineError` when a GPU was asked for and none is usable."""
    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if config.device == "cuda" and not torch.cuda.is_available():
        raise EngineError("device is cuda, but PyTorch finds no usable GPU. Check the driver, or set device to cpu.")
    if config.device not in ("cpu", "cuda"):
        raise EngineError(f"device {config.device!r} is not known. Use auto, cpu or cuda.")
    return config.device


def pick_dtype(config: EngineConfig, device: str) -> str:
    """Name of the number format to compute in.

    On CPUs without AVX-512, oneDNN has no bfloat16 matrix product and both engines fall back to a loop
    that is many times slower than float32 (measured: a 300-token prefill 12 s against 1 s).
    """
    if config.dtype != "auto":
        if config.dtype not in _DTYPES:
            raise EngineError(f"dtype {config.dtype!r} is not known. Use auto, {', '.join(_DTYPES)}.")
        return config.dtype
    if device == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    return "bfloat16" if "AVX512" in torch.backends.cpu.get_cpu_capability() else "float32"


def torch_dtype(name: str) -> torch.dtype:
    return _DTYPES[name]
