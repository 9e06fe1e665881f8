"""The clients, the locks of their environments, and the versions that those name."""

import json
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parents[2] / "clients"
"""tests/clients: the locks and the scenarios."""
LOCKS, SCENARIOS = HERE / "locks", HERE / "scenarios"


@dataclass(frozen=True, slots=True)
class Client:
    """One client. Its lock is `locks/<name>.txt` (Python) or `locks/<name>/package-lock.json` (Node)."""

    name: str
    kind: Literal["python", "node", "ours"]
    """`ours`: it runs in the environment of this repository."""
    packages: tuple[str, ...]
    """Those whose versions are told."""
    scenario: str
    """File of `scenarios/`."""
    load: bool = False
    """Puts the gateway under load, and needs a model's tokenizer."""

    @property
    def lock(self) -> Path:
        return LOCKS / self.name / "package-lock.json" if self.kind == "node" else LOCKS / f"{self.name}.txt"

    def versions(self) -> dict[str, str]:
        """Of `packages`, as locked."""
        if self.kind == "ours":
            return {name: _installed(name) for name in self.packages}
        text = self.lock.read_text()
        if self.kind == "node":
            entries = json.loads(text)["packages"]
            return {name: entries[f"node_modules/{name}"]["version"] for name in self.packages}
        found = {name: re.search(rf"^{re.escape(name)}==(\S+)", text, re.MULTILINE) for name in self.packages}
        return {name: match[1] for name, match in found.items() if match}


def _installed(name: str) -> str:
    """vLLM's build for CPUs has a name of its own."""
    try:
        return version(name)
    except PackageNotFoundError:
        return version(f"{name}-cpu")


CLIENTS = (
    Client("openai-python", "python", ("openai",), "openai_python.py"),
    Client("openai-node", "node", ("openai",), "openai_node.mjs"),
    Client("ai-sdk", "node", ("@ai-sdk/openai-compatible", "ai"), "ai_sdk.mjs"),
    Client("langchain", "python", ("langchain-openai", "openai"), "langchain.py"),
    Client("llama-index", "python", ("llama-index-llms-openai-like", "openai"), "llama_index_like.py"),
    Client("llm", "python", ("llm", "openai"), "llm_command.py"),
    Client("instructor", "python", ("instructor", "openai"), "instructor_models.py"),
    Client("llm-comply", "python", ("llm-comply",), "llm_comply.py"),
    Client("compatcanary", "node", ("compatcanary",), "compatcanary.mjs"),
    Client("guidellm", "python", ("guidellm",), "guidellm_load.py", load=True),
    Client("vllm-bench", "ours", ("vllm",), "vllm_bench.py", load=True),
)
