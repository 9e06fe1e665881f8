"""`nexus conformance` as a command."""

import asyncio
import json
from dataclasses import replace

import pytest
import typer
from support.defects import Defect, header, instead
from typer.testing import CliRunner

from cloud.conformance import suite
from cloud.conformance.case import CASES
from cloud.conformance.cli import conformance

app = typer.Typer()
app.command()(conformance)


async def judge(served, *arguments):
    """In a thread, as the command runs a loop of its own."""
    command = [served.url, "--key", served.key, *arguments]
    return await asyncio.to_thread(CliRunner().invoke, app, command, env={"COLUMNS": "160"})


async def test_a_good_server_is_0(served, tmp_path):
    """The table shows cases and verdicts, the file holds the same; a URL without /v1 will do."""
    file = tmp_path / "results.json"
    served = replace(served, url=served.url.removesuffix("/v1"))
    result = await judge(served, "--case", "models", "--case", "chat.length", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert "models.list" in result.output and "strict: 5 pass, 0 fail, 0 absent" in result.output
    told = json.loads(file.read_text())
    assert [row["name"] for row in told["cases"]] == [case.name for case in suite.chosen(["models", "chat.len"])]
    assert {(row["strict"], row["compatible"]) for row in told["cases"]} == {("pass", "pass")}


@pytest.mark.parametrize(
    ("defect", "strict", "compatible"),
    [
        (Defect(raw=header("x-request-id", None)), 1, 0),
        (Defect(raw=instead(200, 500)), 1, 1),
    ],
)
async def test_the_level_decides_the_exit_status(served, defect, strict, compatible):
    """A finding that clients do not notice fails the strict level only."""
    served.spoiled.defect = defect
    case = ("--model", "smollm2-135m", "--case", "headers.request_id", "--case", "chat.ids")
    assert (await judge(served, *case)).exit_code == strict
    assert (await judge(served, *case, "--level", "compatible")).exit_code == compatible


async def test_a_server_that_cannot_be_judged_is_2(served):
    """No server, no models, no such case: told in words."""
    served.spoiled.defect = Defect(raw=lambda _, raw: (200, raw[1], b"{}"))
    result = await judge(served)
    assert result.exit_code == 2 and "does not name a model" in result.output
    result = await judge(replace(served, url="http://127.0.0.1:9/v1"))
    assert result.exit_code == 2 and "cannot be judged" in result.output
    assert (await judge(served, "--case", "nonsense")).exit_code == 2


def test_the_list_needs_no_server():
    """Every case with its rule."""
    result = CliRunner().invoke(app, ["--list"], env={"COLUMNS": "160"})
    assert result.exit_code == 0 and all(case.name in result.output for case in CASES.values())
    assert CliRunner().invoke(app, []).exit_code == 2
