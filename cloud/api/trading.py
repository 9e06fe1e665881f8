"""Ties a running market to its records, to settlements and to the metrics."""

from collections.abc import Callable, Sequence
from typing import Protocol

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.prices import Price
from cloud.api.admission.ticket import Terms
from cloud.api.broker import events as ev
from cloud.api.ledger.settlement import NodeShare
from cloud.api.market.bound import Claim, shares
from cloud.api.market.keeper import MarketKeeper
from cloud.api.market.minutes import MinuteReport
from cloud.api.market.pricebook import Rates
from cloud.api.metrics import Metrics


class MarketPlace(Protocol):
    """The side of the coordinator that the market's records are for."""

    on_minute: Callable[[MinuteReport], None]

    def tell(self, event: ev.MarketEvent) -> None: ...


class Trading:
    """Without a market place nothing is paid; settlements name their versions all the same."""

    def __init__(
        self, keeper: MarketKeeper, metrics: Metrics, place: MarketPlace | None, clock: Callable[[], float]
    ) -> None:
        self._keeper = keeper
        self._metrics = metrics
        self._place = place
        metrics.market_unrecorded.set_function(lambda: keeper.waiting)
        if place is not None:
            place.on_minute = self._minute
            keeper.on_book = lambda book: place.tell(ev.BookChanged(book))
            keeper.on_records = lambda standings, quarantines: place.tell(
                ev.RecordsLoaded(tuple(standings), tuple(quarantines), clock())
            )

    def terms(self, model: str) -> Terms:
        """What a request that is let in now will be settled by."""
        price, rates = self._keeper.price(model), self._keeper.rates()

        def settled(paid: Price, charge: Charge, claims: Sequence[Claim]) -> tuple[NodeShare, ...]:
            return self._shares(claims, paid, rates.rates, charge)

        return Terms(price.version, rates.version, settled)

    def _shares(self, claims: Sequence[Claim], price: Price, rates: Rates, charge: Charge) -> tuple[NodeShare, ...]:
        if self._place is None:
            return ()
        paid = shares(claims, price, rates, charge)
        if paid:
            self._metrics.shares.inc(sum(share.amount for share in paid))
            self._place.tell(ev.SharesSettled(paid))
        return paid

    def _minute(self, report: MinuteReport) -> None:
        for spot in report.spots:
            self._metrics.spot_price.labels(spot.model).set(spot.price)
            self._metrics.token_value.labels(spot.model).set(spot.value)
        self._keeper.note(report)
