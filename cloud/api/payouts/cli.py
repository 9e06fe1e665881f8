"""`nexus payouts`: payouts by hand in batches, and the key that signs receipts."""

import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from cloud.api.accounts.money import dollars
from cloud.api.ledger.sql import SqlBooks
from cloud.api.payouts.batches import RESULTS_MAX_BYTES, read_results, to_csv
from cloud.api.payouts.bodies import admin_payout_object
from cloud.api.payouts.books import LedgerBooks
from cloud.api.payouts.payout import Payout, State
from cloud.api.payouts.receipt_store import SqlReceipts
from cloud.api.payouts.service import Payouts, PayoutSettings
from cloud.api.payouts.signing import key_path, load_key, rotate
from cloud.api.payouts.sql import SqlPayouts
from cloud.api.store.commands import (
    ConfigOption,
    DatabaseOption,
    JsonOption,
    on_database,
    print_json,
    print_table,
    settings_of,
)
from cloud.api.store.database import Database
from shared.errors import ConfigError, InvalidInput, NotFound

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Payouts by hand, for the bank and from it, and the key that signs receipts.

Approving is not done here but over HTTP, by two operators who signed in: see docs/payouts.md. Run these commands as the
user of the gateway, with its `--config` if it has one.

Examples:

    nexus payouts list --state approved

    nexus payouts batch > batch.csv

    nexus payouts results batch_0123456789abcdef results.csv

    nexus payouts rotate-key
""",
)
T = TypeVar("T")


@app.command("list")
def list_payouts(
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """List payouts, newest first.

    Example: `nexus payouts list --state asked`
    """
    found = _run(config, database, lambda payouts: payouts.store.find(state=state))
    if as_json:
        print_json([admin_payout_object(each) for each in found])
    elif not found:
        typer.echo("There are no payouts.")
    else:
        head = ("payout", "state", "amount", "owner", "rail", "approved by")
        print_table(head, [_row(each) for each in found])


@app.command()
def batch(
    again: Annotated[str | None, typer.Option("--again", help="Print this batch, which was made before.")] = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Print every approved payout that is made by hand as CSV for the bank, and count them as sent.

    Example: `nexus payouts batch > batch.csv`
    """

    async def work(payouts: Payouts) -> list[Payout]:
        if again is None:
            return list(await payouts.batch())
        return list(await payouts.store.find(batch=again, limit=10_000))

    found = _run(config, database, work)
    if not found:
        raise NotFound("There is no batch with this id.")
    typer.echo(f"This is {found[0].batch}: print it again with --again {found[0].batch}.", err=True)
    sys.stdout.write(to_csv(found))


@app.command()
def results(
    batch: Annotated[str, typer.Argument(help="The batch that the bank speaks of.")],
    file: Annotated[Path, typer.Argument(help="CSV with the columns payout, amount, result, reference and reason.")],
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Take what the bank says of a batch: `paid` or `failed` for each payout. All lines are taken, or none.

    Example: `nexus payouts results batch_0123456789abcdef results.csv`
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    if len(data) > RESULTS_MAX_BYTES:
        raise InvalidInput(f"{file} is longer than {RESULTS_MAX_BYTES} bytes.")

    async def work(payouts: Payouts) -> list[Payout]:
        sent = {each.id: each for each in await payouts.store.find(batch=batch, limit=10_000)}
        if not sent:
            raise NotFound("There is no batch with this id.")
        return list(await payouts.settle_batch(read_results(data, sent)))

    taken = _run(config, database, work)
    paid = sum(each.state is State.PAID for each in taken)
    typer.echo(f"{paid} paid, {len(taken) - paid} failed.")


@app.command("rotate-key")
def rotate_key(config: ConfigOption = None, database: DatabaseOption = None) -> None:
    """Make a new key for receipts. Receipts of the old one stay good; restart every gateway to use the new one.

    Example: `nexus payouts rotate-key`
    """
    settings = settings_of(config)
    path = key_path(database or settings.database, settings.payouts.receipt_key)
    if path is None:
        raise ConfigError("The settings keep nothing on disk (`database` is :memory:), so there is no key to renew.")
    old = load_key(path) if path.exists() else None
    new, kept = rotate(path)

    async def work(opened: Database) -> None:
        receipts, now = SqlReceipts(opened, new), int(time.time())
        if old is not None:
            await receipts.enter_key(old, now)
            await receipts.end_key(old.name, now)
        await receipts.enter_key(new, now)

    on_database(config, database, work)
    typer.echo(f"{path} holds the new key {new.name}." + (f" The old one is in {kept}." if kept else ""))
    typer.echo("Restart every gateway, with the same file on each.")


def _row(payout: Payout) -> tuple[str, ...]:
    who = ", ".join(each for each in (payout.reviewed_by, payout.approved_by) if each) or "nobody yet"
    return payout.id, payout.state, f"${dollars(payout.amount)}", payout.owner, payout.rail, who


def _run(config: Path | None, address: str | None, work: Callable[[Payouts], Awaitable[T]]) -> T:
    async def opened(database: Database) -> T:
        books = SqlBooks(database)
        store = SqlPayouts(database, LedgerBooks(books, books))
        return await work(Payouts(store, {}, PayoutSettings()))

    return on_database(config, address, opened)
