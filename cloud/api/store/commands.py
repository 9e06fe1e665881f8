"""What commands that work on a gateway's database have in common: which database, and how they print."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from cloud.api.settings import GatewaySettings
from cloud.api.settings_sources import SettingsInvalid, load
from cloud.api.store.database import MEMORY, Database
from shared.errors import ConfigError

T = TypeVar("T")

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="The gateway's TOML file; without it gateway.toml in the Nexus settings folder."),
]
DatabaseOption = Annotated[
    str | None, typer.Option(help="The gateway's database, if it is not the one that the settings name.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def settings_of(config: Path | None, database: str | None = None) -> GatewaySettings:
    """With the database that a flag names. Raises `ConfigError`."""
    try:
        return load(config, {} if database is None else {"database": database}).settings
    except SettingsInvalid as error:
        raise ConfigError(" ".join(error.problems)) from None


def kept(address: str) -> str:
    """`address`, of a database that is on a disk. Raises `ConfigError` for one in memory."""
    if address == MEMORY:
        raise ConfigError("The settings keep nothing on disk (`database` is :memory:): name one with --database.")
    return address


def on_database(config: Path | None, address: str | None, work: Callable[[Database], Awaitable[T]]) -> T:
    """Open the database that settings or flag name, and do `work` there. Raises `ConfigError`."""
    place = kept(settings_of(config).database if address is None else address)

    async def opened() -> T:
        database = Database(place)
        await database.open()
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(opened())


def print_json(data: Any) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as what is in them."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
