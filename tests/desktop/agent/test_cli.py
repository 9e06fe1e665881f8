"""`nexus agent` as a person meets it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from desktop.agent.cli import app
from desktop.agent.settings import AgentSettings
from shared.keys import NodeKey, node_id

runner = CliRunner()


def test_key_prints_the_same_identity_each_time(own_config: Path) -> None:
    """Made on first use, private, and said where it is."""
    first = runner.invoke(app, ["key"])
    assert first.exit_code == 0
    key = NodeKey.load(own_config / "node.key")
    assert node_id(key.public) in first.output and key.public.hex() in first.output
    assert str(own_config / "node.key") in first.output.replace("\n", "")
    assert (own_config / "node.key").stat().st_mode & 0o777 == 0o600
    assert runner.invoke(app, ["key"]).output == first.output


def test_a_key_that_others_can_read_is_refused_with_the_remedy(own_config: Path) -> None:
    """The error is one line without a traceback."""
    runner.invoke(app, ["key"])
    (own_config / "node.key").chmod(0o644)
    result = runner.invoke(app, ["key"])
    assert result.exit_code == 2
    assert "chmod 600" in result.output and "Traceback" not in result.output


def test_every_setting_has_its_flag_and_its_line_in_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be set that `--help` does not teach."""
    monkeypatch.setenv("COLUMNS", "200")
    result = runner.invoke(app, ["run", "--help"])
    assert result.exit_code == 0
    for name in AgentSettings.model_fields:
        assert f"--{name.replace('_', '-')}" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--streams", "0"], "--streams"),
        (["--gateway", "ftp://x"], "gateway address"),
        (["--engine", "tensor rt"], "module:factory"),
        (["--config", "/nonexistent/agent.toml"], "no settings file"),
        (["--model", "/nonexistent"], "/nonexistent"),
    ],
)
def test_a_wrong_flag_ends_the_command_in_words(arguments: list[str], words: str) -> None:
    """Exit status 2, the flag and the remedy."""
    result = runner.invoke(app, ["run", "--engine", "counting_engine:create", *arguments])
    assert result.exit_code == 2, result.output
    assert words in result.output and "Traceback" not in result.output
