"""Sends bench/prompts.jsonl greedily to a gateway and prints tokens per verification (`make bench`).

Start the parts first, for example with `make demo` in another terminal, and name what it printed:
NEXUS_URL=http://127.0.0.1:8080/v1 NEXUS_API_KEY=… make bench
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import openai
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent


def measure(client: openai.OpenAI, model: str, prompt: dict[str, Any]) -> dict[str, Any]:
    """One greedy request: its figures from the answer's `nexus` object, and its wall time in seconds."""
    started = time.perf_counter()
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": prompt["prompt"]}],
        max_tokens=prompt["max_tokens"],
        temperature=0,
    )
    seconds = time.perf_counter() - started
    figures = (answer.model_extra or {})["nexus"]
    assert answer.usage is not None
    return {
        "id": prompt["id"],
        "kind": prompt["kind"],
        "tokens": answer.usage.completion_tokens,
        "seconds": round(seconds, 3),
        **{key: figures[key] for key in ("drafted", "accepted", "verify_steps")},
        "text": answer.choices[0].message.content,
    }


def row(name: str, results: list[dict[str, Any]]) -> list[str]:
    """A line of the table; for several requests the figures of all of them together."""
    tokens, steps, drafted, accepted, seconds = (
        sum(result[key] for result in results) for key in ("tokens", "verify_steps", "drafted", "accepted", "seconds")
    )
    per_step = f"{tokens / steps:.2f}" if steps else "-"
    share = f"{accepted / drafted:.0%}" if drafted else "-"
    return [name, str(tokens), str(steps), per_step, share, f"{tokens / seconds:.1f}"]


def main() -> int:
    """Exit status 1 when a request failed or `--at-least` was not reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default=os.environ.get("NEXUS_URL"), help="base URL, ends with /v1")
    parser.add_argument("--key", default=os.environ.get("NEXUS_API_KEY"), help="API key")
    parser.add_argument("--model", help="default: the first that the gateway lists")
    parser.add_argument("--at-least", type=float, default=0.0, help="fail below so many tokens per verification")
    options = parser.parse_args()
    if not options.url or not options.key:
        parser.error("name a running gateway: --url and --key, or NEXUS_URL and NEXUS_API_KEY (see `make demo`)")
    client = openai.OpenAI(base_url=options.url, api_key=options.key, max_retries=0, timeout=600)
    prompts = [json.loads(line) for line in (HERE / "prompts.jsonl").read_text().splitlines()]
    table = Table("prompt", "tokens", "verify steps", "tokens/step", "accepted", "tokens/s")
    results = []
    try:
        model = options.model or next(iter(client.models.list())).id
        for prompt in prompts:
            results.append(measure(client, model, prompt))
            table.add_row(*row(prompt["id"], results[-1:]))
    except openai.OpenAIError as error:
        print(f"{options.url}: {error}", file=sys.stderr)
        return 1
    table.add_section()
    table.add_row(*row("all", results))
    Console().print(table)
    out = HERE / "out"
    out.mkdir(exist_ok=True)
    (out / "prompts.json").write_text(json.dumps({"model": model, "results": results}, indent=1))
    steps = sum(result["verify_steps"] for result in results)
    return 0 if steps and sum(result["tokens"] for result in results) / steps >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
