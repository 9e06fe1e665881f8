"""Decides on every request: its number, money, tokens and streams, then a place; who is refused holds nothing."""

import time
from collections.abc import Callable, Mapping

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import ApiKey, KeyId
from cloud.api.accounts.money import Nano, dollars
from cloud.api.accounts.prices import FREE, Price
from cloud.api.admission.gate import Gate
from cloud.api.admission.meter import Meter
from cloud.api.admission.ticket import Ask, Terms, Ticket
from cloud.api.ledger.bookkeeper import Bookkeeper
from shared.errors import InvalidInput


class Desk:
    """`clock` gives seconds since 1970, `monotonic` those of a clock that never goes back; `terms` what requests to a
    model are settled by from now on."""

    def __init__(
        self,
        bookkeeper: Bookkeeper,
        gate: Gate,
        prices: Mapping[str, Price],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        on_settled: Callable[[Charge], None] = lambda _: None,
        terms: Callable[[str], Terms] = lambda _: Terms(),
    ) -> None:
        self.gate = gate
        self._bookkeeper = bookkeeper
        self._prices = prices
        self._clock = clock
        self._monotonic = monotonic
        self._on_settled = on_settled
        self._terms = terms
        self._meters: dict[KeyId, Meter] = {}

    def price(self, model: str) -> Price:
        return self._prices.get(model, FREE)

    def check_price(self, ask: Ask, most: Nano | None) -> None:
        """Raises `InvalidInput` when the answer could cost more than the caller wants to pay."""
        worst = self.price(ask.model).worst(ask.bounds())
        if most is not None and worst > most:
            raise InvalidInput(
                f"This request could cost ${dollars(worst)}, more than its `nexus.max_price` of ${dollars(most)}. Ask "
                "for fewer output tokens (`max_tokens`), or allow more.",
                param="nexus.max_price",
            )

    def count(self, key: ApiKey) -> None:
        """Every request counts, whatever becomes of it. Raises `RateLimited`."""
        self._meter(key).count(self._monotonic())

    async def admit(self, key: ApiKey, ask: Ask) -> Ticket:
        """Wait for a place. Raises `InsufficientQuota`, `RateLimited`, `InvalidInput` (more choices than the key may
        ever have) or `Unavailable`.
        """
        price, meter, estimate = self.price(ask.model), self._meter(key), ask.estimate()
        worst = Nano(max(price.worst(ask.bounds()) - ask.credit, 0))
        hold = await self._bookkeeper.reserve(key, ask.request_id, worst)
        try:
            meter.take(ask.choices, estimate, self._monotonic())
            try:
                await self.gate.enter(key.id, ask.choices, estimate)
            except BaseException:
                meter.leave(ask.choices, estimate, 0, self._monotonic())
                raise
        except BaseException:
            self._bookkeeper.release(hold)
            raise
        return Ticket(
            ask,
            key,
            price,
            hold=hold,
            bookkeeper=self._bookkeeper,
            meter=meter,
            gate=self.gate,
            clock=self._clock,
            monotonic=self._monotonic,
            on_settled=self._on_settled,
            terms=self._terms(ask.model),
        )

    def headers(self, key: ApiKey) -> list[tuple[bytes, bytes]]:
        """What is left of the key's limits now."""
        return self._meter(key).headers(self._monotonic())

    def _meter(self, key: ApiKey) -> Meter:
        if key.id not in self._meters:
            self._meters[key.id] = Meter(key.terms, self._monotonic())
        return self._meters[key.id]
