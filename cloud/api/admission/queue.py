"""A queue that is fair between keys: whoever has had less goes first, whatever the number and size of requests.

Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): of two keys that always have something waiting, neither gets
ahead of the other by more than the cost of one request of each. Pure: no clock, no I/O.
"""

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

KEPT = 1024
"""Keys whose past is remembered although nothing of theirs waits, before those that no longer matter are dropped."""
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Entry(Generic[T]):
    """Something that waits; `cost` is its share of the service, at least 1."""

    key: Hashable
    cost: int
    item: T
    waiting: bool = True


class FairQueue(Generic[T]):
    """First in, first out for each key."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, OrderedDict[Entry[T], None]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        """Virtual start of each waiting key's first entry, order of arrival, key."""
        self._finish: dict[Hashable, int] = {}
        """Virtual time up to which a key has been served."""
        self._virtual = 0
        self._order = itertools.count()
        self._costs: dict[Hashable, int] = {}
        """Of what waits, by key."""
        self._length = 0
        self.cost = 0
        """Of everything that waits."""

    def __len__(self) -> int:
        return self._length

    def push(self, key: Hashable, cost: int, item: T) -> Entry[T]:
        entry = Entry(key, max(cost, 1), item)
        self._length += 1
        self.cost += entry.cost
        self._costs[key] = self._costs.get(key, 0) + entry.cost
        if key in self._queues:
            self._queues[key][entry] = None
        else:
            self._queues[key] = OrderedDict({entry: None})
            self._enter(key, max(self._virtual, self._finish.get(key, 0)))
        return entry

    def first(self) -> Entry[T] | None:
        """The next to go."""
        while self._heap:
            key = self._heap[0][2]
            if queue := self._queues[key]:
                return next(iter(queue))
            heapq.heappop(self._heap)
            del self._queues[key]
        return None

    def pop(self) -> Entry[T]:
        """Take the next one out. Raises `IndexError` when nothing waits."""
        entry = self.first()
        if entry is None:
            raise IndexError("nothing waits")
        start, _, key = heapq.heappop(self._heap)
        self._virtual = start
        self._finish[key] = start + entry.cost
        self._forget(entry)
        if self._queues[key]:
            self._enter(key, self._finish[key])
        else:
            del self._queues[key]
        if len(self._finish) > KEPT + len(self._queues):
            self._finish = {k: at for k, at in self._finish.items() if at > self._virtual}
        return entry

    def greediest(self) -> Entry[T] | None:
        """The newest entry of the key that has most waiting: the one to give up when there are too many."""
        if not self._costs:
            return None
        key = max(self._costs, key=self._costs.__getitem__)
        return next(reversed(self._queues[key]))

    def remove(self, entry: Entry[T]) -> None:
        """It has left without being served, which costs its key nothing. A second time changes nothing."""
        if entry.waiting:
            self._forget(entry)

    def _enter(self, key: Hashable, start: int) -> None:
        heapq.heappush(self._heap, (start, next(self._order), key))

    def _forget(self, entry: Entry[T]) -> None:
        entry.waiting = False
        del self._queues[entry.key][entry]
        self._length -= 1
        self.cost -= entry.cost
        self._costs[entry.key] -= entry.cost
        if not self._costs[entry.key]:
            del self._costs[entry.key]
