"""What `make clients` does, in the suite: the official Python client's scenario, before a played verifier."""

import json
import os
import subprocess
import sys

from clients.catalogue import SCENARIOS
from clients.stack import running


def test_the_official_client_works_unchanged(tmp_path):
    """Every check of its scenario passes against a gateway process, and only what is not served is skipped."""
    with running(played=True) as stack:
        done = subprocess.run(
            [sys.executable, str(SCENARIOS / "openai_python.py")],
            env={**os.environ, **stack.environment()},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        log = stack.gateway_log.read_text()
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, [each for each in told if each["result"] == "failed"] or done.stderr
    assert len(told) > 15 and sum(each["result"] == "passed" for each in told) >= len(told) - 1
    assert "Traceback" not in log, log
