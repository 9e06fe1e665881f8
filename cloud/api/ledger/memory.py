"""Keeps the books in this process only, for gateways without a database."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.money import Nano
from cloud.api.ledger.audit import Audit
from cloud.api.ledger.events import Entry, Event, EventIds, Kind
from cloud.api.ledger.places import Place, account_of, available, of_account, pending, reserved
from cloud.api.ledger.ports import Batch, SettleHook, Written
from cloud.api.ledger.posting import DAY_S, Extract, Posting
from cloud.api.ledger.reservations import Reservation, State
from shared.ids import AccountId

EVENTS_KEPT = 100_000
"""Latest events that can be looked at, and that are known when they are told again; the sums are of all."""


class MemoryBooks:
    """`Books`. Charges are written to `accounts`. `hooks` get no connection."""

    def __init__(
        self,
        accounts: MemoryAccounts,
        hooks: Sequence[SettleHook[None]] = (),
        *,
        hold_days: int = 7,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._accounts = accounts
        self._hooks = tuple(hooks)
        self._hold_days = hold_days
        self._clock = clock
        self._new_id = EventIds()
        self._turn = asyncio.Lock()
        self._events: dict[str, Event] = {}
        self._balances: Counter[Place] = Counter()
        self._forgotten: Counter[Place] = Counter()
        """Sums of the postings of events that are no longer kept."""
        self._reservations: dict[str, Reservation] = {}
        self._maturing: Counter[tuple[AccountId, int]] = Counter()

    async def write(self, batch: Batch) -> Written:
        async with self._turn:
            posting = self._posting(batch)
            refused = {r.request_id for r in batch.reservations if not posting.reserve(r)}
            for release in batch.releases:
                posting.release(release.request_id)
            for settlement in batch.settlements:
                posting.settle(settlement)
            await self._store(posting)
            spending = await self._accounts.record([settlement.charge for settlement in batch.settlements])
            known = {account: Nano(self._balances[available(account)]) for account in batch.customers}
            return Written(frozenset(refused), known, spending)

    async def post(self, entry: Entry) -> Event:
        async with self._turn:
            if entry.key in self._events:
                return self._events[entry.key].told_again(entry)
            posting = self._posting()
            event = posting.post(entry)
            if event is None:
                raise AssertionError("the key is new")
            await self._store(posting)
            return event

    async def renew(self, requests: Sequence[str], until: int) -> None:
        for name in requests:
            if (found := self._reservations.get(name)) is not None:
                self._reservations[name] = replace(found, expires_at=until)

    async def expire(self, limit: int) -> int:
        now = int(self._clock())
        due = [r for r in self._reservations.values() if r.state is State.HELD and r.expires_at <= now][:limit]
        await self.write(Batch(releases=due))
        return len(due)

    async def mature(self, limit: int) -> int:
        async with self._turn:
            posting = self._posting()
            today = int(self._clock()) // DAY_S
            due = [(place, amount) for place, amount in self._maturing.items() if place[1] <= today][:limit]
            for (owner, day), amount in due:
                posting.mature(owner, amount)
                del self._maturing[owner, day]
            await self._store(posting)
            return len(due)

    async def balances(self, accounts: Sequence[AccountId] | None = None) -> Mapping[Place, Nano]:
        wanted = None if accounts is None else {place for account in accounts for place in of_account(account)}
        return {p: Nano(amount) for p, amount in self._balances.items() if wanted is None or p in wanted}

    async def events(
        self, *, account: AccountId | None = None, kind: Kind | None = None, limit: int = 100
    ) -> Sequence[Event]:
        def fits(event: Event) -> bool:
            mine = account is None or any(account_of(place) == account for place in event.entry.postings)
            return mine and (kind is None or event.entry.kind == kind)

        return [event for event in reversed(self._events.values()) if fits(event)][:limit]

    async def all_events(self) -> AsyncIterator[Event]:
        for event in list(self._events.values()):
            yield event

    async def audit(self) -> Audit:
        sums = Counter(self._forgotten)
        for event in self._events.values():
            for place, amount in event.entry.postings.items():
                sums[place] += amount
        open_ = [r for r in self._reservations.values() if r.state is State.HELD]
        held: Counter[Place] = Counter()
        for each in open_:
            held[reserved(each.account)] += each.amount
        maturing: Counter[Place] = Counter()
        for (owner, _), earned in self._maturing.items():
            maturing[pending(owner)] += earned
        unbalanced = {e.id: total for e in self._events.values() if (total := sum(e.entry.postings.values()))}
        return Audit(
            events=len(self._events),
            postings=sum(len(event.entry.postings) for event in self._events.values()),
            unbalanced=unbalanced,
            sums=sums,
            cached=Counter(self._balances),
            held=held,
            maturing=maturing,
            overdue=sum(r.expires_at <= self._clock() for r in open_),
        )

    def _posting(self, batch: Batch | None = None) -> Posting:
        """Works on copies: what is not stored has not happened."""
        batch = batch or Batch()
        reservations = {name: self._reservations[name] for name in batch.requests & self._reservations.keys()}
        extract = Extract(Counter(self._balances), reservations, batch.keys & self._events.keys())
        return Posting(extract, at=int(self._clock()), new_id=self._new_id, hold_days=self._hold_days)

    async def _store(self, posting: Posting) -> None:
        for hook in self._hooks:
            await hook.write(None, posting.posted)
        for event in posting.events:
            self._events[event.entry.key] = event
        for place, amount in posting.moves.items():
            self._balances[place] += amount
        self._reservations |= posting.changed
        self._maturing.update(posting.maturing)
        self._forget()

    def _forget(self) -> None:
        while len(self._events) > EVENTS_KEPT:
            event = self._events.pop(next(iter(self._events)))
            for place, amount in event.entry.postings.items():
                self._forgotten[place] += amount
        while len(self._reservations) > EVENTS_KEPT:
            first = next(iter(self._reservations))
            if self._reservations[first].state is State.HELD:
                return
            del self._reservations[first]
