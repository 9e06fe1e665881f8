"""What the market needs from a store. Both adapters pass the same tests (tests/cloud/api/market)."""

from collections.abc import Sequence
from typing import Protocol

from cloud.api.market.minutes import MinuteReport, NodeMinute, SpotMinute
from cloud.api.market.pricebook import PriceBook, PriceVersion, RatesVersion
from cloud.api.market.reputation import Quarantine, Standing
from shared.ids import AccountId, ModelName, NodeId


class MarketStore(Protocol):
    """Every method may raise `shared.errors.Unavailable`; nothing was done then, or all of it."""

    async def book(self) -> PriceBook:
        """All versions, in the order in which they were added."""
        ...

    async def add(self, versions: Sequence[PriceVersion | RatesVersion], at: int) -> None:
        """Add those that are not there yet, all or none. Raises `ValueError` where one is and says something else."""
        ...

    async def record(self, report: MinuteReport) -> None:
        """Store a gateway's minute; a second time changes nothing."""
        ...

    async def standings(self) -> Sequence[Standing]:
        """Of all nodes and models."""
        ...

    async def quarantines(self, now: int) -> Sequence[Quarantine]:
        """Those that have not ended."""
        ...

    async def minutes(
        self, *, owner: AccountId | None = None, node: NodeId | None = None, since: int = 0, limit: int = 1440
    ) -> Sequence[NodeMinute]:
        """Of an owner's nodes, or of one node, or of both together; newest first."""
        ...

    async def spots(self, model: ModelName, since: int = 0, limit: int = 1440) -> Sequence[SpotMinute]:
        """Newest first."""
        ...

    async def forget(self, before: int) -> None:
        """Drop minutes of nodes that began before. Prices stay: settlements name them."""
        ...
