"""`nexus ledger`: look at the books, check them, copy them, and put money in by hand."""

import getpass
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import typer

from cloud.api.accounts.money import Nano, dollars, nano
from cloud.api.ledger import entries, export
from cloud.api.ledger.events import Entry, Event, Kind
from cloud.api.ledger.places import Place, available, payable, pending
from cloud.api.ledger.settings import spool_folder
from cloud.api.ledger.spool import in_use
from cloud.api.ledger.sql import SqlBooks
from cloud.api.settings import GatewaySettings
from cloud.api.store import backup as copies
from cloud.api.store.commands import (
    ConfigOption,
    DatabaseOption,
    JsonOption,
    kept,
    on_database,
    print_json,
    settings_of,
)
from cloud.api.store.database import file_of
from shared.errors import ConfigError, InvalidInput
from shared.ids import AccountId

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""The books: every movement of money, twice, in whole nano-dollars.

Run these commands as the user of the gateway, with its `--config` if it has one; it may be running, but for `restore`.

Examples:

    nexus ledger balance

    nexus ledger top-up acct_0123456789abcdef 25 --reference invoice-1042

    nexus ledger reconcile

    nexus ledger export beancount --output books.beancount
""",
)
T = TypeVar("T")
PlaceName = Literal["available", "pending", "payable"]
_PLACES: dict[PlaceName, Callable[[AccountId], Place]] = {
    "available": available,
    "pending": pending,
    "payable": payable,
}

AccountArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account's id: acct_ and 16 digits.")]
DollarsArgument = Annotated[str, typer.Argument(metavar="DOLLARS", help="Like 12.50; at most nine decimal places.")]
ReferenceOption = Annotated[
    str | None,
    typer.Option(help="A name of the movement that is used once: a second time nothing is moved. Random without it."),
]


@app.command()
def balance(
    account: Annotated[str | None, typer.Argument(metavar="[ACCOUNT]", help="Only this account's places.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Print what lies where, in dollars.

    Example: `nexus ledger balance acct_0123456789abcdef --json`
    """
    wanted = [AccountId(account)] if account is not None else None
    found = _run(config, database, lambda books: books.balances(wanted))
    rows = {place: dollars(amount) for place, amount in sorted(found.items()) if amount or account is not None}
    if as_json:
        print_json(rows)
        return
    width = max(map(len, rows), default=0)
    for place, amount in rows.items():
        typer.echo(f"{place:<{width}}  {amount}")


@app.command()
def events(
    account: Annotated[str | None, typer.Option(help="Only those that move money of this account.")] = None,
    kind: Annotated[str | None, typer.Option(help=f"Only those of a kind: {', '.join(get_args(Kind))}.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 20,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Print the latest events with their postings, newest first.

    Example: `nexus ledger events --account acct_0123456789abcdef --kind settle`
    """
    known = next((each for each in get_args(Kind) if each == kind), None)
    if kind is not None and known is None:
        raise InvalidInput(f"There is no kind {kind[:40]!r} of event: use one of {', '.join(get_args(Kind))}.")
    mine = AccountId(account) if account is not None else None
    found = _run(config, database, lambda books: books.events(account=mine, kind=known, limit=limit))
    if as_json:
        print_json([event_object(event) for event in found])
        return
    for event in found:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(event.at))
        by = f"  by {event.entry.actor}" if event.entry.actor else ""
        typer.echo(f"{event.id}  {at}  {event.entry.key}{by}")
        if event.entry.reason:
            typer.echo(f"    {event.entry.reason}")
        for place, amount in event.entry.postings.items():
            typer.echo(f"    {dollars(amount):>16}  {place}")


@app.command()
def reconcile(
    as_json: JsonOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Compare the books with themselves: prints 0 when everything agrees; exit status 1 and every difference when not.

    Example: `nexus ledger reconcile`
    """
    audit = _run(config, database, lambda books: books.audit())
    problems = audit.problems()
    if as_json:
        told = {"events": audit.events, "postings": audit.postings, "overdue": audit.overdue, "owed": audit.owed}
        print_json({"differences": len(problems), **told, "problems": problems})
    else:
        for problem in problems:
            typer.echo(problem)
        typer.echo(f"differences: {len(problems)}")
        typer.echo(f"events: {audit.events}, postings: {audit.postings}", err=True)
        if audit.overdue:
            typer.echo(f"reservations that a running gateway will release: {audit.overdue}", err=True)
        if audit.owed:
            typer.echo(f"used beyond what was prepaid: ${dollars(audit.owed)}", err=True)
    if problems:
        raise typer.Exit(1)


@app.command("export")
def export_books(
    form: Annotated[str, typer.Argument(metavar="FORM", help="csv or beancount.")],
    output: Annotated[Path | None, typer.Option("--output", help="A new file; without it standard output.")] = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Write every event for other programs. `bean-check` on the Beancount form checks the balances independently.

    Example: `nexus ledger export csv --output books.csv`
    """
    if form not in ("csv", "beancount"):
        raise InvalidInput(f"There is no form {form[:40]!r}: use csv or beancount.")

    async def work(books: SqlBooks) -> None:
        if form == "csv":
            await _pour(export.csv_lines(books.all_events()), output)
        else:
            await _pour(export.beancount_lines(books.all_events(), await books.balances()), output)

    _run(config, database, work)


@app.command("top-up")
def top_up(
    account: AccountArgument,
    amount: DollarsArgument,
    reference: ReferenceOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Add money that a customer has paid.

    Example: `nexus ledger top-up acct_0123456789abcdef 25 --reference invoice-1042`
    """
    paid = _amount(amount)
    entry = entries.top_up(_account(account), paid, reference or secrets.token_hex(8), actor=_actor())
    _post(entry, config, database)


@app.command()
def adjust(
    account: AccountArgument,
    reason: Annotated[str, typer.Option(help="Why; it is kept for good.")],
    add: Annotated[str | None, typer.Option(metavar="DOLLARS", help="Give so much.")] = None,
    take: Annotated[str | None, typer.Option(metavar="DOLLARS", help="Take so much.")] = None,
    refund: Annotated[
        str | None, typer.Option(metavar="DOLLARS", help="Take so much that was given back to the customer.")
    ] = None,
    place: Annotated[
        str, typer.Option(help="Where: available (a customer's money), pending or payable (an owner's).")
    ] = "available",
    reference: ReferenceOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Set something right by hand; what is in the books is never changed.

    Examples:

      nexus ledger adjust acct_0123456789abcdef --add 5 --reason "goodwill for the outage of 3 May"

      nexus ledger adjust acct_0123456789abcdef --refund 12.50 --reason "closed account"
    """
    where = next((make for name, make in _PLACES.items() if name == place), None)
    if where is None:
        raise InvalidInput(f"There is no place {place[:40]!r}: use one of {', '.join(_PLACES)}.")
    given = [text for text in (add, take, refund) if text is not None]
    if len(given) != 1:
        raise InvalidInput("Give one of --add, --take and --refund.")
    if not reason.strip() or len(reason) > 500:
        raise InvalidInput("--reason must have 1 to 500 characters.")
    name, mine, amount = reference or secrets.token_hex(8), _account(account), _amount(given[0])
    if refund is not None:
        entry = entries.refund(mine, amount, name, reason=reason, actor=_actor())
    else:
        signed = amount if take is None else Nano(-amount)
        entry = entries.adjustment(where(mine), signed, name, reason=reason, actor=_actor())
    _post(entry, config, database)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Copy the whole database, as it is at one moment; the gateway may be running.

    Example: `nexus ledger backup /backup/nexus-2027-01-31.db`
    """
    copies.backup(_settings(config, database).database, target)
    typer.echo(f"{target} holds the database.")


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A copy that `nexus ledger backup` made.")],
    yes: Annotated[bool, typer.Option("--yes", help="Replace a database that is there.")] = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Replace the database by a copy, if the copy reconciles; no gateway may be running.

    Example: `nexus ledger restore /backup/nexus-2027-01-31.db --yes`
    """
    settings = _settings(config, database)
    if in_use(spool_folder(settings.database, settings.ledger.spool)):
        raise ConfigError("A gateway is using this database: stop it first.")
    file = file_of(settings.database)
    if file is not None and file.exists() and not yes:
        raise ConfigError(f"{file} is there already: back it up, then say --yes to replace it.")
    copies.restore(settings.database, source)
    problems = _run(config, database, lambda books: books.audit()).problems()
    for problem in problems:
        typer.echo(problem)
    typer.echo(f"The database is the one of {source}; differences: {len(problems)}")
    if problems:
        raise typer.Exit(1)


def event_object(event: Event) -> dict[str, Any]:
    """An event as JSON; money in dollars, as text."""
    entry = event.entry
    return {
        "id": event.id,
        "object": "ledger.event",
        "kind": entry.kind,
        "key": entry.key,
        "at": event.at,
        "reason": entry.reason,
        "actor": entry.actor,
        "postings": {place: dollars(amount) for place, amount in entry.postings.items()},
    }


def _run(config: Path | None, address: str | None, work: Callable[[SqlBooks], Awaitable[T]]) -> T:
    """Do `work` on the books in the database that settings or flag name."""
    settings = _settings(config, address)
    days = settings.ledger.hold_days
    return on_database(config, settings.database, lambda database: work(SqlBooks(database, hold_days=days)))


def _settings(config: Path | None, database: str | None) -> GatewaySettings:
    settings = settings_of(config, database)
    kept(settings.database)
    return settings


def _post(entry: Entry, config: Path | None, database: str | None) -> None:
    event = _run(config, database, lambda books: books.post(entry))
    typer.echo(f"{event.id}  {event.entry.key}")


def _amount(text: str) -> Nano:
    try:
        amount = nano(text)
    except ValueError as error:
        raise InvalidInput(f"{error}.") from None
    if not amount:
        raise InvalidInput("The amount is nothing.")
    return amount


def _account(text: str) -> AccountId:
    if not text.startswith("acct_") or not text[5:].isalnum() or len(text) > 40:
        raise InvalidInput(f"{text[:60]!r} is no account's id: it is acct_ and 16 digits.")
    return AccountId(text)


def _actor() -> str:
    return f"terminal:{getpass.getuser()}"[:100]


async def _pour(lines: AsyncIterator[str], output: Path | None) -> None:
    if output is None:
        async for line in lines:
            sys.stdout.write(line)
        return
    try:
        file = open(output, "x", encoding="utf-8")  # noqa: ASYNC230, SIM115 - nothing else runs on this loop
    except FileExistsError:
        raise ConfigError(f"{output} is there already: name a new file.") from None
    with file:
        async for line in lines:
            file.write(line)
