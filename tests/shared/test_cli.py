"""The `nexus` command: lists without importing, and fails in words."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Annotated

import pytest
import typer

from shared import cli
from shared.errors import ModelError

_HELP_ONLY = """
import sys
from shared.cli import main
sys.argv = ["nexus", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = {"torch", "vllm", "transformers", "fastapi", "cloud", "desktop", "httpx2"} & set(sys.modules)
assert not heavy, heavy
"""


def start(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    """Run the command in this process; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["nexus", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def serves(monkeypatch: pytest.MonkeyPatch, target: object, name: str = "gateway") -> None:
    """Make `target` what the entry point `name` loads."""
    monkeypatch.setattr(cli, "_commands", lambda: {name: EntryPoint(name, "cloud.api.cli:app", "nexus.commands")})

    def load(point: EntryPoint) -> object:
        if isinstance(target, Exception):
            raise target
        return target

    monkeypatch.setattr(EntryPoint, "load", load)


def test_help_lists_every_command_without_importing_any() -> None:
    """All entry points, each with a line of help, and none of their libraries."""
    result = subprocess.run([sys.executable, "-c", _HELP_ONLY], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for name in cli._commands():
        assert name in result.stdout
        assert cli._HELP[name].rstrip(".")[:30] in result.stdout


def test_version_is_the_distributions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line."""
    assert not start(monkeypatch, "--version")
    assert capsys.readouterr().out == "nexus 0.1.0\n"


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The remedy is the command to type."""
    serves(monkeypatch, ModuleNotFoundError("No module named 'fastapi'", name="fastapi"))
    assert start(monkeypatch, "gateway", "serve") == 1
    assert capsys.readouterr().err == (
        "nexus: nexus gateway needs the 'cloud' extra: pip install 'nexus-inference[cloud]'\n"
    )


def test_a_library_that_is_missed_while_running_names_the_extra_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands import their heavy parts late."""
    sub = typer.Typer()

    @sub.command()
    def serve() -> None:
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")

    serves(monkeypatch, sub)
    assert start(monkeypatch, "gateway", "serve") == 1
    assert "needs the 'cloud' extra" in capsys.readouterr().err


def test_an_error_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback, status 1."""

    def demo() -> None:
        raise ModelError("no model\nhere")

    serves(monkeypatch, demo, "demo")
    assert start(monkeypatch, "demo") == 1
    assert capsys.readouterr().err == "nexus: no model here\n"


def test_the_traceback_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """NEXUS_TRACEBACK=1 lets the error through."""

    def demo() -> None:
        raise ModelError("no model")

    serves(monkeypatch, demo, "demo")
    monkeypatch.setenv("NEXUS_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["nexus", "demo"])
    with pytest.raises(ModelError):
        cli.main()


def test_unknown_options_reach_a_command_that_takes_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verifier passes vLLM's flags on."""
    sub = typer.Typer()

    @sub.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def serve(context: typer.Context, model: Annotated[str, typer.Argument()]) -> None:
        typer.echo([model, *context.args])

    serves(monkeypatch, sub, "verifier")
    assert not start(monkeypatch, "verifier", "serve", "m", "--dtype", "float32", "--enforce-eager")
    assert capsys.readouterr().out == "['m', '--dtype', 'float32', '--enforce-eager']\n"


def test_an_unknown_command_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 2, as for every wrong use."""
    assert start(monkeypatch, "nonsense") == 2
