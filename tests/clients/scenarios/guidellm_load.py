"""GuideLLM: a short run of four streams at once, with prompts of its own making and from a file."""

import json
import os
import subprocess
import sys
from pathlib import Path

from checks import KEY, MODEL, TOKENIZER, URL, check, main

REQUESTS = 8


def run(data):
    """The report's one benchmark."""
    report = Path("guidellm.json")
    report.unlink(missing_ok=True)
    argv = [str(Path(sys.executable).with_name("guidellm")), "run", "--disable-progress"]
    argv += ["--backend", f"kind=openai_http,target={URL.removesuffix('/v1')},model={MODEL},api_key={KEY}"]
    argv += ["--profile", "kind=concurrent,streams=4", "--constraint", f"kind=max_requests,count={REQUESTS}"]
    argv += ["--tokenizer", f"kind=hf_auto,model={TOKENIZER}", "--data", data]
    argv += ["--output", f"kind=json,path={report.absolute()}"]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=500)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    [benchmark] = json.loads(report.read_text())["benchmarks"]
    return benchmark


def judge(benchmark):
    """All requests came through."""
    requests = benchmark["requests"]
    errors = [each["info"]["error"] for each in requests["errored"]]
    assert not errors and not requests["incomplete"], errors[:2]
    assert len(requests["successful"]) == REQUESTS
    for each in requests["successful"]:
        assert each["output"] and each["output_metrics"]["text_tokens"] > 0, each
    return requests["successful"]


@check
def from_a_file():
    """Prompts from a file"""
    lines = [json.dumps({"prompt": f"Name {number} colours of the sea."}) for number in range(REQUESTS)]
    Path("prompts.jsonl").write_text("\n".join(lines) + "\n")
    judge(run(f"kind=json_file,path={Path('prompts.jsonl').absolute()}"))


@check
def synthetic():
    """Prompts of its own making, with a fixed length of the answers"""
    for each in judge(run("kind=synthetic_text,prompt_tokens=24,output_tokens=12")):
        assert each["output_metrics"]["text_tokens"] == 12


main()
