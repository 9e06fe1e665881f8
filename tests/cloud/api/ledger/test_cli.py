"""`nexus ledger`: what an operator sees and does."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest
from support.ledger import ALICE, OWNER, Maker
from typer.testing import CliRunner

from cloud.api.ledger.cli import app
from cloud.api.ledger.ports import Batch
from cloud.api.ledger.settings import spool_folder
from cloud.api.ledger.spool import Spool
from cloud.api.ledger.sql import SqlBooks
from cloud.api.store.database import Database
from shared.errors import ConfigError, Conflict, InsufficientQuota, InvalidInput, NexusError


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """No settings of this machine."""
    monkeypatch.setenv("NEXUS_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("NEXUS_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def database(sqlite_template, tmp_path):
    return sqlite_template.copy(tmp_path / "gateway.db")


@pytest.fixture
def nexus(database):
    """Run the command on the database; gives its output, raises what it raises."""

    def run(*argv, at=None, code=0):
        result = CliRunner().invoke(app, [*argv, "--database", at or database])
        if isinstance(result.exception, NexusError):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.stdout

    return run


def settle(address, *settlements):
    """As a gateway does."""

    async def work():
        database = Database(address)
        await database.open()
        await SqlBooks(database).write(Batch(settlements=settlements))
        await database.close()

    asyncio.run(work())


def corrupt(database, *statements):
    """What no program of ours does."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for name in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS keep_ledger_postings_{name}")
        for statement in statements:
            connection.execute(statement)


def test_money_in_and_out(nexus, database):
    """A top-up counts once by its reference; adjustments say why and who; the balance is exact."""
    for _ in range(2):
        assert "top_up:inv-1" in nexus("top-up", ALICE, "12.50", "--reference", "inv-1")
    with pytest.raises(Conflict):
        nexus("top-up", ALICE, "13", "--reference", "inv-1")
    nexus("adjust", ALICE, "--add", "0.000000001", "--reason", "goodwill")
    nexus("adjust", ALICE, "--take", "2", "--reason", "mistake")
    nexus("adjust", ALICE, "--refund", "0.5", "--reason", "asked for")
    nexus("adjust", OWNER, "--add", "3", "--place", "payable", "--reason", "bonus")
    assert json.loads(nexus("balance", "--json")) == {
        "customer:acct_alice:available": "10.000000001",
        "house:adjustments": "-1.000000001",
        "house:cash": "-12",
        "owner:acct_owner:payable": "3",
    }
    assert nexus("balance", ALICE).split() == ["customer:acct_alice:available", "10.000000001"]
    settle(database, Maker().settlement(10**9))
    told = json.loads(nexus("events", "--account", ALICE, "--json"))
    assert [event["kind"] for event in told] == ["settle", *["adjustment"] * 3, "top_up"]
    assert told[1]["reason"] == "asked for" and told[1]["actor"].startswith("terminal:")
    listing = nexus("events", "--kind", "adjustment", "--limit", "1")
    assert "bonus" in listing and "owner:acct_owner:payable" in listing


@pytest.mark.parametrize(
    ("argv", "error", "words"),
    [
        (("top-up", "alice", "5"), InvalidInput, "acct_"),
        (("top-up", ALICE, "-5"), None, ""),
        (("top-up", ALICE, "0"), InvalidInput, "nothing"),
        (("top-up", ALICE, "0.0000000001"), InvalidInput, "finer"),
        (("top-up", ALICE, "a lot"), InvalidInput, "no amount"),
        (("adjust", ALICE, "--reason", "x"), InvalidInput, "one of --add"),
        (("adjust", ALICE, "--add", "1", "--take", "1", "--reason", "x"), InvalidInput, "one of --add"),
        (("adjust", ALICE, "--add", "1", "--reason", " "), InvalidInput, "--reason"),
        (("adjust", ALICE, "--add", "1", "--place", "paid", "--reason", "x"), InvalidInput, "place"),
        (("adjust", ALICE, "--take", "1", "--reason", "x"), InsufficientQuota, "less than that"),
        (("events", "--kind", "theft"), InvalidInput, "kind"),
        (("export", "xls"), InvalidInput, "form"),
    ],
)
def test_mistakes_are_told_in_words(nexus, argv, error, words):
    """And move nothing."""
    if error is None:
        nexus(*argv, code=2)
    else:
        with pytest.raises(error, match=words):
            nexus(*argv)
    assert json.loads(nexus("balance", "--json")) == {}


def test_reconcile(nexus, database):
    """Zero when the books agree; each fault by name, and exit status 1, when somebody has been at the file."""
    nexus("top-up", ALICE, "10")
    settle(database, Maker().settlement(4, shares=((OWNER, 2),)))
    assert nexus("reconcile") == "differences: 0\n"
    faults = {
        "UPDATE ledger_balances SET amount = amount + 1 WHERE place = 'house:cash'": "is kept as",
        "UPDATE ledger_postings SET amount = amount + 1 WHERE place = 'house:revenue'": "sums to 1",
        "DELETE FROM maturing": "has a day",
        "INSERT INTO reservations VALUES ('r', 'acct_alice', 5, 'g', 0, 'held')": "reservations held sum to 5",
        "DELETE FROM settlements": "1 settlements",
        "UPDATE usage SET cost = cost + 1": "1 settlements",
    }
    for fault, words in faults.items():
        copy = f"{database}-{len(words)}{len(fault)}"
        nexus("backup", copy)
        corrupt(copy, fault)
        assert words in nexus("reconcile", at=copy, code=1)
        assert json.loads(nexus("reconcile", "--json", at=copy, code=1))["differences"] >= 1


def test_the_books_cannot_be_changed(database, nexus):
    """Not even by SQL, unless one takes the triggers away."""
    nexus("top-up", ALICE, "10")
    with closing(sqlite3.connect(database)) as connection:
        for table in ("ledger_events", "ledger_postings"):
            for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET rowid = rowid"):
                with pytest.raises(sqlite3.IntegrityError, match="never changed"):
                    connection.execute(statement)


def test_backup_and_restore(nexus, database, tmp_path):
    """A copy of one moment, also while the database is open; it takes the place of a damaged one, and reconciles."""
    nexus("top-up", ALICE, "10")
    with closing(sqlite3.connect(database)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM ledger_events").fetchall()
        nexus("backup", str(tmp_path / "copy.db"))
    nexus("top-up", ALICE, "5")
    with pytest.raises(ConfigError, match="is there already"):
        nexus("backup", str(tmp_path / "copy.db"))
    with pytest.raises(ConfigError, match="--yes"):
        nexus("restore", str(tmp_path / "copy.db"))
    assert "differences: 0" in nexus("restore", str(tmp_path / "copy.db"), "--yes")
    assert json.loads(nexus("balance", ALICE, "--json"))["customer:acct_alice:available"] == "10"
    assert "differences: 0" in nexus("restore", str(tmp_path / "copy.db"), at=str(tmp_path / "new" / "gateway.db"))
    assert sorted(path.name for path in tmp_path.glob("*.db*")) == ["copy.db", "gateway.db"]


def test_restore_refuses(nexus, database, tmp_path):
    """What is no copy, a damaged one, and a database that a gateway uses."""
    nexus("backup", str(tmp_path / "copy.db"))
    (tmp_path / "text").write_text("no database" * 1000)
    for name, words in (("text", "no database of Nexus"), ("missing", "no file")):
        with pytest.raises(ConfigError, match=words):
            nexus("restore", str(tmp_path / name), "--yes")
    damaged = bytearray((tmp_path / "copy.db").read_bytes())
    damaged[8192:] = b"\xff" * (len(damaged) - 8192)
    (tmp_path / "damaged.db").write_bytes(damaged)
    with pytest.raises(ConfigError, match="damaged"):
        nexus("restore", str(tmp_path / "damaged.db"), "--yes")
    spool = Spool(spool_folder(database))
    spool.append(Maker().settlement(1))
    with pytest.raises(ConfigError, match="stop it first"):
        nexus("restore", str(tmp_path / "copy.db"), "--yes")
    spool.close()


def test_a_servers_database_has_programs_of_its_own(nexus, tmp_path):
    """They are named."""
    address = "postgresql+psycopg://nexus@localhost/nexus"
    with pytest.raises(ConfigError, match="pg_dump"):
        nexus("backup", str(tmp_path / "x"), at=address)
    (tmp_path / "x").write_text("")
    with pytest.raises(ConfigError, match="pg_restore"):
        nexus("restore", str(tmp_path / "x"), at=address)
    with pytest.raises(ConfigError, match="memory"):
        nexus("balance", at=":memory:")


def test_exports_and_postgresql(nexus, postgres_url, tmp_path):
    """The same commands on a server's database; files are new ones."""
    nexus("top-up", ALICE, "10", at=postgres_url)
    assert nexus("reconcile", at=postgres_url) == "differences: 0\n"
    assert "1970-01-01 open Assets:Cash USD" in nexus("export", "beancount", at=postgres_url)
    target = tmp_path / "books.csv"
    nexus("export", "csv", "--output", str(target), at=postgres_url)
    assert target.read_text().count("\n") == 3
    with pytest.raises(ConfigError, match="is there already"):
        nexus("export", "csv", "--output", str(target), at=postgres_url)


def test_help_teaches():
    """Every command shows an example."""
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        result = CliRunner().invoke(app, [name, "--help"])
        assert result.exit_code == 0 and f"nexus ledger {name}" in " ".join(result.output.split()), name
