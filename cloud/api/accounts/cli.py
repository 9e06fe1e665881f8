"""`nexus keys`: make, list and revoke API keys in a gateway's database."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from cloud.api.accounts.accounts import Statement, created
from cloud.api.accounts.charges import month_of
from cloud.api.accounts.keys import PRIVACIES, SCOPES, KeyId, NewKey, new_key
from cloud.api.accounts.money import Nano
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.accounts.terms import day, key_object, read_expiry, read_key
from cloud.api.audit.entry import Entry, actor_here
from cloud.api.identity.account import email_of
from cloud.api.identity.sql import SqlIdentity
from cloud.api.store.commands import (
    ConfigOption,
    DatabaseOption,
    JsonOption,
    on_database,
    print_json,
    print_table,
)
from cloud.api.store.database import Database
from shared.errors import NotFound
from shared.ids import AccountId

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""API keys: who may use the gateway, how much, and for how much money.

Keys are kept in the gateway's database. Run these commands as the user of the gateway, with its `--config` if it has
one; a running gateway hears of a change within a second.

Examples:

    nexus keys create alice

    nexus keys create ci --requests-per-minute 60 --budget 20 --expires 30d

    nexus keys create operator --scope admin

    nexus keys list

    nexus keys revoke key_0123456789abcdef
""",
)
T = TypeVar("T")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whom or what the key is for; you see it in lists.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help=f"What the key may do: {', '.join(SCOPES)}. Repeat for several. (default: all but admin)"),
    ] = None,
    expires: Annotated[str | None, typer.Option(help="When it ends: 30d, 12h, or a day like 2027-01-31.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="Most requests in a minute.")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(help="Most tokens in a minute, in and out.")] = None,
    streams: Annotated[int | None, typer.Option(help="Most choices being generated at once.")] = None,
    budget: Annotated[str | None, typer.Option(help="Most that it may cost in a calendar month, dollars.")] = None,
    privacy: Annotated[
        str | None, typer.Option(help=f"Tier of requests that name none: {', '.join(PRIVACIES)}.")
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(help="Whose it is, by id or e-mail address; that account pays. (default: the deployment's own)"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the key and nothing else.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Make a key and print it, once: only its SHA-256 is kept. A limit that is not given is none.

    Examples:

      nexus keys create alice --requests-per-minute 60 --tokens-per-minute 100000 --budget 12.50

      NEXUS_API_KEY=$(nexus keys create laptop --quiet) nexus chat
    """
    now = time.time()
    given = {
        "name": name,
        "scopes": scope,
        "expires_at": read_expiry(expires, now) if expires is not None else None,
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "concurrent_streams": streams,
        "monthly_budget": budget,
        "privacy": privacy,
        "account": account,
    }
    terms, whose = read_key(given, now)

    async def work(opened: Database) -> NewKey:
        new = new_key(terms, now, await _find(opened, whose))
        await SqlAccounts(opened).add(new, created(new.key, actor_here()))
        return new

    new = on_database(config, database, work)
    if as_json:
        print_json({**key_object(Statement(new.key, Nano(0)), now), "key": new.secret})
    elif quiet:
        typer.echo(new.secret)
    else:
        typer.echo(f"{new.secret}\n\nThis is key {new.key.id}. Keep it safe: it cannot be shown again.")


@app.command("list")
def list_keys(
    as_json: JsonOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """List the keys in the database, with what each has cost this month. Keys of the settings file are not among them.

    Example: `nexus keys list --json`
    """

    async def work(store: SqlAccounts) -> list[Statement]:
        spending = await store.spending(month_of(time.time()))
        keys = (await store.changes(0)).keys.values()
        return [Statement(key, spending.get(key.id, Nano(0))) for key in sorted(keys, key=lambda key: key.created_at)]

    now = time.time()
    objects = [key_object(statement, now) for statement in _run(config, database, work)]
    if as_json:
        print_json(objects)
        return
    if not objects:
        typer.echo("There is no key yet: make one with `nexus keys create NAME`.")
        return
    print_table(("id", "begins", "name", "state", "scopes", "limits", "spent this month"), [*map(_row, objects)])


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `nexus keys list` shows it.")],
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """End a key for good. A running gateway refuses it within a second; answers that have begun are finished.

    Example: `nexus keys revoke key_0123456789abcdef`
    """
    at = int(time.time())
    entry = Entry(at=at, actor=actor_here(), action="key.revoked", subject=key)
    revoked = _run(config, database, lambda store: store.revoke(KeyId(key), at, entry))
    if revoked is None:
        raise NotFound(f"There is no key with the id {key[:60]!r}: `nexus keys list` shows them.")
    typer.echo(f"{revoked.id} ({revoked.terms.name}) is revoked.")


async def _find(database: Database, whose: AccountId | None) -> AccountId | None:
    """An account may be named by its e-mail address. Raises `NotFound`."""
    if whose is None or "@" not in whose:
        return whose
    found = await SqlIdentity(database).account_of(email_of(whose))
    if found is None:
        raise NotFound(f"There is no account {whose[:60]!r}: `nexus accounts list` shows them.")
    return found.id


def _run(config: Path | None, address: str | None, work: Callable[[SqlAccounts], Awaitable[T]]) -> T:
    return on_database(config, address, lambda database: work(SqlAccounts(database)))


def _row(key: dict[str, Any]) -> tuple[str, ...]:
    limits = {
        "requests/min": key["requests_per_minute"],
        "tokens/min": key["tokens_per_minute"],
        "streams": key["concurrent_streams"],
        "until": day(key["expires_at"]) if key["expires_at"] else None,
        "privacy": key["privacy"],
        "account": key["account"],
    }
    budget = "" if key["monthly_budget"] is None else f" of ${key['monthly_budget']}"
    return (
        key["id"],
        f"{key['start']}…",
        key["name"],
        key["state"],
        ",".join(key["scopes"]),
        ", ".join(f"{name} {value}" for name, value in limits.items() if value is not None) or "none",
        f"${key['spent_this_month']}{budget}",
    )
