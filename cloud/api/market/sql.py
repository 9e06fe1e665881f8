"""Keeps the market's records in the database."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TypeVar

from sqlalchemy import Row, delete, insert, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.money import Nano, Pico
from cloud.api.accounts.prices import Price
from cloud.api.market.minutes import MinuteReport, NodeMinute, SpotMinute
from cloud.api.market.pricebook import PriceBook, PriceVersion, Rates, RatesVersion
from cloud.api.market.reputation import Quarantine, Stage, Standing
from cloud.api.store.database import Database
from cloud.api.store.market_tables import (
    NODE_MINUTES,
    PRICE_VERSIONS,
    QUARANTINES,
    RATE_VERSIONS,
    REPUTATIONS,
    SPOT_PRICES,
)
from shared.ids import AccountId, ModelName, NodeId
from shared.wire.messages import DemandReason

T = TypeVar("T")
ROWS = 200
"""Rows that one statement names by their key."""


class SqlMarket:
    """A `MarketStore`. The database is opened and closed by whoever made it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def book(self) -> PriceBook:
        return await self._database.read(_book)

    async def add(self, versions: Sequence[PriceVersion | RatesVersion], at: int) -> None:
        async def work(connection: AsyncConnection) -> None:
            known = await _book(connection)
            book = known.adding(*versions)
            for price in book.prices[len(known.prices) :]:
                row = {"version": price.version, "model": price.model, "since": price.since, **asdict(price.price)}
                await connection.execute(insert(PRICE_VERSIONS).values(**row, added_at=at))
            for rate in book.rates[len(known.rates) :]:
                row = {"version": rate.version, "since": rate.since, **asdict(rate.rates)}
                await connection.execute(insert(RATE_VERSIONS).values(**row, added_at=at))

        await self._database.write(work)

    async def record(self, report: MinuteReport) -> None:
        async def work(connection: AsyncConnection) -> None:
            spots = [asdict(spot) for spot in report.spots]
            if spots:
                versions = {spot.version for spot in report.spots}
                await connection.execute(delete(SPOT_PRICES).where(SPOT_PRICES.c.version.in_(versions)))
                await connection.execute(insert(SPOT_PRICES), spots)
            if report.nodes:
                mine = (NODE_MINUTES.c.minute == report.minute) & (NODE_MINUTES.c.gateway == report.gateway)
                await connection.execute(delete(NODE_MINUTES).where(mine))
                rows = [{**asdict(node), "gateway": report.gateway} for node in report.nodes]
                await connection.execute(insert(NODE_MINUTES), rows)
            for some in _parts(report.standings):
                places = [(each.node, each.model) for each in some]
                these = tuple_(REPUTATIONS.c.node, REPUTATIONS.c.model).in_(places)
                await connection.execute(delete(REPUTATIONS).where(these))
                await connection.execute(insert(REPUTATIONS), [asdict(each) for each in some])
            for held in _parts(report.quarantines):
                nodes = [each.node for each in held]
                await connection.execute(delete(QUARANTINES).where(QUARANTINES.c.node.in_(nodes)))
                await connection.execute(insert(QUARANTINES), [asdict(each) for each in held])

        await self._database.write(work)

    async def standings(self) -> Sequence[Standing]:
        async def work(connection: AsyncConnection) -> Sequence[Standing]:
            rows = (await connection.execute(select(REPUTATIONS))).all()
            return [Standing(**{**row._mapping, "stage": Stage(row.stage)}) for row in rows]

        return await self._database.read(work)

    async def quarantines(self, now: int) -> Sequence[Quarantine]:
        async def work(connection: AsyncConnection) -> Sequence[Quarantine]:
            rows = (await connection.execute(select(QUARANTINES).where(QUARANTINES.c.until > now))).all()
            return [Quarantine(**row._mapping) for row in rows]

        return await self._database.read(work)

    async def minutes(
        self, *, owner: AccountId | None = None, node: NodeId | None = None, since: int = 0, limit: int = 1440
    ) -> Sequence[NodeMinute]:
        async def work(connection: AsyncConnection) -> Sequence[NodeMinute]:
            table = NODE_MINUTES.c
            wanted = select(NODE_MINUTES).where(table.minute >= since)
            if owner is not None:
                wanted = wanted.where(table.owner == owner)
            if node is not None:
                wanted = wanted.where(table.node == node)
            rows = await connection.execute(wanted.order_by(table.minute.desc(), table.node).limit(limit))
            return [_minute(row) for row in rows]

        return await self._database.read(work)

    async def spots(self, model: ModelName, since: int = 0, limit: int = 1440) -> Sequence[SpotMinute]:
        async def work(connection: AsyncConnection) -> Sequence[SpotMinute]:
            table = SPOT_PRICES.c
            wanted = select(SPOT_PRICES).where((table.model == model) & (table.minute >= since))
            rows = await connection.execute(wanted.order_by(table.minute.desc(), table.version).limit(limit))
            return [SpotMinute(**row._mapping) for row in rows]

        return await self._database.read(work)

    async def forget(self, before: int) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(delete(NODE_MINUTES).where(NODE_MINUTES.c.minute < before))

        await self._database.write(work)


async def _book(connection: AsyncConnection) -> PriceBook:
    table = PRICE_VERSIONS.c
    prices = await connection.execute(select(PRICE_VERSIONS).order_by(table.added_at, table.model, table.version))
    rates = await connection.execute(select(RATE_VERSIONS).order_by(RATE_VERSIONS.c.added_at, RATE_VERSIONS.c.version))
    return PriceBook(tuple(map(_price, prices)), tuple(map(_rates, rates)))


def _price(row: Row[tuple[object, ...]]) -> PriceVersion:
    price = Price(Pico(row.prompt), Pico(row.cached), Pico(row.completion))
    return PriceVersion(row.version, row.model, row.since, price)


def _rates(row: Row[tuple[object, ...]]) -> RatesVersion:
    return RatesVersion(row.version, row.since, Rates(**{f.name: getattr(row, f.name) for f in fields(Rates)}))


def _minute(row: Row[tuple[object, ...]]) -> NodeMinute:
    values = {f.name: getattr(row, f.name) for f in fields(NodeMinute)}
    return NodeMinute(**{**values, "reason": DemandReason(row.reason), "earned": Nano(row.earned)})


def _parts(rows: Sequence[T]) -> list[Sequence[T]]:
    return [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
