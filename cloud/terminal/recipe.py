"""What the demo is made of: models, command lines, memory and time limits, all in one place."""

import importlib.metadata
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from cloud.terminal.parts import PartSpec

PROMPT: Final = "Write a Python function that checks whether a string is a palindrome, and explain how it works."
MAX_TOKENS: Final = 200
MAX_MODEL_LEN: Final = 4096
MAX_NUM_SEQS: Final = 8
VERIFIER_KV_GIB: Final = 2
WORKER_KV_GIB: Final = 1
GPU_SHARE: Final = 0.5
"""Share of a GPU's memory for the verifier; the draft worker's own default fits beside it."""
MAX_HOLD_MS: Final = 6000
"""How long an answer may wait for its draft at most. Without a GPU, a drafted token takes about a third of a
verification; the verifier measures what it really takes."""
VERIFIER_TIMEOUT_S: Final = 900.0
GATEWAY_TIMEOUT_S: Final = 120.0
NODE_TIMEOUT_S: Final = 900.0
_PROBE_S: Final = 3.0
POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Pair:
    """A target model, the model that drafts for it, and the draft engine."""

    target: str
    draft: str
    engine: str


STANDARD: Final = Pair("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "auto")
TINY: Final = Pair("smollm2-135m", "smollm2-135m", "transformers")
"""For a quick look: a model of 135 million parameters that drafts for itself."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything the demo starts."""

    pair: Pair
    url: str
    """Of the gateway's API."""
    key: str
    fetch: Sequence[str]
    """Command that fetches the models, at once when they are there."""
    parts: Sequence[PartSpec]


def recipe(pair: Pair, *, folder: Path, port: int, draft: int, key: str) -> Recipe:
    """The command lines. `folder` is private to the user, and its path short: the draft port's socket is in it.
    `port` 0 takes a free one for the gateway."""
    verifier_port = free_port()
    gateway_port = port or free_port()
    verifier, gateway = f"http://127.0.0.1:{verifier_port}", f"http://127.0.0.1:{gateway_port}"
    draft_port = f"ipc://{folder}/draft-port"
    keys = folder / "api-keys"
    keys.touch(mode=0o600)
    keys.write_text(key + "\n", encoding="utf-8")
    gpu = on_gpu()
    verifier_cores, node_cores = (None, None) if gpu else share_cores(usable_cores())
    look = Probe()
    return Recipe(
        pair=pair,
        url=f"{gateway}/v1",
        key=key,
        fetch=nexus("models", "fetch", *dict.fromkeys((pair.target, pair.draft))),
        parts=(
            PartSpec(
                name="verifier",
                title=f"verifier ({pair.target})",
                command=[
                    *nexus("verifier", "serve", pair.target, "--draft-port", draft_port, "--max-draft", str(draft)),
                    *("--port", str(verifier_port), "--max-model-len", str(MAX_MODEL_LEN)),
                    *("--max-num-seqs", str(MAX_NUM_SEQS)),
                    # Verifier and node share a small machine: a draft takes as long as several steps, and waiting
                    # leaves the cores to the node. On GPUs the verifier's own weighing is right.
                    *(("--gpu-memory-utilization", str(GPU_SHARE)) if gpu else ("--wait-price", "0")),
                ],
                env={
                    "VLLM_CPU_KVCACHE_SPACE": str(VERIFIER_KV_GIB),
                    "VLLM_NO_USAGE_STATS": "1",
                    **({"VLLM_CPU_OMP_THREADS_BIND": verifier_cores} if verifier_cores else {}),
                },
                is_ready=lambda: look(f"{verifier}/health") is not None and _attached(look(f"{gateway}/health")),
                timeout_s=VERIFIER_TIMEOUT_S,
            ),
            PartSpec(
                name="gateway",
                title="gateway",
                command=[
                    *nexus("gateway", "serve", "--host", "127.0.0.1", "--port", str(gateway_port)),
                    *("--verifier", f"{verifier}={draft_port}-0", "--api-keys-file", str(keys)),
                ],
                env={
                    "NEXUS_GATEWAY_DATABASE": ":memory:",
                    "NEXUS_GATEWAY_BROKER__K": str(draft),
                    "NEXUS_GATEWAY_BROKER__MAX_HOLD_MS": str(MAX_HOLD_MS),
                },
                is_ready=lambda: bool(look(f"{gateway}/health")),
                timeout_s=GATEWAY_TIMEOUT_S,
            ),
            PartSpec(
                name="agent",
                title=f"draft node ({pair.draft})",
                command=[
                    *nexus("agent", "run", "--gateway", gateway, "--model", pair.draft, "--engine", pair.engine),
                    *("--streams", str(MAX_NUM_SEQS), "--max-model-len", str(MAX_MODEL_LEN)),
                    *("--kv-cache-gib", str(WORKER_KV_GIB), "--worker-log", str(folder / "draft-worker.log")),
                    *(
                        ("--threads-bind", node_cores, "--threads", str(node_cores.count(",") + 1))
                        if node_cores
                        else ()
                    ),
                ],
                env={"VLLM_NO_USAGE_STATS": "1"},
                is_ready=lambda: _has_node(look(f"{gateway}/health")),
                timeout_s=NODE_TIMEOUT_S,
            ),
        ),
    )


def nexus(*arguments: str) -> list[str]:
    """A command of this same installation."""
    return [sys.executable, "-m", "shared.cli", *arguments]


def clean_environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The demo stands on its own: no settings of the user's own gateway or agent reach it."""
    ours = ("NEXUS_GATEWAY_", "NEXUS_AGENT_")
    kept = {name: value for name, value in environ.items() if not name.startswith(ours)}
    return {**kept, "NEXUS_CONFIG_DIR": str(folder / "config"), "NEXUS_RUNTIME_DIR": str(folder)}


def usable_cores() -> list[int]:
    """The CPU cores that this process may use."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return []


def share_cores(cores: Sequence[int]) -> tuple[str | None, str | None]:
    """Which cores the verifier gets, and which the draft node; none leaves it to vLLM.

    Both use OpenMP threads that wait for each other actively, so two engines on the same cores slow each other down
    out of all proportion. Checking a draft of the small model takes about as long as making it, hence halves.
    """
    if len(cores) < 2:
        return None, None
    half = (len(cores) + 1) // 2
    return ",".join(map(str, cores[:half])), ",".join(map(str, cores[half:]))


def on_gpu() -> bool:
    """Whether vLLM's GPU build is installed; its CPU build is a package of another name."""
    try:
        importlib.metadata.distribution("vllm")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def missing_packages() -> list[str]:
    """What the demo needs and this environment lacks."""
    found = {name for name in ("vllm", "vllm-cpu", "fastapi", "pyzmq", "psutil", "websockets") if _installed(name)}
    lacking = {"fastapi", "pyzmq", "psutil", "websockets"} - found
    return sorted(lacking | (set() if found & {"vllm", "vllm-cpu"} else {"vllm (or vllm-cpu)"}))


def _installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def short_temporary_folder() -> str | None:
    """Where to make the runtime folder; none is the system's own choice. A Unix socket's path must stay below about
    100 bytes."""
    chosen = os.environ.get("TMPDIR", "")
    return "/tmp" if len(chosen) > 60 else None


class Probe:
    """Looks whether servers answer, over one client: to make one costs more than to ask."""

    def __init__(self) -> None:
        self._http = httpx2.Client(timeout=_PROBE_S, trust_env=False)

    def __call__(self, url: str) -> dict[str, Any] | None:
        """The JSON object at `url`, an empty one for a body that is none; none when there is no answer, or one with
        neither success nor a JSON object."""
        try:
            response = self._http.get(url)
        except httpx2.HTTPError:
            return None
        try:
            body = response.json()
        except ValueError:
            return {} if response.is_success else None
        return body if isinstance(body, dict) else {}


def _attached(health: dict[str, Any] | None) -> bool:
    """The gateway reaches the verifier's server and its draft port."""
    return health is not None and health.get("status") == "ok"


def _has_node(health: dict[str, Any] | None) -> bool:
    """A node has proved its key and offered its model."""
    return health is not None and health.get("nodes", 0) >= 1
