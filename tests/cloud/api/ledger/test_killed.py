"""Gateways that are killed at random moments, under load, two on one database: nothing is lost or doubled."""

import json
import os
import random
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
    done = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-4000:]}"
    return json.loads(done.stdout)


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
def test_two_hundred_kills(database_url, tmp_path):
    """As many as the acceptance asks for."""
    check(run(database_url, tmp_path / "spool", 200))
