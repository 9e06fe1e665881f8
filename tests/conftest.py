"""What the whole suite shares: one real verifier, and what a stock engine answers to the same prompts."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.servers import CPU_ENGINE, Server, free_port, nexus, stock_vllm

from shared.models.resolve import resolve

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village,",
    "def fibonacci(n):",
    "Water boils at a temperature of",
    "Explain gravity in simple words:",
    "List three colours:\n1.",
    "The quick brown fox",
    "1, 2, 3, 4, 5,",
    "SELECT name FROM users WHERE",
    "Dear Sir or Madam,",
    "To make pancakes, you need",
    "The first law of thermodynamics states",
    "import numpy as np\n",
    "Roses are red, violets are",
    "Q: What is 7 times 8?\nA:",
    "The largest planet in our solar system",
    "<html>\n<head>\n<title>",
    "In 1969, humans",
    "Photosynthesis is the process",
    "Le chat est",
    "A haiku about autumn:\n",
    "class Stack:\n    def __init__(self):",
    "The opposite of hot is",
    "Breaking news:",
)
"""24 prompts, so that a batch of 8 is refilled twice."""
TOKENS = 48
ENGINE_FLAGS = ("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8", "--seed", "0")


@dataclass(frozen=True)
class Verifier:
    """The running verifier."""

    url: str
    draft_port: str
    folder: Path
    server: Server

    def complete(self, prompt: str, *, stream: str | None = None, gateway: str = "played", **body: Any) -> Any:
        """One completion over the stock HTTP interface; the whole answer, with token ids."""
        if stream is not None:
            body["vllm_xargs"] = {"nexus_stream": stream, "nexus_gateway": gateway}
        return complete(self.url, prompt, **body)


def complete(url: str, prompt: str, **body: Any) -> Any:
    body = {"model": "smollm2-135m", "prompt": prompt, "max_tokens": TOKENS, "return_token_ids": True, **body}
    answer = httpx2.post(f"{url}/v1/completions", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def complete_all(url: str, prompts: tuple[str, ...], **body: Any) -> list[list[int]]:
    """Token ids of all answers, asked for at once: the engine keeps its batch of 8 full."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: complete(url, prompt, **body)["token_ids"], prompts))


@pytest.fixture(scope="session")
def small_model() -> Path:
    """SmolLM2-135M-Instruct, fetched if it is not there."""
    return resolve("smollm2-135m")


@pytest.fixture(scope="session")
def stock_greedy(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What stock vLLM answers greedily to `PROMPTS` at batch 8, without our plugin; it ends before ours starts."""
    kept = tmp_path_factory.getbasetemp().parent / "stock-greedy.json"
    port = free_port()
    server = Server(
        stock_vllm(small_model, "smollm2-135m", port, *ENGINE_FLAGS), kept.with_suffix(".log"), env=CPU_ENGINE
    )
    try:
        server.wait_healthy(f"http://127.0.0.1:{port}/health")
        answers = complete_all(f"http://127.0.0.1:{port}", PROMPTS, temperature=0)
    finally:
        server.stop()
    kept.write_text(json.dumps(answers))
    return answers


@pytest.fixture(scope="session")
def verifier(small_model: Path, stock_greedy: list[list[int]]) -> Iterator[Verifier]:
    """A real `nexus verifier serve` in float32, batch 8, drafts of up to 8 tokens, shared by all tests."""
    folder = Path(tempfile.mkdtemp(prefix="nx"))
    port = free_port()
    draft_port = f"ipc://{folder}/p"
    arguments = ("verifier", "serve", "smollm2-135m", "--draft-port", draft_port, "--max-draft", "8")
    server = Server(nexus(*arguments, "--port", str(port), *ENGINE_FLAGS), folder / "log", env=CPU_ENGINE)
    try:
        server.wait_healthy(f"http://127.0.0.1:{port}/health")
        yield Verifier(f"http://127.0.0.1:{port}", f"{draft_port}-0", small_model, server)
    finally:
        server.stop()
        shutil.rmtree(folder)
