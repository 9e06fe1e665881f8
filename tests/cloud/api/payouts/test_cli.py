"""`nexus payouts` on a gateway's database."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from cloud.api.accounts.money import Nano
from cloud.api.ledger.entries import adjustment
from cloud.api.ledger.places import payable
from cloud.api.ledger.sql import SqlBooks
from cloud.api.payouts.books import LedgerBooks
from cloud.api.payouts.cli import app
from cloud.api.payouts.destinations import bank_account
from cloud.api.payouts.receipt_store import SqlReceipts
from cloud.api.payouts.service import Payouts, PayoutSettings
from cloud.api.payouts.signing import load_key
from cloud.api.payouts.sql import SqlPayouts
from cloud.api.store.database import Database
from shared.errors import NexusError

OWNER = "acct_00000000000000aa"
DOLLAR = 10**9


@pytest.fixture
def address(tmp_path, sqlite_template, monkeypatch):
    monkeypatch.setenv("NEXUS_GATEWAY_API_KEYS", "some-key-123")
    monkeypatch.setenv("NEXUS_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("NEXUS_RUNTIME_DIR", str(tmp_path / "run"))
    return sqlite_template.copy(tmp_path / "gateway.db")


@pytest.fixture
def payout(address):
    """One that two operators have approved."""

    async def make():
        database = Database(address)
        await database.open()
        books = SqlBooks(database)
        await books.post(adjustment(payable(OWNER), Nano(50 * DOLLAR), "start", reason="for the test"))
        payouts = Payouts(SqlPayouts(database, LedgerBooks(books, books)), {}, PayoutSettings())
        there = bank_account("Alice", "DE89370400440532013000").to_text()
        await payouts.store.set_destination(OWNER, "manual", there, 1)
        made = await payouts.ask(OWNER)
        for by in ("alice", "bob"):
            await payouts.approve(by, made.id)
        await database.close()
        return made.id

    return asyncio.run(make())


@pytest.fixture
def run(address):
    def call(*arguments, fails=None):
        result = CliRunner().invoke(app, [*map(str, arguments), "--database", address])
        if fails:
            assert isinstance(result.exception, NexusError) and fails in result.exception.message, result.exception
        else:
            assert result.exit_code == 0, (result.output, result.exception)
        return result

    return call


def test_a_batch_and_its_results(run, payout, tmp_path):
    """Listed, made, printed again, and ended by the bank's file."""
    assert payout in run("list", "--state", "approved").output
    run("batch", "--again", "batch_none", fails="no batch")
    made = run("batch")
    name = made.stderr.split()[2].rstrip(":")
    assert f'"{payout}","50.00"' in made.stdout
    assert run("batch", "--again", name).stdout == made.stdout
    run("batch", fails="No payout waits")
    file = tmp_path / "results.csv"
    run("results", name, file, fails="cannot be read")
    file.write_text(f"payout,amount,result\n{payout},50.00,paid\n")
    run("results", "batch_none", file, fails="no batch")
    assert run("results", name, file).stdout == "1 paid, 0 failed.\n"
    [shown] = json.loads(run("list", "--json").stdout)
    assert shown["state"] == "paid" and shown["id"] == payout


def test_no_payouts(run):
    """An empty list says so."""
    assert run("list").stdout == "There are no payouts.\n"


def test_the_key_is_renewed(run, address, tmp_path):
    """The file has a new key, the old one is kept, and both are known in the database with their times."""
    path = tmp_path / "gateway.receipts.pem"
    old = load_key(path)
    shown = run("rotate-key").stdout
    new = load_key(path)
    assert new.name in shown and "Restart" in shown and load_key(tmp_path / f"gateway.receipts.{old.name}.pem")

    async def keys():
        database = Database(address)
        await database.open()
        found = await SqlReceipts(database, new).keys()
        await database.close()
        return {each.name: each.until for each in found}

    found = asyncio.run(keys())
    assert found[new.name] is None and found[old.name] is not None
