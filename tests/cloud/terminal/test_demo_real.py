"""The demo with a real model: what `make demo ARGS="--tiny --once"` runs."""

import os
import re
import subprocess
import sys
import uuid

import psutil
import pytest


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.soak  # drafts for itself: where that is no faster than a step of the verifier, none comes in time
def test_the_demo_answers_with_accepted_drafts_and_leaves_no_process() -> None:
    """A verifier, a gateway and a node in processes of their own; the answer is real, and most of it was drafted."""
    mark = f"NEXUS_TEST_MARK={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    done = subprocess.run(
        [sys.executable, "-m", "shared.cli", "demo", "--tiny", "--once", "--max-tokens", "48"],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout[done.stdout.rindex("Prompt: ") :]  # it asks again when the node was late
    answer = re.search(r"Prompt: .*?\n\n(.*)\n\n  tokens ", last, re.DOTALL)
    assert answer is not None, done.stdout
    assert len(answer[1].split()) > 10
    tokens = int(re.search(r"^  tokens +(\d+)$", last, re.MULTILINE)[1])  # type: ignore[index]
    steps = int(re.search(r"^  verify steps +(\d+)$", last, re.MULTILINE)[1])  # type: ignore[index]
    accepted = int(re.search(r"\((\d+) of \d+ drafted tokens\)", last)[1])  # type: ignore[index]
    assert 0 < accepted < tokens
    assert steps < tokens
    assert not [process.pid for process in psutil.process_iter() if _has(process, name, value)]


def _has(process: psutil.Process, name: str, value: str) -> bool:
    try:
        return process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
