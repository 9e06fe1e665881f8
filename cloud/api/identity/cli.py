"""`nexus accounts`: make, list and change people's accounts in a gateway's database, and read the audit log."""

import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer

from cloud.api.accounts.terms import day
from cloud.api.audit.entry import actor_here
from cloud.api.audit.sql import SqlAudit
from cloud.api.bodies import validated
from cloud.api.identity.account import ROLES, Account, Role
from cloud.api.identity.bodies import AccountInput, account_object, audit_object
from cloud.api.identity.identity import passwords
from cloud.api.identity.people import People
from cloud.api.identity.settings import IdentitySettings
from cloud.api.identity.sql import SqlIdentity
from cloud.api.store.commands import (
    ConfigOption,
    DatabaseOption,
    JsonOption,
    on_database,
    print_json,
    print_table,
    settings_of,
)
from shared.errors import InvalidInput

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Accounts of people: developers who pay, owners of nodes who are paid, and operators.

Accounts are kept in the gateway's database. Run these commands as the user of the gateway, with its `--config` if it
has one; a running gateway hears of a change within a second.

Examples:

    nexus accounts create me@example.com --role operator

    nexus accounts create alice@example.com --role developer --role owner --generate

    nexus accounts list

    nexus accounts role alice@example.com --remove owner

    nexus accounts disable alice@example.com

    nexus accounts audit
""",
)
T = TypeVar("T")
ALL = 1_000_000
AccountArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", help="Id or e-mail address of the account.")]
StdinOption = Annotated[bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")]
GenerateOption = Annotated[bool, typer.Option("--generate", help="Make a password and print it, once.")]


@app.command()
def create(
    email: Annotated[str, typer.Argument(help="E-mail address, by which the person signs in.")],
    role: Annotated[list[str], typer.Option(help=f"What the account may do: {', '.join(ROLES)}. Repeat for several.")],
    name: Annotated[str | None, typer.Option(help="Name for lists. (default: the e-mail address)")] = None,
    password_stdin: StdinOption = False,
    generate: GenerateOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Make an account. The password is asked for; the first operator of a gateway is made this way.

    Example: `nexus accounts create me@example.com --role operator`
    """
    given = validated(AccountInput, {"email": email, "name": name, "roles": role})
    password = _password(stdin=password_stdin, generate=generate)

    async def work(people: People) -> Account:
        return await people.create(given.email, given.name or given.email, given.roles, password, actor_here())

    made = _run(config, database, work)
    shown = {"password": password} if generate else {}
    if as_json:
        print_json({**account_object(made), **shown})
    else:
        typer.echo(f"{made.id} ({made.email}) is made." + (f" Its password: {password}" if generate else ""))


@app.command("list")
def list_accounts(as_json: JsonOption = False, config: ConfigOption = None, database: DatabaseOption = None) -> None:
    """List all accounts.

    Example: `nexus accounts list --json`
    """
    found = [account_object(each) for each in _run(config, database, lambda people: people.list(ALL))]
    if as_json:
        print_json(found)
    elif not found:
        typer.echo("There is no account yet: make one with `nexus accounts create EMAIL --role operator`.")
    else:
        print_table(("id", "e-mail", "name", "roles", "state", "since"), [*map(_row, found)])


@app.command()
def disable(account: AccountArgument, config: ConfigOption = None, database: DatabaseOption = None) -> None:
    """Shut an account out: its sessions end, its API keys and nodes are revoked for good. Its money stays in the books.

    Example: `nexus accounts disable alice@example.com`
    """

    async def work(people: People) -> Account:
        return await people.set_disabled((await people.find(account)).id, True, actor_here())

    changed = _run(config, database, work)
    typer.echo(f"{changed.id} ({changed.email}) is disabled: its sessions, keys and nodes have ended.")


@app.command()
def enable(account: AccountArgument, config: ConfigOption = None, database: DatabaseOption = None) -> None:
    """Let a disabled account in again. What was revoked stays revoked: keys and nodes are made anew.

    Example: `nexus accounts enable alice@example.com`
    """

    async def work(people: People) -> Account:
        return await people.set_disabled((await people.find(account)).id, False, actor_here())

    changed = _run(config, database, work)
    typer.echo(f"{changed.id} ({changed.email}) is enabled.")


@app.command("role")
def change_roles(
    account: AccountArgument,
    add: Annotated[list[str] | None, typer.Option(help=f"Give a role: {', '.join(ROLES)}. Repeat for several.")] = None,
    remove: Annotated[list[str] | None, typer.Option(help="Take a role away. Repeat for several.")] = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Change what an account may do. Without `developer` its API keys are revoked, without `owner` its nodes.

    Example: `nexus accounts role alice@example.com --add owner`
    """
    adding, removing = _roles(add), _roles(remove)

    async def work(people: People) -> Account:
        found = await people.find(account)
        roles = (found.roles | adding) - removing
        if not roles:
            raise InvalidInput("An account has at least one role. `nexus accounts disable` shuts it out.")
        return await people.set_roles(found.id, roles, actor_here())

    changed = _run(config, database, work)
    typer.echo(f"{changed.id} ({changed.email}) is {', '.join(account_object(changed)['roles'])}.")


@app.command("password")
def set_password(
    account: AccountArgument,
    password_stdin: StdinOption = False,
    generate: GenerateOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Give an account a new password; all its sessions end.

    Example: `nexus accounts password alice@example.com --generate`
    """
    password = _password(stdin=password_stdin, generate=generate)

    async def work(people: People) -> Account:
        return await people.set_password((await people.find(account)).id, password, actor_here())

    changed = _run(config, database, work)
    end = f": {password}" if generate else "."
    typer.echo(f"{changed.id} ({changed.email}) has a new password{end}")


@app.command()
def audit(
    limit: Annotated[int, typer.Option(min=1, help="How many entries, newest first.")] = 50,
    before: Annotated[int | None, typer.Option(help="Only entries with a smaller number than this.")] = None,
    subject: Annotated[str | None, typer.Option(help="Only entries about this account, key, node or session.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Show who changed what, newest first.

    Example: `nexus accounts audit --subject acct_0123456789abcdef`
    """
    found = on_database(config, database, lambda opened: SqlAudit(opened).page(limit, before, subject))
    entries = [audit_object(each) for each in found]
    if as_json:
        print_json(entries)
    else:
        print_table(("number", "when (UTC)", "who", "what", "of", "detail"), [*map(_entry_row, entries)])


def _run(config: Path | None, address: str | None, work: Callable[[People], Awaitable[T]]) -> T:
    """How passwords are hashed is in the settings; with another database and no settings, as it is by default."""
    settings = settings_of(config).to_identity() if address is None or config is not None else IdentitySettings()
    hashing = passwords(settings)
    try:
        return on_database(config, address, lambda database: work(People(SqlIdentity(database), hashing, settings)))
    finally:
        hashing.close()


def _password(*, stdin: bool, generate: bool) -> str:
    if generate:
        return secrets.token_urlsafe(18)
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return cast(str, typer.prompt("Password", hide_input=True, confirmation_prompt=True))


def _roles(given: list[str] | None) -> frozenset[Role]:
    """Raises `InvalidInput`."""
    for role in given or ():
        if role not in ROLES:
            raise InvalidInput(f"{role!r} is no role: they are {', '.join(ROLES)}.")
    return frozenset(cast(list[Role], given or []))


def _row(account: dict[str, Any]) -> tuple[str, ...]:
    roles = ",".join(account["roles"])
    return account["id"], account["email"], account["name"], roles, account["state"], day(account["created_at"])


def _entry_row(entry: dict[str, Any]) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry["at"]))
    detail = ", ".join(f"{name} {_told(value)}" for name, value in entry["detail"].items())
    return str(entry["seq"]), when, entry["actor"], entry["action"], entry["subject"], detail


def _told(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)
