"""Keeps the monthly budgets of keys: the worst case is set aside before the work, the cost counted once after it."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from cloud.api.accounts.charges import Charge, month_of
from cloud.api.accounts.keys import ApiKey, KeyId
from cloud.api.accounts.money import Nano, dollars
from cloud.api.accounts.ports import AccountStore
from shared.errors import InsufficientQuota


class BudgetHold:
    """A part of a budget set aside for one request, until `Budgets.settle` or `Budgets.release`."""

    __slots__ = ("amount", "key", "open")

    def __init__(self, key: KeyId, amount: Nano) -> None:
        self.key = key
        self.amount = amount
        self.open = True


class Budgets:
    """Everything but `start` is synchronous, so that no cancellation can come between."""

    def __init__(self, store: AccountStore, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._month = ""
        self._stored: dict[KeyId, int] = {}
        """What the store is known to hold for this month."""
        self._waiting: Counter[KeyId] = Counter()
        """What it has still to be told for this month."""
        self._held: Counter[KeyId] = Counter()

    async def start(self) -> None:
        """Read what this month has cost so far. Raises `Unavailable`."""
        self._turn_page()
        self._stored = dict(await self._store.spending(self._month))

    def spent(self, key: KeyId) -> Nano:
        """This month, answers at work not counted."""
        self._turn_page()
        return Nano(self._stored.get(key, 0) + self._waiting[key])

    def reserve(self, key: ApiKey, worst: Nano) -> BudgetHold:
        """Set the worst case aside. Raises `InsufficientQuota` when the month's budget does not hold it."""
        budget = key.terms.monthly_budget
        if budget is not None:
            # Several gateways together may have spent more than the budget; what costs nothing is possible even then.
            left = max(budget - self.spent(key.id) - self._held[key.id], 0)
            if worst > left:
                raise InsufficientQuota(_refusal(budget, left, worst))
        self._held[key.id] += worst
        return BudgetHold(key.id, worst)

    def release(self, hold: BudgetHold) -> None:
        """Give back what was set aside: nothing was done. A second time changes nothing."""
        if hold.open:
            hold.open = False
            self._held[hold.key] -= hold.amount
            if not self._held[hold.key]:
                del self._held[hold.key]

    def settle(self, hold: BudgetHold, charge: Charge) -> None:
        """The work is over, in whatever way. A second time changes nothing."""
        if hold.open:
            self.release(hold)
            self._turn_page()
            if charge.month == self._month:
                self._waiting[charge.key_id] += charge.cost

    def recorded(self, charges: Iterable[Charge], sums: Mapping[tuple[KeyId, str], Nano]) -> None:
        """The store has been told of charges that were settled here. Its sums also hold what other gateways told it."""
        for charge in charges:
            if charge.month == self._month:
                self._waiting[charge.key_id] -= charge.cost
        for (key, month), cost in sums.items():
            if month == self._month:
                self._stored[key] = cost
                if not self._waiting[key]:
                    del self._waiting[key]

    def _turn_page(self) -> None:
        """A new month begins at nothing; a clock that is set back does not bring the old one back."""
        month = month_of(self._clock())
        if month > self._month:
            self._month = month
            self._stored.clear()
            self._waiting.clear()


def _refusal(budget: int, left: int, worst: int) -> str:
    text = f"This key's budget of ${dollars(budget)} a month has ${dollars(left)} left"
    if not left:
        return f"{text}. It is renewed on the first of the month (UTC)."
    return f"{text}, but this request could cost ${dollars(worst)}. Ask for fewer output tokens (`max_tokens`)."
