"""`vllm bench serve`: a short run against chat and text completions; its own report must show all as completed."""

import json
import os
import subprocess
import sys
from pathlib import Path

from checks import KEY, MODEL, TOKENIZER, URL, check, main

PROMPTS, TOKENS = 8, 12
COMMAND = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""`vllm bench serve`; the command itself looks for its version, which the build for CPUs has under another name."""


def run(backend, endpoint, *more):
    """The report."""
    report = Path(f"{backend}.json")
    argv = [sys.executable, "-c", COMMAND, "--backend", backend]
    argv += ["--base-url", URL.removesuffix("/v1"), "--endpoint", endpoint, "--model", MODEL, "--tokenizer", TOKENIZER]
    argv += ["--dataset-name", "random", "--random-input-len", "24", "--random-output-len", str(TOKENS)]
    argv += ["--num-prompts", str(PROMPTS), "--max-concurrency", "4", "--save-result", "--result-filename", str(report)]
    env = {**os.environ, "OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run([*argv, *more], capture_output=True, text=True, env=env, timeout=500)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return json.loads(report.read_text())


@check
def chat():
    """Chat completions, to their ends"""
    told = run("openai-chat", "/v1/chat/completions")
    assert told["completed"] == PROMPTS and told["total_output_tokens"] > 0 and told["median_ttft_ms"] > 0


@check
def completions():
    """Text completions of a fixed length"""
    told = run("openai", "/v1/completions", "--ignore-eos")
    assert told["completed"] == PROMPTS and told["total_output_tokens"] == PROMPTS * TOKENS


main()
