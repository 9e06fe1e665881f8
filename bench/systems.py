"""The four systems that are compared, as processes: started, addressed, and watched for the CPU time that they take."""

import json
import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
from support.servers import CPU_ENGINE, Server, free_port, nexus, stock_vllm

from bench.client import Endpoint
from bench.traces import DRAFT, TARGET
from shared.models.resolve import resolve

STOCK, DRAFT_MODEL, NGRAM, NEXUS = "stock", "draft-model", "n-gram", "nexus"
SYSTEMS = (STOCK, DRAFT_MODEL, NGRAM, NEXUS)
WORDS = {
    STOCK: "stock vLLM",
    DRAFT_MODEL: "stock vLLM, draft-model speculation (k = 4)",
    NGRAM: "stock vLLM, n-gram speculation (k = 4)",
    NEXUS: "Nexus",
}
KV_CACHE_BYTES = 512 << 20
"""Nine thousand tokens of the target: no cell comes near, and two engines must fit into memory together."""
FLAGS = (
    *("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "16", "--seed", "0"),
    *("--kv-cache-memory-bytes", str(KV_CACHE_BYTES)),
)
NEED_GIB = {STOCK: 10.0, NGRAM: 10.0, NEXUS: 10.5, DRAFT_MODEL: 13.5}
"""Memory of an engine, all its processes; Nexus with the gateway."""
CPUS_ENV = "NEXUS_BENCH_CPUS"
LARGE_BYTES = 4 << 20
"""Allocations from here on go back to the system when freed: loading leaves a gigabyte of holes otherwise."""
MAX_DRAFT, AHEAD, CANDIDATES = 8, 32, 2
API_KEY = "nx_bench_key"
NATIVE_K = 4
"""Draft length of vLLM's own speculation, its documentation's usual choice."""


def engine_cpus() -> list[int]:
    """Those that an engine's threads are bound to: all, or the first so many as `NEXUS_BENCH_CPUS` says. By itself vLLM
    keeps one free for its other processes, which leaves a machine with two one thread.
    """
    usable = sorted(os.sched_getaffinity(0))
    return usable[: int(os.environ.get(CPUS_ENV) or len(usable))]


def engine_environment() -> dict[str, str]:
    """The same for all engines: what `nexus verifier serve` sets for a CPU, stock vLLM is given as well."""
    env = {name: value for name, value in CPU_ENGINE.items() if name != "VLLM_CPU_KVCACHE_SPACE"}
    env |= {"TORCHDYNAMO_DISABLE": "1", "MALLOC_MMAP_THRESHOLD_": str(LARGE_BYTES)}
    env["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, engine_cpus()))
    openmp = Path(sysconfig.get_path("data")) / "lib" / "libiomp5.so"
    if openmp.exists():
        env["LD_PRELOAD"] = ":".join(filter(None, [os.environ.get("LD_PRELOAD"), str(openmp)]))
    return env


@dataclass(frozen=True, slots=True)
class System:
    """A running system."""

    name: str
    endpoint: Endpoint
    engine: Server
    gateway: str = ""
    """Nexus: HTTP address of its gateway."""
    draft_port: str = ""
    """Nexus: where the verifier listens."""
    gateway_port: str = ""
    """Nexus: where the gateway looks for the verifier."""

    @property
    def node_url(self) -> str:
        return self.gateway.replace("http", "ws") + "/v1/nodes/connect"

    def cpu_seconds(self) -> float:
        """CPU time of the engine's processes so far; threads that spin for work count as busy."""
        root = psutil.Process(self.engine.process.pid)
        total = 0.0
        for process in (root, *root.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    def memory_gib(self) -> float:
        root = psutil.Process(self.engine.process.pid)
        return float(sum(p.memory_info().rss for p in (root, *root.children(recursive=True)))) / 2**30


def command(name: str, port: int, draft_port: str) -> list[str]:
    """Command line of a system's engine."""
    if name == NEXUS:
        arguments = ("verifier", "serve", TARGET, "--draft-port", draft_port, "--max-draft", str(MAX_DRAFT))
        return nexus(*arguments, "--port", str(port), *FLAGS)
    flags = list(FLAGS)
    if name == DRAFT_MODEL:
        flags += ["--speculative-config", _json(method="draft_model", model=str(resolve(DRAFT)))]
    elif name == NGRAM:
        flags += ["--speculative-config", _json(method="ngram", prompt_lookup_max=4, prompt_lookup_min=2)]
    return stock_vllm(resolve(TARGET), TARGET, port, *flags)


def _json(**settings: object) -> str:
    return json.dumps({**settings, "num_speculative_tokens": NATIVE_K})


@contextmanager
def running(name: str, folder: Path) -> Iterator[System]:
    """A system from its start to its end. For Nexus without the gateway, which is `gateway`'s."""
    port = free_port()
    draft_port = f"ipc://{folder}/p"
    engine = Server(command(name, port, draft_port), folder / f"{name}.log", env=engine_environment())
    try:
        engine.wait_healthy(f"http://127.0.0.1:{port}/health", timeout_s=600)
        url = f"http://127.0.0.1:{port}"
        # Sampled answers differ between systems; without this, stock's could end early and be cheaper.
        extra: dict[str, object] = {"ignore_eos": True} if name != NEXUS else {}
        yield System(name, Endpoint(f"{url}/v1", extra=extra), engine, "", f"{draft_port}-0", f"ipc://{folder}/tap")
    finally:
        engine.stop()


@contextmanager
def gateway(verifier: System, folder: Path) -> Iterator[System]:
    """Nexus complete: the verifier with a gateway before it. The tap must carry the draft port already."""
    keys = folder / "keys"
    keys.write_text(API_KEY + "\n")
    url = verifier.endpoint.url.removesuffix("/v1")
    arguments = ("gateway", "serve", "--port", "0", "--verifier", f"{url}={verifier.gateway_port}")
    env = {"NEXUS_GATEWAY_BROKER__K": str(MAX_DRAFT), "NEXUS_GATEWAY_BROKER__AHEAD": str(AHEAD)}
    env["NEXUS_GATEWAY_BROKER__CANDIDATES"] = str(CANDIDATES)
    env["NEXUS_GATEWAY_LOG__LEVEL"] = "warning"
    env["NEXUS_GATEWAY_DATABASE"] = str(folder / "gateway.db")
    server = Server(nexus(*arguments, "--api-keys-file", str(keys)), folder / "gateway.log", env=env)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"ready: (http://\S+)/v1", server.tail())):
            if server.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the gateway does not start:\n{server.tail()}")
            time.sleep(0.05)
        yield System(
            NEXUS,
            Endpoint(f"{found[1]}/v1", API_KEY),
            verifier.engine,
            found[1],
            verifier.draft_port,
            verifier.gateway_port,
        )
    finally:
        server.stop()


def health(system: System) -> dict[str, object]:
    """What the gateway says of itself."""
    return dict(httpx2.get(f"{system.gateway}/health", timeout=10).json())
