"""The catalogue of clients, its locks and its page belong together."""

import json
import re
from pathlib import Path

import pytest
from clients.catalogue import CLIENTS, LOCKS, SCENARIOS
from clients.run import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_client_is_locked_and_has_a_scenario(client):
    """All packages have hashes, and those that are named have a version."""
    assert (SCENARIOS / client.scenario).exists()
    assert set(client.versions()) == set(client.packages)
    if client.kind == "python":
        entries = re.split(r"^(?=[a-z0-9])", client.lock.read_text(), flags=re.MULTILINE)
        assert all("--hash=sha256:" in entry for entry in entries if "==" in entry)
    if client.kind == "node":
        packages = json.loads(client.lock.read_text())["packages"]
        assert all(entry["integrity"] for name, entry in packages.items() if name)


def test_the_page_lists_what_is_locked():
    """The table of docs/clients.md has exactly the catalogue's clients and versions."""
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]*\d[^|]*) \|", PAGE.read_text(), re.MULTILINE)
    told = [(c.name, ", ".join(f"{name} {version}" for name, version in c.versions().items())) for c in CLIENTS]
    assert rows == told


def test_no_lock_is_left_over():
    """Each lock is some client's, or the Node that the Node clients use."""
    assert {path.name for path in LOCKS.glob("*.txt")} == {c.lock.name for c in CLIENTS if c.kind == "python"} | {
        "overrides.txt"
    }
    assert {path.name for path in LOCKS.iterdir() if path.is_dir()} == {
        "node",
        *(c.name for c in CLIENTS if c.kind == "node"),
    }


def test_the_list(capsys):
    """`--list` names every client and starts nothing."""
    assert main(["--list"]) == 0
    told = capsys.readouterr().out
    assert all(client.name in told for client in CLIENTS)
