"""Measures at start-up what a step costs on this machine, in the worker, and hands it to the scheduler in a file.

Hook: `compile_or_warm_up_model`, the last thing that a worker is asked to do before the scheduler exists (0.32). The
two may be different processes and have no channel of their own yet; where they have no file system in common either,
the scheduler starts without a profile and learns from the steps that it sees.
"""

import contextlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import torch

from cloud.verifier.policy.cost import StepCost
from cloud.verifier.settings import PluginSettings, from_additional_config

LARGEST, LARGEST_ON_CPU = 512, 32
"""Tokens per step beyond which nothing is measured: drafts stop paying long before. The table goes on linearly."""
REPEAT = 2
"""Runs of each size; the fastest counts, since whatever disturbs a run makes it slower."""

_log = logging.getLogger("vllm.nexus")


def profile(worker: Any) -> None:
    """Times forward passes of growing size and writes the table; does nothing where there is one already.

    All ranks must call it: a forward pass is a joint effort. Rank 0 of each data-parallel engine writes.
    """
    config = worker.vllm_config
    settings = from_additional_config(config.additional_config)
    parallel = config.parallel_config
    path = _path(settings, parallel.data_parallel_index)
    if path is None or parallel.pipeline_parallel_size > 1 or (settings.step_cost_given and path.exists()):
        return
    try:
        table = _measure(worker)
    except Exception:
        _log.exception("step costs could not be measured; they will be learned from the steps that run")
        return
    if worker.rank % parallel.world_size == 0:
        _write(path, table)


def read_profile(settings: PluginSettings, rank: int) -> StepCost:
    """The table that `profile` left, for the scheduler of one data-parallel rank; unprofiled if there is none."""
    path = _path(settings, rank)
    if path is not None:
        try:
            table = {int(tokens): float(seconds) for tokens, seconds in json.loads(path.read_text()).items()}
            cost = StepCost(table)
        except FileNotFoundError:
            _log.warning("no step costs in %s: they will be learned from the steps that run", path)
        except (OSError, ValueError, AttributeError, TypeError) as error:
            _log.warning(
                "step costs in %s are unusable (%s): they will be learned from the steps that run", path, error
            )
        else:
            shown = ", ".join(f"{tokens}: {seconds * 1000:.1f}" for tokens, seconds in cost.table().items())
            _log.info("step cost in ms by tokens: %s", shown)
            return cost
    return StepCost()


def _path(settings: PluginSettings, rank: int) -> Path | None:
    return Path(f"{settings.step_cost}-{rank}" if rank else settings.step_cost) if settings.step_cost else None


def _measure(worker: Any) -> dict[int, float]:
    runner = worker.model_runner
    scheduler = worker.vllm_config.scheduler_config
    draft = worker.vllm_config.speculative_config.num_speculative_tokens
    largest = LARGEST_ON_CPU if runner.device.type == "cpu" else LARGEST
    limit = min(scheduler.max_num_seqs * (1 + draft), scheduler.max_num_batched_tokens, largest)
    sizes = [1 << power for power in range(limit.bit_length()) if 1 << power <= limit]
    _forward(runner, 1)
    return {size: min(_forward(runner, size) for _ in range(REPEAT)) for size in sizes}


@torch.inference_mode()
def _forward(runner: Any, tokens: int) -> float:
    """Seconds of one forward pass with logits for every row, as a step that verifies drafts needs them."""
    _synchronize(runner)
    began = time.perf_counter()
    hidden, _ = runner._dummy_run(tokens)
    runner.model.compute_logits(hidden[:tokens])
    _synchronize(runner)
    return time.perf_counter() - began


def _synchronize(runner: Any) -> None:
    if runner.device.type != "cpu":
        torch.accelerator.synchronize()


def _write(path: Path, table: dict[int, float]) -> None:
    """Whole or not at all: another process reads it."""
    half = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half.write_text(json.dumps(table, indent=1) + "\n")
        half.replace(path)
    except OSError as error:
        _log.warning("step costs cannot be written to %s: %s", path, error.strerror)
    finally:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
