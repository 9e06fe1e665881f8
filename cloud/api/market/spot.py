"""The price of a minute: one for all nodes that are served, set by the best ask that is not, capped by the value.

A node's own ask decides whether it is served and never what it is then paid, so asking one's true cost is the best
strategy. That holds only if the node that sets the price gives up its place (trade reduction, McAfee 1992): the
cheapest nodes that together carry the demand are taken, and the dearest of them sets the price for the others and is
itself asked only when all of them are full. An owner with much of the supply can still raise the price by offering
less, as in any uniform auction (Ausubel & Cramton 2002), up to the value and no further.
"""

import random
from collections.abc import Sequence
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
    """A minute's price. Who asks more than `price` is not asked in it."""

    price: Pico
    value: Pico
    """Of a token: the cap."""
    served: frozenset[NodeId] = field(default_factory=frozenset)
    """Nodes that are asked first."""
    setter: NodeId | None = None
    """The node whose ask is the price; none where the demand takes all there are, and the price is the value."""


def clear(offers: Sequence[Offer], demand: int, value: Pico) -> Spot:
    """The price where `demand` streams want a node at once.

    Cheapest asks come first, equal ones in the order given; offers above the value never are.
    """
    taken: list[Offer] = []
    carried = 0
    for offer in sorted(offers, key=lambda o: o.ask):
        if offer.ask > value or carried >= demand:
            break
        taken.append(offer)
        carried += offer.streams
    if carried < demand or not taken:
        return Spot(value, value, frozenset(offer.node for offer in taken))
    setter = taken.pop()
    return Spot(setter.ask, value, frozenset(offer.node for offer in taken), setter.node)


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
