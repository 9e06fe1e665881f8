"""The price of a minute: one for all nodes that are served, set by the best ask that is not, capped by the value.

A node's own ask decides whether it is served and never what it is paid, so asking one's true cost is the best strategy
(the uniform-price form of Vickrey 1961; Ausubel & Cramton 2002 for why capacity is counted in whole nodes here: a node
that is served in part sets nobody's price, its own least of all).
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cloud.api.accounts.money import Pico
from shared.ids import AccountId, NodeId


@dataclass(frozen=True, slots=True)
class Offer:
    """A node that would draft: what it asks for one marginal token, and for how many streams at once."""

    node: NodeId
    owner: AccountId | None
    ask: Pico
    streams: int


@dataclass(frozen=True, slots=True)
class Spot:
    """A minute's price. Who asks more than `price` is not served in it."""

    price: Pico
    value: Pico
    """Of a token: the cap."""
    served: Mapping[NodeId, int] = field(default_factory=dict)
    """Streams of each node that the demand comes to, cheapest first."""
    best_unserved: Pico | None = None

    @property
    def capped(self) -> bool:
        return self.best_unserved is None or self.best_unserved > self.value


def clear(offers: Sequence[Offer], demand: int, value: Pico) -> Spot:
    """The price of `demand` streams at once.

    Cheapest asks are served first, equal ones in the order given; offers above the value never are. The price is the
    lowest ask of a node that gets nothing, or the value where every node within it gets something.
    """
    within = sorted((o for o in offers if o.ask <= value and o.streams > 0), key=lambda o: o.ask)
    served: dict[NodeId, int] = {}
    left = demand
    best_unserved: Pico | None = None
    for offer in within:
        if left <= 0:
            best_unserved = offer.ask
            break
        served[offer.node] = min(offer.streams, left)
        left -= served[offer.node]
    if best_unserved is None:
        beyond = [o.ask for o in offers if o.ask > value and o.streams > 0]
        best_unserved = Pico(min(beyond)) if beyond else None
    price = value if best_unserved is None else min(best_unserved, value)
    return Spot(Pico(price), value, served, best_unserved)


def by_turns(offers: Sequence[Offer], rng: random.Random) -> list[Offer]:
    """In an order by chance in which each owner has a turn before any has a second one: many keys win no more ties
    than one does."""
    by_owner: dict[AccountId | None, list[Offer]] = {}
    for offer in sorted(offers, key=lambda o: o.node):
        by_owner.setdefault(offer.owner, []).append(offer)
    queues = [by_owner[owner] for owner in sorted(by_owner, key=str)]
    for queue in queues:
        rng.shuffle(queue)
        queue.sort(key=lambda o: o.ask)
    rng.shuffle(queues)
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]
