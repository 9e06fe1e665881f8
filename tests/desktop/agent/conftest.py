"""Fixtures of the agent's tests: no setting of the machine that runs them is seen."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty configuration folder, and no NEXUS_AGENT_* variable."""
    for name in list(os.environ):
        if name.upper().startswith("NEXUS_AGENT_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "config"
    folder.mkdir()
    monkeypatch.setenv("NEXUS_CONFIG_DIR", str(folder))
    return folder
