"""Answers from the database: every question that crosses the tables of several subjects is here."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Row, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano
from cloud.api.payouts.chain import NodeClass
from cloud.api.reports.ports import DAY_S, Earned, Seen, Used
from cloud.api.store.database import Database
from cloud.api.store.payout_tables import RECEIPTS, TARIFFS
from cloud.api.store.tables import API_KEYS, USAGE
from shared.ids import AccountId, NodeId

_SUMS: Final = [
    func.sum(RECEIPTS.c.amount).label("amount"),
    func.count().label("receipts"),
    func.sum(RECEIPTS.c.drafted).label("drafted"),
    func.sum(RECEIPTS.c.accepted).label("accepted"),
    func.sum(RECEIPTS.c.marginal).label("marginal"),
    func.sum(RECEIPTS.c.millijoules).label("millijoules"),
]
_USED: Final = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost")


class SqlReports:
    """`Reports`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def earned_by_day(self, owner: AccountId, since: int, until: int) -> Mapping[int, Earned]:
        day = (RECEIPTS.c.at // DAY_S).label("day")
        mine = (RECEIPTS.c.owner == owner) & _between(RECEIPTS.c.at, since, until)
        rows = await self._rows(select(day, *_SUMS).where(mine).group_by(day).order_by(day))
        return {int(row.day) * DAY_S: _earned(row) for row in rows}

    async def earned_by_node(self, since: int, until: int, owner: AccountId | None = None) -> Mapping[NodeId, Earned]:
        these = RECEIPTS.c.node.is_not(None) & _between(RECEIPTS.c.at, since, until)
        if owner is not None:
            these &= RECEIPTS.c.owner == owner
        node = RECEIPTS.c.node
        rows = await self._rows(select(node, *_SUMS).where(these).group_by(node).order_by(node))
        return {NodeId(row.node): _earned(row) for row in rows}

    async def used(self, account: AccountId, since: int, until: int) -> Sequence[Used]:
        day = (USAGE.c.at // DAY_S).label("day")
        groups = (day, USAGE.c.key_id, USAGE.c.model)
        sums = [func.sum(USAGE.c[name]).label(name) for name in _USED]
        mine = _of(account) & _between(USAGE.c.at, since, until)
        wanted = select(*groups, func.count().label("requests"), *sums).where(mine)
        rows = await self._rows(wanted.group_by(*groups).order_by(*groups))
        return [
            Used(
                day=int(row.day) * DAY_S,
                key=KeyId(row.key_id),
                model=row.model,
                requests=int(row.requests),
                prompt_tokens=int(row.prompt_tokens),
                cached_tokens=int(row.cached_tokens),
                completion_tokens=int(row.completion_tokens),
                cost=Nano(int(row.cost)),
            )
            for row in rows
        ]

    async def seen(self, account: AccountId, limit: int, before: int | None = None) -> Sequence[Seen]:
        mine = _of(account)
        if before is not None:
            mine &= USAGE.c.at < before
        return await self._seen(select(USAGE).where(mine).order_by(USAGE.c.at.desc(), USAGE.c.request_id).limit(limit))

    async def seen_one(self, account: AccountId, request_id: str) -> Seen | None:
        found = await self._seen(select(USAGE).where(_of(account) & (USAGE.c.request_id == request_id)))
        return found[0] if found else None

    async def tariff(self, owner: AccountId) -> Nano | None:
        rows = await self._rows(select(TARIFFS.c.nano_per_kwh).where(TARIFFS.c.owner == owner))
        return Nano(rows[0].nano_per_kwh) if rows else None

    async def set_tariff(self, owner: AccountId, tariff: Nano) -> None:
        async def work(connection: AsyncConnection) -> None:
            this = TARIFFS.c.owner == owner
            if not (await connection.execute(update(TARIFFS).where(this).values(nano_per_kwh=tariff))).rowcount:
                await connection.execute(insert(TARIFFS).values(owner=owner, nano_per_kwh=tariff))

        await self._database.write(work)

    async def _seen(self, requests: Any) -> Sequence[Seen]:
        async def work(connection: AsyncConnection) -> Sequence[Seen]:
            usage = (await connection.execute(requests)).all()
            names = [row.request_id for row in usage]
            groups = (RECEIPTS.c.request_id, RECEIPTS.c.node_class)
            sums = (func.count().label("nodes"), func.sum(RECEIPTS.c.accepted).label("accepted"))
            these = select(*groups, *sums).where(RECEIPTS.c.request_id.in_(names)).group_by(*groups)
            nodes: dict[str, dict[NodeClass, int]] = defaultdict(dict)
            accepted: dict[str, int] = defaultdict(int)
            for row in await connection.execute(these):
                nodes[row.request_id][row.node_class] = int(row.nodes)
                accepted[row.request_id] += int(row.accepted)
            return [
                Seen(
                    request_id=row.request_id,
                    key=KeyId(row.key_id),
                    at=row.at,
                    model=row.model,
                    outcome=row.outcome,
                    completion_tokens=row.completion_tokens,
                    cost=Nano(row.cost),
                    nodes=nodes.get(row.request_id, {}),
                    accepted=accepted.get(row.request_id, 0),
                )
                for row in usage
            ]

        return await self._database.read(work)

    async def _rows(self, query: Any) -> Sequence[Row[Any]]:
        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(query)).all()

        return await self._database.read(work)


def _of(account: AccountId) -> Any:
    """Requests of the account's keys, those that are revoked by now too."""
    return USAGE.c.key_id.in_(select(API_KEYS.c.id).where(API_KEYS.c.account == account))


def _between(column: Any, since: int, until: int) -> Any:
    return (column >= since) & (column < until)


def _earned(row: Row[Any]) -> Earned:
    return Earned(
        amount=Nano(int(row.amount)),
        receipts=int(row.receipts),
        drafted=int(row.drafted),
        accepted=int(row.accepted),
        marginal=int(row.marginal),
        millijoules=None if row.millijoules is None else int(row.millijoules),
    )
