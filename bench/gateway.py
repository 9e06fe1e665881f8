"""What the gateway costs: beside the bare server, and under a flood of streams from an engine that costs nothing.

    make bench PART=gateway                       # some 4 minutes
    make bench PART=gateway ARGS="--no-model"     # only the flood, which needs no model
    make bench PART=gateway ARGS="--profile"      # and where the gateway's time goes (needs py-spy)

Beside the bare server: one verifier with smollm2-135m, asked directly and through the gateway in turn, both without
drafts: what prompt lookup gives or takes is the verifier's, and `make bench` measures it. In the flood the
gateway has one core to itself; the engine, a process that writes ready-made bytes, and the client share the others.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
from clients.stack import KEY, MODEL, GatewayProcess, gateway_before, verifier_running
from rich.console import Console
from rich.table import Table
from support.servers import Server, free_port

HERE = Path(__file__).resolve().parent
OUT = HERE / "out" / "gateway"
PROMPTS = [json.loads(line)["prompt"] for line in (HERE / "prompts.jsonl").read_text().splitlines()]
TOKENS = 48
STREAMS = 200
STALLED = 5
STALLED_S = 1
"""After so long the gateway gives a caller up that takes nothing."""
TTFT_MS, THROUGHPUT, CHUNKS_PER_S, FAIRNESS, UNHARMED, GROWTH_MIB = 10.0, 0.97, 20_000.0, 0.5, 0.9, 8.0


@dataclass(frozen=True)
class Claim:
    """A figure beside what it must be."""

    name: str
    figure: float
    bound: str
    holds: bool


@dataclass
class Results:
    """Everything measured; times in seconds, memory in MiB."""

    machine: str
    bare: list[dict[str, float]] = field(default_factory=list)
    gateway: list[dict[str, float]] = field(default_factory=list)
    floods: list[dict[str, Any]] = field(default_factory=list)
    stalled: list[dict[str, Any]] = field(default_factory=list)
    direct: dict[str, Any] = field(default_factory=dict)
    added_first_s: dict[str, float] = field(default_factory=dict)
    memory: list[float] = field(default_factory=list)
    profile: list[str] = field(default_factory=list)


# --- beside the bare server ---


NO_DRAFTS = {"nexus": {"max_draft_tokens": 0}}
"""Part of a request to the gateway; the bare server drafts for none that is not a gateway's."""


async def _ask(
    http: httpx2.AsyncClient, url: str, key: str, prompt: str, extra: dict[str, Any]
) -> tuple[float, int, str]:
    """Seconds to the first text, tokens, and the text."""
    body = {
        **extra,
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began, first, tokens, text = time.perf_counter(), 0.0, 0, ""
    headers = {"authorization": f"Bearer {key}"}
    async with http.stream("POST", f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
        if answer.status_code != 200:
            raise RuntimeError((await answer.aread()).decode()[:500])
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            new = "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
            if new and not first:
                first = time.perf_counter() - began
            text += new
            if chunk.get("usage"):
                tokens = chunk["usage"]["completion_tokens"]
    return first, tokens, text


async def _wave(url: str, concurrency: int, extra: dict[str, Any]) -> dict[str, Any]:
    """All prompts, so many at once."""
    async with httpx2.AsyncClient(timeout=300, trust_env=False) as http:
        began = time.perf_counter()
        answers: list[tuple[float, int, str]] = []
        for at in range(0, len(PROMPTS), concurrency):
            batch = PROMPTS[at : at + concurrency]
            answers += await asyncio.gather(*(_ask(http, url, KEY, prompt, extra) for prompt in batch))
        seconds = time.perf_counter() - began
    tokens = sum(count for _, count, _ in answers)
    return {
        "concurrency": concurrency,
        "first_s": statistics.median(first for first, _, _ in answers),
        "tokens": tokens,
        "tokens_per_s": tokens / seconds,
        "texts": [text for _, _, text in answers],
    }


def beside_the_bare_server(results: Results, rounds: int, folder: Path) -> None:
    """Directly and through the gateway in turn; who is first changes."""
    with (
        verifier_running(folder) as verifier,
        gateway_before(f"{verifier}=ipc://{folder}/p-0", folder) as gateway,
    ):
        _until_ready(gateway.url)
        sides: list[tuple[str, dict[str, Any], list[dict[str, float]]]] = [
            (verifier, {}, results.bare),
            (gateway.url, NO_DRAFTS, results.gateway),
        ]
        for concurrency in (1, len(PROMPTS)):
            for url, extra, _ in sides:
                asyncio.run(_wave(url, concurrency, extra))  # what comes first is slow
            for number in range(rounds):
                for url, extra, into in sides if number % 2 else reversed(sides):
                    into.append(asyncio.run(_wave(url, concurrency, extra)))
                print(f"  concurrency {concurrency}, round {number + 1} of {rounds}", flush=True)


def _until_ready(gateway: str) -> None:
    """Until its draft port is attached."""
    deadline = time.monotonic() + 60
    while httpx2.get(f"{gateway}/health", timeout=10).json()["status"] != "ok":
        if time.monotonic() > deadline:
            sys.exit("the gateway does not attach to the verifier's draft port")
        time.sleep(0.1)


# --- the flood ---


@contextmanager
def fast_engine(folder: Path) -> Iterator[str]:
    """The played engine; gives its address."""
    port = free_port()
    argv = [sys.executable, "-m", "bench.fast_engine", "--port", str(port), "--gather", str(STREAMS)]
    server = Server(argv, folder / "engine.log")
    try:
        server.wait_healthy(f"http://127.0.0.1:{port}/v1/models", timeout_s=60)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()


def _pin(pid: int, *, first: bool) -> None:
    """The gateway to the first core, the others to the rest."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(pid, cores[:1] if first else cores[1:])


def _flood(url: str, *options: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "bench.flood", "--url", f"{url}/v1", "--key", KEY, *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        _pin(child.pid, first=False)
        output, _ = child.communicate(timeout=300)
    if child.returncode:
        raise RuntimeError(f"the client failed with {child.returncode}")
    return dict(json.loads(output))


def _through(gateway: GatewayProcess, *options: str) -> dict[str, Any]:
    """A flood through the gateway, with the CPU time that the gateway took for it."""
    process = psutil.Process(gateway.server.process.pid)
    cut = gateway.server.log.read_bytes().count(b"ClientStalled")
    before = process.cpu_times()
    told = _flood(gateway.url, *options)
    after = process.cpu_times()
    told["cpu_s"] = after.user + after.system - before.user - before.system
    told["words_per_cpu_s"] = told["words"] / told["cpu_s"]
    told["cut_off"] = gateway.server.log.read_bytes().count(b"ClientStalled") - cut
    told["rss_mib"] = process.memory_info().rss / 2**20
    return told


def floods(results: Results, rounds: int, words: int, folder: Path, *, profile: bool) -> None:
    """Chunks a second, fairness, readers that stall, and memory."""
    usual = ("--streams", str(STREAMS), "--words", str(words))
    env = {"NEXUS_GATEWAY_LIMITS__STALLED_CLIENT_S": str(STALLED_S)}
    with (
        fast_engine(folder) as engine,
        gateway_before(f"{engine}=ipc://{folder}/none-0", folder, **env) as gateway,
    ):
        _pin(gateway.server.process.pid, first=True)
        results.direct = _flood(engine, *usual)
        _through(gateway, "--streams", "20", "--words", "50")
        one = ("--streams", "200", "--words", "4", "--one-by-one")
        results.added_first_s = {
            "direct": _flood(engine, *one)["first_s"],
            "gateway": _through(gateway, *one)["first_s"],
        }
        for number in range(rounds):
            results.floods.append(_through(gateway, *usual))
            results.stalled.append(_through(gateway, *usual, "--stalled", str(STALLED)))
            print(f"  flood, round {number + 1} of {rounds}", flush=True)
        for _ in range(10):
            results.memory.append(_through(gateway, "--streams", str(STREAMS), "--words", str(words // 2))["rss_mib"])
        if profile:
            results.profile = _profile(gateway, usual)


def _profile(gateway: GatewayProcess, usual: Sequence[str]) -> list[str]:
    """The functions in which the gateway spends most of a flood, by their own time."""
    spy = shutil.which("py-spy")
    if spy is None:
        print("  no profile: py-spy is not on PATH", flush=True)
        return []
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        argv = [spy, "record", "--gil", "-d", "8", "-r", "200", "-f", "raw", "-o", str(raw), "-p"]
        with subprocess.Popen(
            [*argv, str(gateway.server.process.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ):
            _flood(gateway.url, *usual)
        own: Counter[str] = Counter()
        for line in raw.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            own[stack.rpartition(";")[2]] += int(count)
    total = sum(own.values())
    return [f"{count / total:.1%} {name}" for name, count in own.most_common(15)]


# --- what it means ---


def claims(results: Results) -> list[Claim]:
    """Each with its figure, the median over rounds."""
    told: list[Claim] = []
    if results.bare:
        alone = [_median(runs, "first_s", 1) * 1000 for runs in (results.bare, results.gateway)]
        many = [_median(runs, "tokens_per_s", len(PROMPTS)) for runs in (results.bare, results.gateway)]
        added, ratio = alone[1] - alone[0], many[1] / many[0]
        told.append(Claim("time to first token, added, ms", added, f"≤ {TTFT_MS:g}", added <= TTFT_MS))
        told.append(Claim("throughput of the bare server", ratio, f"≥ {THROUGHPUT:g}", ratio >= THROUGHPUT))
    if results.floods:
        speed = statistics.median(run["words_per_cpu_s"] for run in results.floods)
        fair = statistics.median(run["rates"][0] / run["rates"][1] for run in results.floods)
        rates = [statistics.median(run["rates"][1] for run in runs) for runs in (results.floods, results.stalled)]
        lost = sum(STREAMS - run["endings"].get("done", 0) for run in results.floods + results.stalled)
        cut = sum(run["cut_off"] for run in results.stalled)
        growth = max(results.memory[3:]) - results.memory[2]
        whole = len(results.stalled) * STALLED
        told += [
            Claim(
                f"chunks for a second of a core, {STREAMS} streams", speed, f"≥ {CHUNKS_PER_S:g}", speed >= CHUNKS_PER_S
            ),
            Claim("slowest stream's rate to the median's", fair, f"≥ {FAIRNESS:g}", fair >= FAIRNESS),
            Claim("streams that did not end well", lost, "= 0", lost == 0),
            Claim(
                "rate beside stalled readers", rates[1] / rates[0], f"≥ {UNHARMED:g}", rates[1] >= UNHARMED * rates[0]
            ),
            Claim("stalled readers cut off", cut, f"= {whole}", cut == whole),
            Claim("memory gained over seven more floods, MiB", growth, f"≤ {GROWTH_MIB:g}", growth <= GROWTH_MIB),
        ]
    return told


def _median(runs: Sequence[dict[str, Any]], name: str, concurrency: int) -> float:
    return statistics.median(float(run[name]) for run in runs if run["concurrency"] == concurrency)


def report(results: Results) -> str:
    """Markdown."""
    lines = ["# The gateway's cost", "", results.machine, "", "| claim | figure | bound | |", "|---|---|---|---|"]
    for claim in claims(results):
        holds = "holds" if claim.holds else "does not hold"
        lines.append(f"| {claim.name} | {claim.figure:.4g} | {claim.bound} | {holds} |")
    lines.append("")
    if results.bare:
        lines += ["| | time to first token, alone, ms | tokens a second, eight at once |", "|---|---|---|"]
        for name, runs in (("bare", results.bare), ("gateway", results.gateway)):
            first, rate = _median(runs, "first_s", 1) * 1000, _median(runs, "tokens_per_s", len(PROMPTS))
            lines.append(f"| {name} | {first:.1f} | {rate:.1f} |")
        same = sum(a["texts"] == b["texts"] for a, b in zip(results.bare, results.gateway, strict=True))
        lines += ["", f"Rounds with the same texts on both sides: {same} of {len(results.bare)}.", ""]
    if results.floods:
        wall = statistics.median(run["words_per_s"] for run in results.floods)
        lines += [
            "Chunks for each second on the clock, with engine and client on the other core and whatever else the "
            f"machine did: {wall:.0f}. The same client straight at the engine: {results.direct['words_per_s']:.0f}.",
            "",
            "Events that reached the client for each chunk of the engine (chunks that wait are merged): "
            f"{statistics.median(run['events'] / run['words'] for run in results.floods):.3f}.",
            "",
            "Time to first text, one request at a time, engine at once: "
            + ", ".join(f"{name} {seconds * 1000:.2f} ms" for name, seconds in results.added_first_s.items())
            + ".",
            "",
            "Memory after each flood, MiB: " + ", ".join(f"{each:.0f}" for each in results.memory) + ".",
            "",
        ]
    if results.profile:
        lines += ["Where the gateway's time goes, by function:", "", *(f"- {line}" for line in results.profile), ""]
    return "\n".join(lines)


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{len(os.sched_getaffinity(0))} cores, {model}, Python {sys.version.split()[0]}"


def main() -> int:
    """Exit status 1 when a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-model", action="store_true", help="leave out what needs the real verifier")
    parser.add_argument("--only-model", action="store_true", help="leave out the flood")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement")
    parser.add_argument("--words", type=int, default=1000, help="of each stream of a flood")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, too
    results = Results(_machine())
    with tempfile.TemporaryDirectory(prefix="nx") as name:
        folder = Path(name)
        if not options.only_model:
            print("A flood of streams through the gateway …", flush=True)
            floods(results, min(3, options.rounds), options.words, folder, profile=options.profile)
        if not options.no_model:
            print("Beside the bare server …", flush=True)
            beside_the_bare_server(results, options.rounds, folder)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "results.json").write_text(json.dumps(asdict(results), indent=1))
    (OUT / "report.md").write_text(report(results))
    table = Table("claim", "figure", "bound", "")
    judged = claims(results)
    for claim in judged:
        table.add_row(
            claim.name, f"{claim.figure:.4g}", claim.bound, "holds" if claim.holds else "[red]does not hold[/]"
        )
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    print(f"{OUT.relative_to(Path.cwd())}/report.md")
    return 0 if all(claim.holds for claim in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
