"""`nexus conformance`: judge a server by its base URL."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloud.conformance import suite
from cloud.conformance.case import Result, Verdict
from cloud.conformance.target import Target
from shared.errors import ConfigError

_COLOURS = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.ABSENT: "yellow"}


class Level(Enum):
    """Which verdict decides the exit status."""

    STRICT = "strict"
    COMPATIBLE = "compatible"


def conformance(
    url: Annotated[
        str | None, typer.Argument(help="What a client takes as base_url, such as http://127.0.0.1:8080/v1.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="API key; without one, cases about keys are left out.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to ask; the first of the models list by default.")] = None,
    case: Annotated[
        list[str] | None, typer.Option(help="Only cases whose names begin so, such as stream or stop.string. Repeat.")
    ] = None,
    level: Annotated[Level, typer.Option(help="The verdict that decides the exit status.")] = Level.STRICT,
    timeout: Annotated[float, typer.Option(min=1, help="Longest wait for a whole answer, seconds.")] = 60.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results to this file too.")] = None,
    list_cases: Annotated[bool, typer.Option("--list", help="List the cases and their rules, and ask nobody.")] = False,
) -> None:
    """Judge any server by OpenAI's published API, case by case.

    Each case has two verdicts. *strict*: the published rule holds to the letter. *compatible*: an unchanged client
    gets along. *absent*: the server says that it does not offer this.

    Exit status: 0 when no case fails at the chosen level, 1 when one does, 2 when the server cannot be judged.

    Example: `nexus conformance http://127.0.0.1:8000/v1 --key my-key --level compatible`
    """
    cases = suite.chosen(case or ())
    if not cases:
        raise typer.BadParameter(f"no case begins with {', '.join(case or ())}", param_hint="--case")
    if list_cases:
        for each in cases:
            typer.echo(f"{each.name:<32}{each.rule}")
        return
    if url is None:
        raise typer.BadParameter("name the server to judge", param_hint="URL")
    results = asyncio.run(_run(url, key, model, case or (), timeout))
    console = Console()
    console.print(_table(results))
    console.print(_summary(results))
    if json_file is not None:
        _write(json_file, url, results)
    raise typer.Exit(bool(suite.failed(results, level.value)))


async def _run(url: str, key: str | None, model: str | None, names: Sequence[str], timeout_s: float) -> list[Result]:
    progress = Console(stderr=True)
    try:
        async with Target.open(url, key, model, timeout_s) as target:
            cases = suite.chosen(names)
            with progress.status("") as status:
                left = iter(f"{place} of {len(cases)}: {each.name}" for place, each in enumerate(cases[1:], 2))
                status.update(f"1 of {len(cases)}: {cases[0].name}")
                return await suite.run(target, cases, lambda _: status.update(next(left, "")))
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, LookupError) as error:
        typer.echo(f"{url} cannot be judged: {str(error) or type(error).__name__}", err=True)
        raise typer.Exit(2) from None


def _table(results: Sequence[Result]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("case", "strict", "compatible"):
        table.add_column(name, no_wrap=True)
    table.add_column("what was seen", overflow="fold", ratio=1)
    for result in results:
        verdicts = [Text(verdict.value, _COLOURS[verdict]) for verdict in (result.strict, result.compatible)]
        table.add_row(result.name, *verdicts, Text(_printable(result.seen)))
    return table


def _printable(text: str) -> str:
    """A server's words cannot move the cursor."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _summary(results: Sequence[Result]) -> str:
    parts = []
    for level in ("strict", "compatible"):
        verdicts = [getattr(result, level) for result in results]
        counts = [f"{verdicts.count(verdict)} {verdict.value}" for verdict in Verdict]
        parts.append(f"{level}: {', '.join(counts)}")
    return "\n" + "\n".join(parts)


def _write(path: Path, url: str, results: Sequence[Result]) -> None:
    rows: list[dict[str, Any]] = []
    for result in results:
        rows.append({k: v.value if isinstance(v, Verdict) else v for k, v in asdict(result).items()})
    try:
        path.write_text(json.dumps({"url": url, "cases": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
