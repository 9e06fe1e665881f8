"""Works out what a batch changes in the books, from what they hold of everything that it concerns. Pure."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cloud.api.accounts.money import Nano
from cloud.api.ledger.entries import mature, moved
from cloud.api.ledger.events import KINDS, Entry, Event, EventId, WrongEntry, check
from cloud.api.ledger.places import (
    HOUSE,
    REVENUE,
    USE,
    Place,
    Sort,
    account_of,
    available,
    pending,
    reserved,
    sort_of,
)
from cloud.api.ledger.reservations import Reservation, State, Step, advance
from cloud.api.ledger.settlement import Settlement
from shared.errors import InsufficientQuota
from shared.ids import AccountId

DAY_S = 86400


def settle_key(request_id: str) -> str:
    return f"settle:{request_id}"


class NotCovered(InsufficientQuota):
    """A place does not hold what an entry would take from it."""


@dataclass(slots=True)
class Extract:
    """What the books hold; kept up to date by the `Posting` that works on it."""

    balances: Counter[Place] = field(default_factory=Counter)
    """Of all customers' and owners' places concerned. The house's are not needed: they have no bound."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    """Keys that are used already."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A settlement under its event, as hooks are told of it; `at` is the event's time."""

    settlement: Settlement
    event_id: EventId
    at: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A settlement that counts, with its event if anything was moved."""

    settlement: Settlement
    event: Event | None


class Posting:
    """Collects changes; `at` in seconds since 1970. Earnings are held until `hold_days` whole days have passed, UTC."""

    def __init__(self, extract: Extract, *, at: int, new_id: Callable[[], EventId], hold_days: int) -> None:
        self._extract = extract
        self._at = at
        self._new_id = new_id
        self._hold_days = hold_days
        self._stored = frozenset(extract.reservations)
        self.events: list[Event] = []
        self.changed: dict[str, Reservation] = {}
        self.maturing: Counter[tuple[AccountId, int]] = Counter()
        """Earnings by owner and the day, counted from 1970, on which they become payable."""
        self.settled: list[Settled] = []

    @property
    def moves(self) -> Counter[Place]:
        """Changes of all balances together."""
        total: Counter[Place] = Counter()
        for event in self.events:
            for place, amount in event.entry.postings.items():
                total[place] += amount
        return total

    def balance(self, place: Place) -> int:
        """As it is with the changes so far."""
        return self._extract.balances[place]

    @property
    def posted(self) -> list[Posted]:
        """Settlements that have an event: those that moved money, or had nodes."""
        return [
            Posted(each.settlement, each.event.id, each.event.at) for each in self.settled if each.event is not None
        ]

    @property
    def new_reservations(self) -> list[Reservation]:
        return [found for name, found in self.changed.items() if name not in self._stored]

    @property
    def old_reservations(self) -> list[Reservation]:
        return [found for name, found in self.changed.items() if name in self._stored]

    def post(self, entry: Entry) -> Event | None:
        """None when its key is used already. Raises `NotCovered` and `WrongEntry`, and changes nothing then."""
        check(entry)
        if entry.key in self._extract.known:
            return None
        self._check_cover(entry)
        for place, amount in entry.postings.items():
            if not place.startswith(HOUSE):
                self._extract.balances[place] += amount
            owner = account_of(place)
            if amount > 0 and owner is not None and sort_of(place) is Sort.PENDING:
                self.maturing[owner, self._at // DAY_S + self._hold_days + 1] += amount
        self._extract.known.add(entry.key)
        event = Event(id=self._new_id(), at=self._at, entry=entry)
        self.events.append(event)
        return event

    def reserve(self, wanted: Reservation) -> bool:
        """Set money aside; false when there is too little, or the request is over. A second time changes nothing."""
        state = self._state(wanted.request_id)
        if advance(state, "reserve") is None:
            return state is State.HELD
        if wanted.amount > self._extract.balances[available(wanted.account)]:
            return False
        if wanted.amount:
            postings = moved(wanted.amount, available(wanted.account), reserved(wanted.account))
            self.post(Entry(key=f"reserve:{wanted.request_id}", kind="reserve", postings=postings))
        self._change(wanted, "reserve")
        return True

    def release(self, request_id: str) -> bool:
        """Give back what was set aside; false when there is nothing any more."""
        held = self._extract.reservations.get(request_id)
        if held is None or advance(held.state, "release") is None:
            return False
        if held.amount:
            postings = moved(held.amount, reserved(held.account), available(held.account))
            self.post(Entry(key=f"release:{request_id}", kind="release", postings=postings))
        self._change(held, "release")
        return True

    def settle(self, settlement: Settlement) -> None:
        """Take what the request cost, give back the rest of its reservation, and credit its nodes' owners. A settlement
        that was told before changes nothing. Raises `WrongEntry`.
        """
        charge, account = settlement.charge, settlement.account
        held = self._extract.reservations.get(charge.request_id)
        state = self._state(charge.request_id)
        if advance(state, "settle") is None or settle_key(charge.request_id) in self._extract.known:
            return
        if held is not None and held.account != account:
            raise WrongEntry(f"{charge.request_id} was reserved by {held.account}, and is settled by {account}.")
        moves: Counter[Place] = Counter()
        if held is not None and state is State.HELD:
            moves[reserved(held.account)] -= held.amount
            moves[available(held.account)] += held.amount
        moves[USE if account is None else available(account)] -= charge.cost
        moves[REVENUE] += charge.cost - settlement.paid_out
        for share in settlement.shares:
            moves[pending(share.owner)] += share.amount
        postings = {place: Nano(amount) for place, amount in moves.items() if amount}
        event = None
        if postings or settlement.shares or held is not None:
            event = self.post(Entry(key=settle_key(charge.request_id), kind="settle", postings=postings))
        if held is not None:
            self._change(held, "settle")
        self.settled.append(Settled(settlement, event))

    def mature(self, owner: AccountId, amount: int) -> Event | None:
        """The hold of `amount` is over. What was taken back meanwhile is taken from what would mature last."""
        ripe = Nano(min(amount, self._extract.balances[pending(owner)]))
        return self.post(mature(owner, ripe, self._new_id())) if ripe > 0 else None

    def _check_cover(self, entry: Entry) -> None:
        rule = KINDS[entry.kind]
        for place, amount in entry.postings.items():
            free = amount > 0 or place.startswith(HOUSE) or sort_of(place) in rule.overdraws
            if not free and self._extract.balances[place] + amount < 0:
                raise NotCovered(f"{place} holds less than that.")

    def _state(self, request_id: str) -> State:
        found = self._extract.reservations.get(request_id)
        if found is not None:
            return found.state
        return State.SETTLED if settle_key(request_id) in self._extract.known else State.UNKNOWN

    def _change(self, reservation: Reservation, step: Step) -> None:
        state = advance(self._state(reservation.request_id), step)
        if state is not None:
            changed = replace(reservation, state=state)
            self._extract.reservations[reservation.request_id] = self.changed[reservation.request_id] = changed
