"""The coupled choice inside vLLM, through its interface for logits processors."""

import math
from typing import Any, ClassVar, Final, NamedTuple

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from desktop.agent.engines.coupling import EXTRA, GREEDY, Coupling, choose_rows, rank_rows

RUNNERS_UP: Final = "nexus_runners_up"
"""Key in a draft request's extra arguments, whose value is the key of its notes in `CoupledChoice.notes`."""


class Note(NamedTuple):
    """What stood behind the choice of the token at `pos`."""

    pos: int
    runner_up: int
    margin: float


class _Row(NamedTuple):
    coupling: Coupling | None
    prompt: int
    """Length of the prompt."""
    output: list[int]
    """The engine's own growing list of what the request has drafted."""
    notes: int | None

    @property
    def length(self) -> int:
        return self.prompt + len(self.output)


class CoupledChoice(LogitsProcessor):
    """Leaves one token in each coupled request's logits; the engine, which samples greedily, then takes it.

    Runners-up are noted on the side, for the engine object in the same process to fetch. vLLM's own way, logprobs of
    the processed logits, would sort the whole vocabulary once more and compile a kernel at its first use, which stops
    every stream for many seconds and needs a C++ compiler on a machine without a GPU.
    """

    notes: ClassVar[dict[int, Note | None]] = {}
    """Latest note of each request that wants runners-up; whoever adds a request adds its key and removes it."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Row] = {}
        """By row of the batch."""

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, _row)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self._rows:
            return logits
        index = torch.tensor(list(self._rows), device=logits.device)
        rows = [(row.coupling or GREEDY, row.length) for row in self._rows.values()]
        if all(row.notes is None for row in self._rows.values()):
            chosen = choose_rows(logits[index], rows)
        else:
            chosen, runners_up, margins = rank_rows(logits[index], rows)
            for row, runner_up, margin in zip(self._rows.values(), runners_up.tolist(), margins.tolist(), strict=True):
                if row.notes is not None and row.notes in self.notes:
                    self.notes[row.notes] = Note(row.length, runner_up, margin) if math.isfinite(margin) else None
        logits[index] = float("-inf")
        logits[index, chosen] = 0.0
        return logits


def _row(parameters: SamplingParams, prompt: list[int] | None, output: list[int]) -> _Row | None:
    extra = parameters.extra_args or {}
    coupling, notes = extra.get(EXTRA), extra.get(RUNNERS_UP)
    if prompt is None or (coupling is None and notes is None):
        return None
    return _Row(coupling, len(prompt), output, notes)
