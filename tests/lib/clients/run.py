"""`make clients`: every client through its scenario against the real gateway, and a table of what passed.

The verifier behind the gateway is the real one with smollm2-135m; --played puts a played one there, for a quick look.
Environments are made from locked versions once, with the network, and kept in the user's cache.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clients import environments
from clients.catalogue import CLIENTS, SCENARIOS, Client
from clients.stack import MODEL, Stack, running
from shared.models.resolve import resolve

LIMIT_S = 600
WHY_LINES = 25
"""Lines of a failure that are shown."""
MARKS = {"passed": "[green]✓[/]", "skipped": "[yellow]–[/]", "failed": "[red]✗[/]"}


@dataclass
class Outcome:
    """What came of one client."""

    client: Client
    passed: int = 0
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    missing: str = ""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return bool(self.passed) and not self.failed and not self.missing

    @property
    def words(self) -> str:
        if self.missing:
            return "not run"
        text = f"{self.passed} passed"
        text += f", {len(self.skipped)} not served" if self.skipped else ""
        return text + (f", {len(self.failed)} FAILED" if self.failed else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 when every client that was asked for passed, 1 otherwise."""
    options = _options(arguments)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, too
    console = Console(width=None if sys.stdout.isatty() else 120)
    clients = [client for client in CLIENTS if not options.only or client.name in options.only]
    if options.no_load and not options.only:
        clients = [client for client in clients if not client.load]
    if options.list:
        for client in clients:
            console.print(f"{client.name:<14} {_versions(client)}", highlight=False)
        return 0
    outcomes = [Outcome(client) for client in clients]
    folders = {outcome.client.name: _prepare(console, outcome) for outcome in outcomes}
    if any(folders.values()):
        kind = "a played verifier" if options.played else f"a verifier with {options.model}"
        console.print(f"Starting {kind} and a gateway …")
        with running(played=options.played, model=MODEL if options.played else options.model) as stack:
            for outcome in outcomes:
                if folder := folders[outcome.client.name]:
                    _run(console, outcome, folder, stack)
    console.print(_table(outcomes))
    for outcome in outcomes:
        for reason in outcome.skipped:
            console.print(f"{outcome.client.name}: {reason}", highlight=False, markup=False)
    good = all(outcome.good for outcome in outcomes)
    console.print("All passed." if good else "[red]Not all passed.[/]")
    return 0 if good else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make clients", description=__doc__)
    names = [client.name for client in CLIENTS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--played", action="store_true", help="a played verifier instead of the real one")
    parser.add_argument("--model", default=MODEL, help="the verifier's; qwen2.5-coder-0.5b calls tools")
    parser.add_argument("--no-load", action="store_true", help="leave out vllm-bench and guidellm")
    parser.add_argument("--list", action="store_true", help="only list the clients with their versions")
    return parser.parse_args(arguments)


def _prepare(console: Console, outcome: Outcome) -> Path | None:
    began = time.monotonic()
    try:
        folder, made = environments.prepare(outcome.client)
    except environments.Missing as reason:
        outcome.missing = str(reason)
        console.print(f"[red]✗[/] {outcome.client.name} {escape(outcome.missing)}", highlight=False)
        return None
    if made:
        console.print(f"Installed {_versions(outcome.client)} in {time.monotonic() - began:.0f} s", highlight=False)
    return folder


def _run(console: Console, outcome: Outcome, folder: Path, stack: Stack) -> None:
    client = outcome.client
    console.print(f"\n[bold]{client.name}[/] {_versions(client)}", highlight=False)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "PYTHON", "LLM_"))}
    told = stack.environment()
    if client.load:
        told["NEXUS_TOKENIZER"] = str(resolve(stack.model))
    argv = environments.command(client, folder, SCENARIOS / client.scenario)
    began = time.monotonic()
    with subprocess.Popen(
        argv,
        env={**kept, **told, "TMPDIR": _temporary(folder, client)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=_temporary(folder, client),
    ) as child:
        assert child.stdout is not None
        said: list[str] = []
        for line in child.stdout:
            if not _heard(console, outcome, line):
                said.append(line)
    outcome.seconds = time.monotonic() - began
    if child.returncode and not outcome.failed:
        outcome.failed.append(f"the scenario ended with {child.returncode}")
        console.print("".join(said[-WHY_LINES:]), markup=False, highlight=False)
    if outcome.failed:
        log = stack.gateway_log.read_text(errors="replace").splitlines()[-WHY_LINES:]
        console.print("  End of the gateway's log:\n  " + "\n  ".join(log), markup=False, highlight=False)


def _temporary(folder: Path, client: Client) -> str:
    place = folder / "tmp" if client.kind != "ours" else Path(tempfile.gettempdir())
    place.mkdir(exist_ok=True)
    return str(place)


def _heard(console: Console, outcome: Outcome, line: str) -> bool:
    """Whether the line was a report of a check."""
    try:
        told = json.loads(line)
        name, result, seconds = told["check"], told["result"], told["s"]
    except (ValueError, KeyError, TypeError):
        return False
    console.print(f"  {MARKS[result]} {escape(name)}  [dim]{seconds:.1f} s[/]", highlight=False)
    if result == "passed":
        outcome.passed += 1
    else:
        (outcome.skipped if result == "skipped" else outcome.failed).append(f"{name}: {told['why']}")
        console.print("    " + "\n    ".join(told["why"].splitlines()[-WHY_LINES:]), markup=False, highlight=False)
    return True


def _versions(client: Client) -> str:
    return ", ".join(f"{name} {version}" for name, version in client.versions().items())


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("client", "versions", "checks", "seconds")
    for outcome in outcomes:
        mark = MARKS["passed" if outcome.good else "failed"]
        seconds = f"{outcome.seconds:.0f}" if outcome.seconds else "–"
        table.add_row(f"{mark} {outcome.client.name}", _versions(outcome.client), outcome.words, seconds)
    return table


if __name__ == "__main__":
    sys.exit(main())
