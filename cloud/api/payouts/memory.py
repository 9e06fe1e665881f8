"""Keeps payouts, and owners' balances, in this process only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from cloud.api.accounts.money import Nano, dollars
from cloud.api.payouts.payout import MOVES, Move, Payout, PayoutId, State
from cloud.api.payouts.ports import Balance, Change, InsufficientFunds, PayoutLedger, Transaction, move_key
from shared.errors import NotFound
from shared.ids import AccountId

_FROM_TO: Final[dict[Move, tuple[str, str]]] = {
    Move.ASKED: ("payable", "paying"),
    Move.SENT: ("paying", "paid"),
    Move.FAILED: ("paying", "payable"),
}


class MemoryPayoutLedger:
    """A `PayoutLedger` of nothing but owners' balances."""

    def __init__(self, payable: Mapping[AccountId, Nano] | None = None) -> None:
        self._sums: Counter[tuple[AccountId, str]] = Counter()
        self.posted: dict[str, int] = {}
        """Keys of movements, and when each was made."""
        for owner, amount in (payable or {}).items():
            self._sums[owner, "payable"] = amount

    async def move(self, transaction: Transaction, move: Move, payout: Payout, at: int) -> None:
        key = move_key(move, payout.id)
        if key in self.posted:
            return
        source, target = ((payout.owner, place) for place in _FROM_TO[move])
        if self._sums[source] < payout.amount:
            raise not_enough(Nano(self._sums[source]))
        self._sums[source] -= payout.amount
        self._sums[target] += payout.amount
        self.posted[key] = at

    async def balance(self, owner: AccountId) -> Balance:
        return Balance(*(Nano(self._sums[owner, place]) for place in ("pending", "payable", "paying", "paid")))


class MemoryPayouts:
    """A `PayoutStore`."""

    def __init__(self, ledger: PayoutLedger) -> None:
        self._ledger = ledger
        self._payouts: dict[PayoutId, Payout] = {}
        self._destinations: dict[tuple[AccountId, str], str] = {}
        self._events: dict[str, int] = {}

    async def add(self, payout: Payout) -> Payout:
        await self._ledger.move(None, Move.ASKED, payout, payout.asked_at)
        self._payouts[payout.id] = payout
        return payout

    async def change(self, id: PayoutId, change: Change, at: int) -> Payout:
        return (await self.change_all([id], change, at))[0]

    async def change_all(self, ids: Sequence[PayoutId], change: Change, at: int) -> Sequence[Payout]:
        changed = [(old := await self.get(id), change(old)) for id in ids]
        for old, new in changed:
            move = MOVES[new.state]
            if new.state is not old.state and move is not None:
                await self._ledger.move(None, move, new, at)
            self._payouts[new.id] = new
        return [new for _, new in changed]

    async def get(self, id: PayoutId) -> Payout:
        if (found := self._payouts.get(id)) is None:
            raise no_such_payout()
        return replace(found)

    async def find(
        self, *, owner: AccountId | None = None, state: State | None = None, batch: str | None = None, limit: int = 1000
    ) -> Sequence[Payout]:
        found = [
            each
            for each in self._payouts.values()
            if owner in (None, each.owner) and state in (None, each.state) and batch in (None, each.batch)
        ]
        return sorted(found, key=lambda each: (-each.asked_at, each.id))[:limit]

    async def due(self, now: int, limit: int) -> Sequence[Payout]:
        found = [(each.errand.due, each.id, each) for each in self._payouts.values() if each.errand is not None]
        return [each for due, _, each in sorted(found, key=lambda row: row[:2]) if due <= now][:limit]

    async def unsettled(self, rail: str, limit: int) -> Sequence[Payout]:
        found = [each for each in self._payouts.values() if each.state is State.SENT and each.rail == rail]
        return sorted(found, key=lambda each: (each.sent_at or 0, each.id))[:limit]

    async def balance(self, owner: AccountId) -> Balance:
        return await self._ledger.balance(owner)

    async def destination(self, owner: AccountId, rail: str) -> str | None:
        return self._destinations.get((owner, rail))

    async def set_destination(self, owner: AccountId, rail: str, destination: str, at: int) -> None:
        self._destinations[owner, rail] = destination

    async def seen(self, event: str) -> bool:
        return event in self._events

    async def note_event(self, event: str, at: int) -> None:
        self._events.setdefault(event, at)


def not_enough(payable: Nano) -> InsufficientFunds:
    return InsufficientFunds(f"Only ${dollars(payable)} can be paid out at present.", param="amount")


def no_such_payout() -> NotFound:
    return NotFound("There is no payout with this id.")
