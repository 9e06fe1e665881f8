"""What coupled sampling costs: time per step against plain softmax and multinomial, as a ratio in one run.

Rows are a vocabulary of 151,936 wide (Qwen2.5). The logits are a bell with one peak per row, wide enough that no token
can be left out without hashing it: the worst case for the noise. Sampling plans are interleaved, so that whatever else
the machine does meets all of them alike; the figure of each is its median.

    .venv/bin/python bench/sampler.py --rows 8 64
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from shared.coupling.choice import RowParameters, choose

VOCABULARY = 151_936
TEMPERATURE = 0.8


def plain(logits: torch.Tensor) -> torch.Tensor:
    """What a sampler without filters, seeds and coupling does: the shortest way in torch."""
    return torch.multinomial((logits / TEMPERATURE).softmax(dim=1), 1).squeeze(1)


def coupled(rows: int, device: str, **filters: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """A coupled sampling step with the same filters in every row."""
    parameters = RowParameters(
        temperature=torch.full((rows,), TEMPERATURE, device=device),
        seed=torch.arange(rows, device=device) * 1_000_003 + (1 << 40),
        position=torch.arange(rows, device=device) + 500,
        top_k=torch.full((rows,), int(filters["top_k"]), device=device) if "top_k" in filters else None,
        top_p=torch.full((rows,), filters["top_p"], device=device) if "top_p" in filters else None,
        min_p=torch.full((rows,), filters["min_p"], device=device) if "min_p" in filters else None,
    )
    return lambda logits: choose(logits, parameters)


def timed(what: Callable[[torch.Tensor], torch.Tensor], logits: torch.Tensor) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    what(logits)
    if logits.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 64], help="rows of logits in a step")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    table = Table("rows", "sampling", "median, ms", "of plain", title=f"vocabulary {VOCABULARY}, {options.device}")
    for rows in options.rows:
        generator = torch.Generator().manual_seed(rows)
        logits = torch.randn(rows, VOCABULARY, generator=generator) * 2.5
        logits[torch.arange(rows), torch.randint(VOCABULARY, (rows,), generator=generator)] += 10
        logits = logits.to(options.device)
        plans: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "softmax, multinomial": plain,
            "coupled": coupled(rows, options.device),
            "coupled, top-p 0.95": coupled(rows, options.device, top_p=0.95),
            "coupled, top-k 50": coupled(rows, options.device, top_k=50),
            "coupled, top-k 50, top-p 0.95, min-p 0.05": coupled(
                rows, options.device, top_k=50, top_p=0.95, min_p=0.05
            ),
        }
        times: dict[str, list[float]] = {name: [] for name in plans}
        for number in range(options.rounds + 2):
            for name, plan in plans.items():
                elapsed = timed(plan, logits)
                if number >= 2:
                    times[name].append(elapsed)
        base = statistics.median(times["softmax, multinomial"])
        for name, values in times.items():
            middle = statistics.median(values)
            table.add_row(str(rows), name, f"{middle:.2f}", f"{middle / base:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
