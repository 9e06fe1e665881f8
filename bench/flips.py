"""How often a greedy answer depends on the batch: stock vLLM at two batch sizes and Nexus, against each other.

In float32 the answers must be the same, whatever the batch and the drafts. In bfloat16 a near-tie may flip with the
shape of the matrix product, with or without Nexus; this counts how often, on the same prompts in one run.
`make bench` runs it; `--dtype float32` shows the other case. Writes bench/out/flips-<dtype>.json.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from support.played_gateway import PlayedGateway
from support.servers import CPU_ENGINE, Server, free_port, nexus, stock_vllm
from support.verifier import PROMPTS, complete

from shared.models.resolve import resolve

MODEL = "smollm2-135m"
VOCABULARY = 49152
FLAGS = ("--max-model-len", "1024", "--max-num-seqs", "8", "--seed", "0")

Answers = list[list[int]]


class Size(NamedTuple):
    """How much is asked."""

    prompts: int
    tokens: int


@contextmanager
def running(argv: Sequence[str], port: int, log: Path) -> Iterator[str]:
    """A server's URL while it runs."""
    server = Server(argv, log, env=CPU_ENGINE)
    try:
        server.wait_healthy(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()


def ask(url: str, batch: int, size: Size, streams: Sequence[str] = ()) -> Answers:
    """All prompts, `batch` at a time."""

    def one(index: int) -> list[int]:
        body: dict[str, Any] = {"temperature": 0, "max_tokens": size.tokens}
        if streams:
            body["vllm_xargs"] = {"nexus_stream": streams[index], "nexus_gateway": "flips"}
        return list(complete(url, PROMPTS[index], **body)["token_ids"])

    with ThreadPoolExecutor(batch) as pool:
        return list(pool.map(one, range(size.prompts)))


def with_drafts(url: str, draft_port: str, size: Size, truths: Answers) -> Answers:
    """Nexus, with a drafter that is right for about three tokens in four."""
    streams = [f"flips-{index}" for index in range(size.prompts)]
    rng = random.Random(7)
    with PlayedGateway(draft_port, name="flips", wait_ms=2000) as gateway:

        def rule(stream: str, tokens: list[int]) -> Sequence[tuple[str, int, Sequence[int]]]:
            done = len(tokens) - gateway.stories[stream].opened.prompt
            rest = truths[streams.index(stream)][done:][:4]
            return [("t", len(tokens), [t if rng.random() < 0.75 else rng.randrange(VOCABULARY) for t in rest])]

        gateway.rule = rule
        answers = ask(url, 8, size, streams)
        gateway.until_closed(*streams)
        drafted = sum(event.drafted for story in gateway.stories.values() for event in story.verified)
        assert drafted, "nothing was drafted: this measured plain decoding"
        return answers


def same(left: Answers, right: Answers) -> str:
    """How many answers agree in every token."""
    return f"{sum(a == b for a, b in zip(left, right, strict=True))} of {len(left)}"


def main() -> int:
    """Exit status 1 when float32 answers differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many of the prompts")
    parser.add_argument("--tokens", type=int, default=24, help="length of an answer")
    options = parser.parse_args()
    dtype, size = options.dtype, Size(options.prompts, options.tokens)
    folder = resolve(MODEL)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="nx") as name:
        log, draft_port = Path(name) / "log", f"ipc://{name}/p"
        with running(stock_vllm(folder, MODEL, port, "--dtype", dtype, *FLAGS), port, log) as url:
            at_eight, at_one = (ask(url, batch, size) for batch in (8, 1))
        argv = nexus("verifier", "serve", MODEL, "--draft-port", draft_port, "--max-draft", "4", "--port", str(port))
        with running([*argv, "--dtype", dtype, *FLAGS], port, log) as url:
            drafted = with_drafts(url, f"{draft_port}-0", size, at_eight)
    rows = {
        "stock, batch 8 and batch 1": same(at_eight, at_one),
        "stock at batch 8 and Nexus at batch 8 with drafts": same(at_eight, drafted),
        "stock at batch 1 and Nexus at batch 8 with drafts": same(at_one, drafted),
    }
    table = Table(f"{MODEL}, {dtype}, greedy, {size.tokens} tokens", "same answers")
    for what, count in rows.items():
        table.add_row(what, count)
    Console().print(table)
    out = Path(__file__).resolve().parent / "out"
    out.mkdir(exist_ok=True)
    (out / f"flips-{dtype}.json").write_text(json.dumps(rows, indent=1))
    return int(dtype == "float32" and len(set(rows.values())) > 1)


if __name__ == "__main__":
    sys.exit(main())
