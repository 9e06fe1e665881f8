"""What is measured: one axis at a time from a base cell, not the full product."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.traced_node import Plan

Node = Literal["good", "none", "silent", "late", "dying"]
TOKEN_STEPS = 0.05
"""A node's time for one token, in verifier steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One setting, measured on Nexus and, right before or after it, on stock vLLM."""

    axis: str
    concurrency: int = 1
    rtt: float = 0.5
    """Round trip between node and gateway, in verifier steps."""
    temperature: float = 0.0
    acceptance: float | None = None
    """Share of positions at which the draft model is right; none = as recorded."""
    node: Node = "good"
    prompts: int = 4
    """Requests in each repetition, in waves of `concurrency`."""
    stock_prompts: int = 1
    """Of these, how many stock vLLM is asked, rounded up to a whole wave: its speed does not depend on the text."""
    mandatory: bool = True
    """Part of the default run."""

    @property
    def name(self) -> str:
        parts = [f"c{self.concurrency}", f"rtt{self.rtt:g}", f"t{self.temperature:g}"]
        if self.acceptance is not None:
            parts.append(f"acc{self.acceptance:.0%}".rstrip("%"))
        if self.node != "good":
            parts.append(self.node)
        return "-".join(parts)

    @property
    def learns(self) -> bool:
        """Whether the node is a lasting one that is measured when it is known; a bad node is new each time."""
        return self.node == "good" and self.acceptance != 0

    def plan(self, step_s: float, tokens: int) -> Plan | None:
        """The node of this cell, or none, when a verifier step takes `step_s`; `tokens` is a request's length."""
        base = Plan(token_s=TOKEN_STEPS * step_s, rtt_s=self.rtt * step_s)
        match self.node:
            case "good":
                return base
            case "none":
                return None
            case "silent":
                return replace(base, silent_after=0)
            case "late":
                return replace(base, late=True)
            case "dying":
                # In the middle of the first wave's answers.
                return replace(base, dies_after=self.concurrency * tokens // 2)


def default_cells() -> list[Cell]:
    """The run of the report. Cells that must be no slower ask both systems for the same requests."""
    base = Cell(axis="concurrency")
    return [
        base,
        *(replace(base, axis="distance", rtt=rtt) for rtt in (0.0, 1.0, 2.0, 4.0)),
        replace(base, axis="acceptance", acceptance=0.5),
        replace(base, concurrency=2, prompts=4, stock_prompts=2),
        replace(base, concurrency=4, stock_prompts=4),
        replace(base, concurrency=8, prompts=8, stock_prompts=8),
        replace(base, concurrency=16, prompts=16, stock_prompts=16),
        replace(base, axis="temperature", temperature=0.8),
        replace(base, axis="temperature", temperature=0.8, concurrency=4, stock_prompts=4),
        replace(base, axis="acceptance", acceptance=0.0, prompts=2, stock_prompts=2),
        *(
            replace(base, axis="bad node", node=node, prompts=2, stock_prompts=2)
            for node in ("late", "silent", "dying", "none")
        ),
        # Beyond the default run: `--cells all`, or by name.
        *(replace(base, axis="distance", rtt=1.0, concurrency=c, stock_prompts=c, mandatory=False) for c in (2, 4)),
        *(
            replace(base, axis="bad node", node=node, concurrency=4, stock_prompts=4, mandatory=False)
            for node in ("late", "silent", "dying")
        ),
        replace(base, axis="acceptance", acceptance=0.0, concurrency=4, stock_prompts=4, mandatory=False),
        replace(
            base, axis="temperature", temperature=0.8, concurrency=16, prompts=16, stock_prompts=16, mandatory=False
        ),
    ]


NATIVE_CONCURRENCY = (1, 4)
"""Where vLLM's own speculation is measured, greedily: its CPU build samples wrongly with drafts."""


def whole_waves(prompts: int, cell: Cell) -> int:
    """Requests, rounded up to whole waves."""
    return -(-prompts // cell.concurrency) * cell.concurrency


def neighbours(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells of one request at a time in twos that can share a stock run between them; the others alone."""
    groups: list[list[Cell]] = []
    for cell in cells:
        last = groups[-1] if groups else []
        same = len(last) == 1 and cell.concurrency == last[0].concurrency == 1
        if same and (cell.temperature, cell.stock_prompts) == (last[0].temperature, last[0].stock_prompts):
            last.append(cell)
        else:
            groups.append([cell])
    return groups


def chosen(names: str) -> list[Cell]:
    """`default`, `all`, or names separated by commas. Raises `ValueError` for a name that no cell has."""
    cells = default_cells()
    if names == "default":
        return [cell for cell in cells if cell.mandatory]
    if names == "all":
        return cells
    by_name = {cell.name: cell for cell in cells}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in by_name]:
        raise ValueError(f"no cell {', '.join(unknown)}; there are: {', '.join(by_name)}")
    return [by_name[name] for name in wanted]
