"""Which node a stream is given: the highest expected surplus a second, with chance among the good ones and owner caps.

Rates and surpluses only rank nodes. Nothing is paid by them, so they are floats where money never is.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud.api.accounts.money import Pico
from cloud.api.market.pricebook import WHOLE
from shared.ids import AccountId, NodeId


def accepted_per_step(acceptance: float, k: int) -> float:
    """Expected accepted tokens of a draft of k: a + a² + … + a^k (Leviathan et al. 2023, without the bonus token)."""
    return sum(acceptance**place for place in range(1, k + 1))


def accepted_per_s(acceptance: float, k: int, step_s: float, response_s: float, baseline: float = 0.0) -> float:
    """Expected marginal tokens a second that a node gives one stream.

    A draft of k breaks off somewhere with probability 1 - a^k; the next is then a response time away, and meanwhile
    the stream stands still or goes on without drafts, which comes to the same.

    Args:
        acceptance: chance that a token is accepted, given that those before it were.
        k: tokens of a draft.
        step_s: seconds of a step.
        response_s: from a divergence until the node's next draft is there: round trip and drafting.
        baseline: tokens a step that prompt lookup would have had accepted.
    """
    gain = max(accepted_per_step(acceptance, k) - baseline, 0.0)
    return gain / (step_s + (1.0 - acceptance**k) * response_s)


def surplus_per_s(value: Pico, ask: Pico, rate: float) -> float:
    """Pico-dollars a second that a stream gains by the node; not positive where the node asks more than it gives."""
    return (value - ask) * rate


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node with a free place for the stream in question."""

    node: NodeId
    owner: AccountId | None
    surplus: float
    """Pico-dollars a second."""
    load: float
    """Part of its places that is taken."""


def pick(
    candidates: Sequence[Candidate],
    streams: Mapping[AccountId | None, int],
    *,
    cap: int,
    good_share: float,
    rng: random.Random,
) -> NodeId | None:
    """The node to ask; none where everybody asks more than a token is worth.

    Good are candidates with at least `good_share` of the best surplus. Among them an owner is drawn first, so that
    several keys get one no more than one key does; then the least loaded of that owner's nodes. An owner who holds
    more than `cap` of all drafted streams gives way while a good node of another one is free.

    Args:
        candidates: nodes with a free place.
        streams: drafted streams of each owner now.
        cap: basis points.
        good_share: from 0 to 1.
        rng: chance among equals.
    """
    worthwhile = [each for each in candidates if each.surplus >= 0]
    if not worthwhile:
        return None
    best = max(each.surplus for each in worthwhile)
    good = [each for each in worthwhile if each.surplus >= best * good_share]
    below = [each for each in good if within_cap(each.owner, streams, cap)]
    others = [each for each in worthwhile if within_cap(each.owner, streams, cap)]
    if len({each.owner for each in worthwhile}) > 1:
        good = below or others or good
    owners = sorted({each.owner or "" for each in good})
    owner = rng.choice(owners)
    mine = [each for each in good if (each.owner or "") == owner]
    lightest = min(each.load for each in mine)
    return rng.choice(sorted(each.node for each in mine if each.load == lightest))


def within_cap(owner: AccountId | None, streams: Mapping[AccountId | None, int], cap: int) -> bool:
    """Whether one more stream leaves the owner at or under `cap` basis points of all."""
    total = sum(Counter(streams).values()) + 1
    return (streams.get(owner, 0) + 1) * WHOLE <= cap * total or streams.get(owner, 0) == 0
