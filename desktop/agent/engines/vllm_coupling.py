"""The coupled choice inside vLLM, through its interface for logits processors."""

from typing import Any

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from desktop.agent.engines.coupling import EXTRA, Coupling, choose_rows


class CoupledChoice(LogitsProcessor):
    """Leaves one token in each coupled request's logits; the engine, which samples greedily, then takes it."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, tuple[Coupling, int, list[int]]] = {}
        """Batch row -> how to choose, length of the prompt, and the engine's own growing list of outputs."""

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, _row)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._rows:
            index = torch.tensor(list(self._rows), device=logits.device)
            rows = [(coupling, prompt + len(output)) for coupling, prompt, output in self._rows.values()]
            chosen = choose_rows(logits[index], rows)
            logits[index] = float("-inf")
            logits[index, chosen] = 0.0
        return logits


def _row(
    parameters: SamplingParams, prompt: list[int] | None, output: list[int]
) -> tuple[Coupling, int, list[int]] | None:
    coupling = (parameters.extra_args or {}).get(EXTRA)
    return None if coupling is None or prompt is None else (coupling, len(prompt), output)
