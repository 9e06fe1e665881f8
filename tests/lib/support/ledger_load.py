"""Gateways' bookkeepers under load that are killed at random moments, and what is left of their books.

    python -m support.ledger_load DATABASE SPOOL ROUNDS SEED

Each round forks two processes on the same database, and kills both (SIGKILL) at a random moment. They say on a pipe
what was settled, right after they were told that it is. At the end one more process recovers; the result is a line of
JSON on standard output. Everything is imported once, before any process is forked, so that a round takes half a second.
"""

import asyncio
import json
import os
import random
import select
import signal
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import sqlalchemy
import structlog
from support.ledger import ALICE, BOB, OWNER, Maker, key

from cloud.api.accounts.budgets import Budgets
from cloud.api.accounts.money import Nano
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.ledger import bookkeeper as module
from cloud.api.ledger import entries
from cloud.api.ledger.bookkeeper import Bookkeeper
from cloud.api.ledger.spool import Spool
from cloud.api.ledger.sql import SqlBooks
from cloud.api.ledger.upkeep import Upkeep
from cloud.api.store.database import Database
from cloud.api.store.tables import USAGE
from shared.errors import InsufficientQuota, Unavailable
from shared.ids import GatewayId

LEASE_S = 60
LONGEST_S = 0.7
"""Until the kill."""
READY_S = 20.0
"""For a process to begin its work."""
WORKERS = 12


class Gateway:
    """As much of a gateway as has to do with money."""

    def __init__(self, database: str, spool: Path, name: str, *, ahead_s: int = 0) -> None:
        clock = lambda: time.time() + ahead_s  # noqa: E731
        self.database = Database(database)
        self.books = SqlBooks(self.database, clock=clock)
        self.budgets = Budgets(SqlAccounts(self.database), clock=clock)
        self.keeper = Bookkeeper(
            self.books, self.budgets, gateway=GatewayId(name), spool=Spool(spool), lease_s=LEASE_S, clock=clock
        )
        self.upkeep = Upkeep(self.books, self.keeper, lease_s=LEASE_S, clock=clock)

    async def start(self) -> None:
        await self.database.open()
        await self.budgets.start()
        await self.keeper.start()


async def load(database: str, spool: Path, name: str, pipe: int, seed: int) -> None:
    """Reserve, settle, release and pay in until killed."""
    module.GATHER_S = 0.01
    chance = random.Random(seed)
    gateway = Gateway(database, spool, name)
    await gateway.start()
    make = Maker()
    os.write(pipe, b"ready\n")

    async def work(worker: int) -> None:
        for number in range(1_000_000):
            account = chance.choice([ALICE, BOB])
            request = f"{name}_{worker}_{number}"
            try:
                hold = await gateway.keeper.reserve(key(account), request, Nano(chance.randrange(1, 200)))
            except InsufficientQuota:
                await gateway.books.post(entries.top_up(account, Nano(5000), request))
                os.write(pipe, b"paid\n")
                continue
            except Unavailable:
                continue
            await asyncio.sleep(chance.random() * 0.02)
            if chance.random() < 0.1:
                gateway.keeper.release(hold)
                continue
            cost = chance.randrange(hold.amount + 1)
            shares = ((OWNER, cost // 2),) if cost > 1 else ()
            gateway.keeper.settle(hold, make.settlement(cost, account, request, shares, at=int(time.time())))
            os.write(pipe, f"{request} {cost}\n".encode())

    async def look_after() -> None:
        while True:
            await gateway.upkeep.round()
            await asyncio.sleep(0.05)

    await asyncio.gather(look_after(), *(work(worker) for worker in range(WORKERS)))


def _load(database: str, spool: Path, name: str, seed: int, pipe: int) -> None:
    asyncio.run(load(database, spool, name, pipe, seed))


async def recover(database: str, spool: Path) -> dict[str, object]:
    """What the next gateway finds and does."""
    gateway = Gateway(database, spool, "last", ahead_s=LEASE_S + 1)
    await gateway.start()
    await gateway.keeper.flush()
    await gateway.upkeep.round()
    audit = await gateway.books.audit()
    settled = [e async for e in gateway.books.all_events() if e.entry.kind == "settle"]
    usage = dict(await gateway.database.read(_usage))
    in_books = Counter(event.entry.key.removeprefix("settle:") for event in settled)
    paid_in = sum(e.entry.kind == "top_up" for e in [e async for e in gateway.books.all_events()])
    balances = await gateway.books.balances()
    await gateway.keeper.close()
    await gateway.database.close()
    return {
        "problems": audit.problems(),
        "overdue": audit.overdue,
        "held": sum(amount for place, amount in balances.items() if place.endswith(":reserved")),
        "settled": in_books,
        "usage": usage,
        "paid_in": paid_in,
        "spool": [path.name for path in spool.glob("*.spool")],  # noqa: ASYNC240 - nothing else runs
    }


async def _usage(connection):  # type: ignore[no-untyped-def]
    return [
        (row.request_id, row.cost)
        for row in await connection.execute(sqlalchemy.select(USAGE.c.request_id, USAGE.c.cost))
    ]


def forked(work) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    """Run `work(pipe)` in a process of its own; its number and the end to read from."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    os.close(reading)
    try:
        work(writing)
        os._exit(0)
    except BaseException as error:  # a fault of the test's own
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def rest(pipe: int) -> list[str]:
    """Every whole line until the writer is gone."""
    with os.fdopen(pipe, "rb") as file:
        return [line.decode() for line in file.read().split(b"\n")[:-1]]


def main() -> None:
    database, spool, rounds, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    chance = random.Random(seed)
    told: dict[str, int] = {}
    paid, ready = 0, 0
    for number in range(rounds):
        started = []
        for which in "ab":
            name = f"gw{seed}_{number}{which}"
            started.append(forked(partial(_load, database, spool, name, chance.randrange(10**9))))
        if chance.random() < 0.8:  # else while it starts
            select.select([pipe for _, pipe in started], [], [], READY_S)
        time.sleep(chance.random() * LONGEST_S)
        for process, _ in started:
            os.kill(process, signal.SIGKILL)
        for process, pipe in started:
            _, status = os.waitpid(process, 0)
            assert os.WIFSIGNALED(status), "a gateway ended by itself"
            for line in rest(pipe):
                if line == "ready":
                    ready += 1
                elif line == "paid":
                    paid += 1
                else:
                    request, cost = line.split()
                    told[request] = int(cost)
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        found = asyncio.run(recover(database, spool))
        with os.fdopen(writing, "w") as file:
            json.dump(found, file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        result = json.load(file)
    os.waitpid(process, 0)
    print(json.dumps({**result, "told": told, "paid": paid, "ready": ready}))


if __name__ == "__main__":
    main()
