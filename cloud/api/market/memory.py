"""Keeps the market's records in this process only, for gateways without a database."""

from collections.abc import Sequence

from cloud.api.market.minutes import MinuteReport, NodeMinute, SpotMinute
from cloud.api.market.pricebook import PriceBook, PriceVersion, RatesVersion
from cloud.api.market.reputation import Quarantine, Standing
from shared.ids import AccountId, ModelName, NodeId


class MemoryMarket:
    """A `MarketStore`."""

    def __init__(self) -> None:
        self._book = PriceBook()
        self._spots: dict[tuple[str, ModelName], SpotMinute] = {}
        self._minutes: dict[tuple[NodeId, int, str], NodeMinute] = {}
        self._standings: dict[tuple[NodeId, ModelName], Standing] = {}
        self._quarantines: dict[NodeId, Quarantine] = {}

    async def book(self) -> PriceBook:
        return self._book

    async def add(self, versions: Sequence[PriceVersion | RatesVersion], at: int) -> None:
        self._book = self._book.adding(*versions)

    async def record(self, report: MinuteReport) -> None:
        self._spots |= {(spot.version, spot.model): spot for spot in report.spots}
        self._minutes |= {(node.node, node.minute, report.gateway): node for node in report.nodes}
        self._standings |= {(each.node, each.model): each for each in report.standings}
        self._quarantines |= {each.node: each for each in report.quarantines}

    async def standings(self) -> Sequence[Standing]:
        return list(self._standings.values())

    async def quarantines(self, now: int) -> Sequence[Quarantine]:
        return [each for each in self._quarantines.values() if each.until > now]

    async def minutes(
        self, *, owner: AccountId | None = None, node: NodeId | None = None, since: int = 0, limit: int = 1440
    ) -> Sequence[NodeMinute]:
        found = [
            minute
            for minute in self._minutes.values()
            if minute.minute >= since
            and (owner is None or minute.owner == owner)
            and (node is None or minute.node == node)
        ]
        return sorted(found, key=lambda m: (-m.minute, m.node))[:limit]

    async def spots(self, model: ModelName, since: int = 0, limit: int = 1440) -> Sequence[SpotMinute]:
        found = [spot for spot in self._spots.values() if spot.model == model and spot.minute >= since]
        return sorted(found, key=lambda s: (-s.minute, s.version))[:limit]

    async def forget(self, before: int) -> None:
        self._minutes = {place: minute for place, minute in self._minutes.items() if minute.minute >= before}
