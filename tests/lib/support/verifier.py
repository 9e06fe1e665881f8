"""The suite's real verifier as tests see it, and the prompts it is asked."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from support.servers import Server

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
    "Two plus two equals",
    "The chemical formula of water is",
    "My favourite book is",
    "for i in range(10):\n",
    "Chapter 1\n\nIt was a dark",
    "The recipe calls for flour, sugar,",
    "She opened the door and",
    "Guten Morgen! Wie",
    "| name | age |\n|---|---|\n",
    "The meeting starts at",
    "To whom it may concern:",
    "A triangle has three",
    "int main(void) {",
    "The three branches of government are",
    "Yesterday I went to the",
    "x = 3\ny = 4\nprint(x + y)  #",
)
"""40 prompts, so that a batch of 8 is refilled four times."""
TOKENS = 16
ENGINE_FLAGS = ("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8", "--seed", "0")


@dataclass(frozen=True)
class Verifier:
    """The running verifier."""

    url: str
    draft_port: str
    folder: Path
    server: Server

    def complete(
        self, prompt: str | list[int], *, stream: str | None = None, gateway: str = "played", **body: Any
    ) -> Any:
        """One completion over the stock HTTP interface; the whole answer, with token ids."""
        if stream is not None:
            names = {"nexus_stream": stream, "nexus_gateway": gateway}
            body["vllm_xargs"] = {**body.get("vllm_xargs", {}), **names}
        return complete(self.url, prompt, **body)


def post(url: str, prompt: str | list[int], **body: Any) -> httpx2.Response:
    """One completion request; the bare answer."""
    body = {"model": "smollm2-135m", "prompt": prompt, "max_tokens": TOKENS, "return_token_ids": True, **body}
    return httpx2.post(f"{url}/v1/completions", json=body, timeout=300)


def complete(url: str, prompt: str | list[int], **body: Any) -> Any:
    answer = post(url, prompt, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def complete_all(url: str, prompts: tuple[str, ...], **body: Any) -> list[list[int]]:
    """Token ids of all answers, asked for at once: the engine keeps its batch of 8 full."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: complete(url, prompt, **body)["token_ids"], prompts))
