"""The `nexus` command: finds its sub-commands by entry point and imports only the one that is asked for."""

import os
import sys
from importlib.metadata import EntryPoint, entry_points, version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from shared.errors import NexusError

_GROUP = "nexus.commands"
_DISTRIBUTION = "nexus-inference"
_OURS = ("shared", "cloud", "desktop")

# Said here so that the list of commands needs no import of what the commands need.
_HELP = {
    "models": "Fetch and look after models.",
    "gateway": "Serve the OpenAI-compatible API and hand drafts to the verifier.",
    "keys": "Make, list and revoke API keys.",
    "accounts": "Make and change people's accounts, and read the audit log.",
    "ledger": "Look at the books, check them, copy them, and put money in.",
    "market": "Set prices and rates, see what was paid, simulate a day.",
    "verifier": "Serve the target model on vLLM and check drafts.",
    "agent": "Share this machine's idle compute by drafting.",
    "receipts": "Fetch and check what your nodes earned.",
    "payouts": "Make batches of payouts, take the bank's results, renew the receipt key.",
    "demo": "Show the whole system at work on this machine.",
    "chat": "Talk to a gateway in the terminal.",
    "conformance": "Judge any server by OpenAI's published API.",
}
_EXTRAS = {
    "shared.models": ("models",),
    "cloud.verifier": ("verifier", "verifier-cpu"),
    "cloud.conformance": ("conformance",),
    "cloud": ("cloud",),
    "desktop": ("desktop",),
}


def _commands() -> dict[str, EntryPoint]:
    """Entry points in the order of `_HELP`, those of other packages after them."""
    found = {point.name: point for point in entry_points(group=_GROUP)}
    order = [*_HELP, *sorted(set(found) - set(_HELP))]
    return {name: found[name] for name in order if name in found}


def _what_is_missing(name: str, module: str, missing: str | None) -> NexusError:
    """The error for a command whose import failed, in terms of the extra that brings the missing module."""
    if missing is None or missing.partition(".")[0] in _OURS:
        return NexusError(f"nexus {name} is not part of this installation (module {missing} is missing).")
    extras = next((found for prefix, found in _EXTRAS.items() if f"{module}.".startswith(f"{prefix}.")), ())
    if not extras:
        return NexusError(f"nexus {name} needs the Python module {missing}, which is not installed.")
    names = " or ".join(f"'{extra}'" for extra in extras)
    remedy = " or ".join(f"pip install '{_DISTRIBUTION}[{extra}]'" for extra in extras)
    return NexusError(f"nexus {name} needs the {names} extra: {remedy}")


def _load(point: EntryPoint) -> Any:
    """Import the command and turn it, a Typer app or a plain function, into a parser command."""
    try:
        target = point.load()
    except ModuleNotFoundError as error:
        raise _what_is_missing(point.name, point.module, error.name) from error
    holder = typer.Typer(add_completion=False)
    holder.callback()(lambda: None)
    if isinstance(target, typer.Typer):
        holder.add_typer(target, name=point.name)
    else:
        holder.command(point.name)(target)
    return typer.main.get_group(holder).commands[point.name]


class LazyGroup(TyperGroup):
    """A group that knows its commands' names and one-line help, and imports one only to run it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _commands():
            return None
        return TyperCommand(cmd_name, help=_HELP.get(cmd_name, ""))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load(_commands()[name]) if name else command, rest


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Large-model answers at a lower price: idle GPUs draft, a large model verifies.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nexus {version(_DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run `nexus`. A NexusError ends it with one line on stderr and status 1; NEXUS_TRACEBACK=1 shows where from."""
    try:
        app()
    except NexusError as error:
        if os.environ.get("NEXUS_TRACEBACK") == "1":
            raise
        print(f"nexus: {' '.join(error.message.split())}", file=sys.stderr)
        sys.exit(1)
    except ModuleNotFoundError as error:
        # A command may import its heavy parts only when it runs.
        point = next((point for name, point in _commands().items() if name in sys.argv[1:2]), None)
        if os.environ.get("NEXUS_TRACEBACK") == "1" or point is None:
            raise
        problem = _what_is_missing(point.name, point.module, error.name)
        print(f"nexus: {problem.message}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
