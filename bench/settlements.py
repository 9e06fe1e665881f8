"""What the ledger takes: settlements a second on SQLite and PostgreSQL, and requests while it is slow.

    make bench PART=settlements
    make bench PART=settlements ARGS="--settlements 5000"

Each gateway is a process of its own with the real bookkeeper, spool and books; it reserves and settles as fast as they
take it, every settlement with one node's share. A reservation is written for half of the requests, the others are over
before. On SQLite everything, database included, is kept to one core. PostgreSQL is started here, as in production with
fsync, if its server programs are installed. `bench/out/settlements/` gets `results.json` and `report.md`; the exit
status is 1 when a claim does not hold.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from support.databases import migrate
from support.ledger import ALICE, BOB, OWNER, Maker, key
from support.postgres import PostgresMissing, running

from cloud.api.accounts.budgets import Budgets
from cloud.api.accounts.money import Nano
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.ledger import entries
from cloud.api.ledger.bookkeeper import Bookkeeper
from cloud.api.ledger.ports import Batch, Written
from cloud.api.ledger.spool import Spool
from cloud.api.ledger.sql import SqlBooks
from cloud.api.store.database import Database
from shared.ids import GatewayId

OUT = Path("bench/out/settlements")
SQLITE_RATE, POSTGRES_RATE = 500, 1000
SLOW_S = 0.5
"""What a slow ledger takes longer for each transaction."""
LATENCY_MS = 2.0
"""What a request may wait longer for that."""
WORST, COST, SHARE = 100_000, 40_000, 10_000
LONG_S = 0.3
"""What a longer request takes; the others are over at once."""
AT_ONCE = 400
"""Requests at work in one gateway."""


class SlowBooks(SqlBooks):
    """Books on a database that takes its time."""

    slow_s = 0.0

    async def write(self, batch: Batch) -> Written:
        await asyncio.sleep(self.slow_s)
        return await super().write(batch)


class Gateway:
    """As much of a gateway as has to do with money."""

    def __init__(self, address: str, spool: Path, name: str) -> None:
        self.database = Database(address)
        self.books = SlowBooks(self.database)
        self.accounts = SqlAccounts(self.database)
        self.keeper = Bookkeeper(self.books, Budgets(self.accounts), gateway=GatewayId(name), spool=Spool(spool))

    async def __aenter__(self) -> "Gateway":
        await self.database.open()
        await self.keeper.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.keeper.close()
        await self.database.close()


async def settle_all(address: str, spool: Path, name: str, count: int) -> float:
    """Reserve and settle so many requests; the seconds until the books have all of them."""
    make = Maker()
    numbers = iter(range(count))
    async with Gateway(address, spool, name) as gateway:
        began = time.perf_counter()

        async def work() -> None:
            for number in numbers:
                account, other = (ALICE, BOB) if number % 2 else (BOB, OWNER)
                request = f"{name}_{number}"
                hold = await gateway.keeper.reserve(key(account), request, Nano(WORST))
                if number % 4 < 2:  # long enough for the reservation to be written
                    await asyncio.sleep(LONG_S)
                gateway.keeper.settle(hold, make.settlement(COST, account, request, ((other, SHARE),)))
                while gateway.keeper.waiting > 2 * AT_ONCE:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        while not await gateway.keeper.flush():
            pass
        return time.perf_counter() - began


async def latencies(address: str, spool: Path, name: str, slow_s: float, count: int) -> list[float]:
    """How long each of `count` requests waited for the ledger, in milliseconds, one every 10 ms."""
    make, waits = Maker(), []
    async with Gateway(address, spool, name) as gateway:
        first = await gateway.keeper.reserve(key(), f"{name}_first", Nano(WORST))
        gateway.keeper.release(first)
        gateway.books.slow_s = slow_s
        for number in range(count):
            began = time.perf_counter()
            hold = await gateway.keeper.reserve(key(), f"{name}_{number}", Nano(WORST))
            gateway.keeper.settle(hold, make.settlement(COST, ALICE, f"{name}_{number}"))
            waits.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.01)
        gateway.books.slow_s = 0
    return waits


async def prepare(address: str) -> None:
    """Plenty of money for everybody."""
    async with Gateway(address, Path(tempfile.mkdtemp()), "first") as gateway:
        for account in (ALICE, BOB):
            await gateway.books.post(entries.top_up(account, Nano(10**15), f"bench_{account}"))


async def checked(address: str) -> tuple[int, list[str]]:
    """How many settlements the books hold, and what is wrong with them."""
    database = Database(address)
    await database.open()
    books = SqlBooks(database)
    settled = 0
    async for event in books.all_events():
        settled += event.entry.kind == "settle"
    problems = (await books.audit()).problems()
    await database.close()
    return settled, problems


def rate(address: str, folder: Path, gateways: int, count: int, cpus: set[int] | None) -> dict[str, Any]:
    """Settlements a second of so many gateways together, from the first to the last of any."""
    asyncio.run(prepare(address))
    began = time.perf_counter()
    argv = [sys.executable, "-m", "bench.settlements", "--child", address, "--settlements", str(count // gateways)]
    children = [
        subprocess.Popen(
            [*argv, "--spool", str(folder / "spool"), "--name", f"g{number}"],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None,
        )
        for number in range(gateways)
    ]
    told = [json.loads(child.communicate()[0]) for child in children]
    seconds = max(each["ended"] for each in told) - min(each["began"] for each in told)
    settled, problems = asyncio.run(checked(address))
    wanted = count // gateways * gateways
    return {
        "settlements": wanted,
        "seconds": seconds,
        "per_s": wanted / seconds,
        "whole_s": time.perf_counter() - began,
        "lost": wanted - settled,
        "problems": problems,
    }


def child(address: str, spool: Path, name: str, count: int) -> None:
    """One gateway's part: when it began and ended, by the machine's clock."""
    seconds = asyncio.run(settle_all(address, spool, name, count))
    ended = time.time()
    print(json.dumps({"began": ended - seconds, "ended": ended}))


def measure(count: int) -> dict[str, Any]:
    """All parts."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        folder = Path(text)
        address = migrate(str(folder / "bench.db"))
        core = {min(os.sched_getaffinity(0))}
        results["sqlite"] = rate(address, folder, 1, count, core)
        print(f"  sqlite, one gateway, one core: {results['sqlite']['per_s']:.0f} settlements/s", flush=True)
        for name, slow_s in (("fast", 0.0), ("slow", SLOW_S)):
            results[name] = asyncio.run(latencies(address, folder / "spool", f"l{name}", slow_s, 300))
            print(f"  {name} ledger: {statistics.median(results[name]):.3f} ms median wait", flush=True)
        try:
            server = stack.enter_context(running(durable=True))
        except PostgresMissing as error:
            print(f"  {error}", flush=True)
            return results
        address = migrate(server.url(server.new()))
        results["postgresql"] = rate(address, folder, 2, count, None)
        print(f"  postgresql, two gateways: {results['postgresql']['per_s']:.0f} settlements/s", flush=True)
    return results


def claims(results: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """What is claimed, the figure, the bound, and whether it holds."""
    told = []
    for name, words, least in (
        ("sqlite", "settlements/s on SQLite, one gateway, one core", SQLITE_RATE),
        ("postgresql", "settlements/s on PostgreSQL, two gateways", POSTGRES_RATE),
    ):
        if name in results:
            found = results[name]
            told.append((words, f"{found['per_s']:.0f}", f"≥ {least}", found["per_s"] >= least))
            wrong = abs(found["lost"]) + len(found["problems"])
            told.append((f"lost or doubled, and differences, on {name}", str(wrong), "0", wrong == 0))
    fast, slow = ([statistics.median(results[n]), sorted(results[n])[-3]] for n in ("fast", "slow"))
    for which, words in enumerate(("median", "99th percentile")):
        added = slow[which] - fast[which]
        words = f"wait of a request, {words}, added by a ledger {SLOW_S:g} s slower, ms"
        told.append((words, f"{added:.3f}", f"≤ {LATENCY_MS:g}", added <= LATENCY_MS))
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settlements", type=int, default=8000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--spool", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.spool, options.name, options.settlements)
        return
    results = measure(options.settlements)
    told = claims(results)
    lines = ["# Settlements", "", "| claim | figure | bound | holds |", "|---|---|---|---|"]
    lines += [
        f"| {words} | {figure} | {bound} | {'yes' if holds else '**no**'} |" for words, figure, bound, holds in told
    ]
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "results.json").write_text(json.dumps(results, indent=1))
    (OUT / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    sys.exit(0 if all(holds for *_, holds in told) else 1)


if __name__ == "__main__":
    main()
