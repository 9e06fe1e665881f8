"""Sends bench/prompts.jsonl greedily to a gateway and prints tokens per verification (`make bench`).

Without a gateway named, `nexus demo` is started for it and ended afterwards. To measure one that runs:
NEXUS_URL=http://127.0.0.1:8080/v1 NEXUS_API_KEY=… make bench
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent


@contextlib.contextmanager
def demo() -> Iterator[tuple[str, str]]:
    """A running `nexus demo`: URL and key of its gateway. It ends with the block, and leaves no process."""
    command = [sys.executable, "-m", "shared.cli", "demo", "--max-tokens", "8"]
    found: dict[str, str] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(f"  demo: {line.rstrip()}", file=sys.stderr)
                name, _, value = line.strip().partition(" ")
                if name in ("API", "key"):
                    found[name] = value.strip()
                if "wall time" in line:
                    break
            else:
                raise SystemExit("nexus demo did not start; see above")
            yield found["API"], found["key"]
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.read()


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
    if bool(options.url) != bool(options.key):
        parser.error("a running gateway needs both: --url and --key, or NEXUS_URL and NEXUS_API_KEY")
    if options.url:
        return report(options.url, options.key, options.model, options.at_least)
    with demo() as (url, key):
        return report(url, key, options.model, options.at_least)


def report(url: str, key: str, wanted: str | None, at_least: float) -> int:
    """Measures all prompts and prints the table; 1 when a request failed or the average is below `at_least`."""
    client = openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=600)
    prompts = [json.loads(line) for line in (HERE / "prompts.jsonl").read_text().splitlines()]
    table = Table("prompt", "tokens", "verify steps", "tokens/step", "accepted", "tokens/s")
    results = []
    try:
        model = wanted or next(iter(client.models.list())).id
        for prompt in prompts:
            results.append(measure(client, model, prompt))
            table.add_row(*row(prompt["id"], results[-1:]))
    except openai.OpenAIError as error:
        print(f"{url}: {error}", file=sys.stderr)
        return 1
    table.add_section()
    table.add_row(*row("all", results))
    Console().print(table)
    out = HERE / "out"
    out.mkdir(exist_ok=True)
    (out / "prompts.json").write_text(json.dumps({"model": model, "results": results}, indent=1))
    steps = sum(result["verify_steps"] for result in results)
    return 0 if steps and sum(result["tokens"] for result in results) / steps >= at_least else 1


if __name__ == "__main__":
    sys.exit(main())
