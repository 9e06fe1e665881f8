"""Gateways that are killed at random moments, under load, two on one database: nothing is lost or doubled."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def run(address, spool, rounds):
    """Kill two gateways so many times; what was told to whom, and what the books hold in the end."""
    seed = random.randrange(10**6)
    argv = [sys.executable, "-m", "support.ledger_load", address, str(spool), str(rounds), str(seed)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'lib'}"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(argv, env=environment, cwd=ROOT, text=True, start_new_session=True, **pipes)
    try:
        told, errors = process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"seed {seed}: {errors[-4000:]}"
    return json.loads(told)


def check(result):
    """Each settlement that was acknowledged is in the books once, at its cost; they reconcile; nothing is held."""
    assert result["problems"] == [] and result["overdue"] == 0 and result["held"] == 0
    assert result["spool"] == []
    told, usage = result["told"], result["usage"]
    assert told.items() <= usage.items() and len(told) > 20
    paid_for = {request for request, cost in usage.items() if cost}
    # A request that cost nothing has an event where its reservation was written.
    assert paid_for <= set(result["settled"]) <= set(usage) and set(result["settled"].values()) == {1}
    assert result["paid_in"] >= result["paid"]


def test_a_few_kills(database_url, tmp_path):
    """Eight, at any moment from their start on."""
    check(run(database_url, tmp_path / "spool", 8))


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_two_hundred_kills(database_url, tmp_path):
    """As many as the acceptance asks for."""
    check(run(database_url, tmp_path / "spool", 200))
