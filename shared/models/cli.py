"""`nexus models`: what can be fetched, what is there, and the room it takes."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from shared.errors import ModelError
from shared.models import store
from shared.models.catalogue import CATALOGUE, find
from shared.models.fetch import fetch as fetch_model
from shared.models.fetch import is_fetched
from shared.models.fetch import remove as remove_model
from shared.models.progress import human_bytes

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Fetch and look after models.")

Name = Annotated[str, typer.Argument(help="A name that `nexus models list` shows.")]


@app.command("list")
def list_models() -> None:
    """Show every model of the catalogue and whether it is on this machine."""
    table = Table("Name", "Parameters", "Size", "Licence", "On this machine", box=None, pad_edge=False)
    for entry in CATALOGUE:
        record = store.read_record(entry.name)
        size = entry.size if record is None else store.size_of(store.folder_of(entry.name))
        where = "no" if record is None else f"yes, from {record.source}"
        table.add_row(entry.name, entry.parameters, human_bytes(size), entry.licence, where)
    Console().print(table)


@app.command()
def fetch(names: Annotated[list[str], typer.Argument(help="One or more names, or 'all'.")]) -> None:
    """Download models, convert them once and print their folders."""
    chosen = [entry.name for entry in CATALOGUE] if names == ["all"] else names
    for name in chosen:
        find(name)
    for name in chosen:
        typer.echo(fetch_model(name))


@app.command()
def path(name: Name) -> None:
    """Print the folder of a fetched model, and nothing else."""
    if not is_fetched(name):
        raise ModelError(f"{name} is not on this machine yet: run `nexus models fetch {name}`.")
    typer.echo(store.folder_of(name))


@app.command()
def remove(name: Name) -> None:
    """Delete a model, and what an interrupted fetch of it left, from this machine."""
    freed = remove_model(name)
    typer.echo(f"Removed {name}: {human_bytes(freed)} freed." if freed else f"{name} was not on this machine.")
