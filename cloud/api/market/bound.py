"""What nodes get for a request: the price of their marginal tokens, never more than a share of what it cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.money import Nano, Pico
from cloud.api.accounts.prices import Price
from cloud.api.ledger.settlement import NodeShare, NodeWork
from cloud.api.market.pricebook import WHOLE, Rates
from shared.ids import AccountId, NodeId

PICO_PER_NANO = 1_000
UNPAID = "canary"
"""Version that work on trial names: it has no price."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A node's work on a request, with the price of the minute in which it was given the first stream of it."""

    work: NodeWork
    owner: AccountId | None
    price: Pico
    price_version: str


def output_cost(price: Price, charge: Charge) -> Nano:
    """What the customer paid for the output tokens, rounded down: nothing for an answer that failed, and no more than
    was charged where a lost attempt had been paid before."""
    return Nano(min(price.completion * charge.completion_tokens // PICO_PER_NANO, charge.cost))


def most(price: Price, rates: Rates, charge: Charge) -> Nano:
    """The payout bound of a request."""
    return Nano(output_cost(price, charge) * rates.share // WHOLE)


def bounded(due: Sequence[int], most: int) -> list[Nano]:
    """Amounts in proportion to what is due, each rounded down; together at most `most`.

    >>> bounded([30, 10], 100), bounded([30, 10], 21), bounded([5], 0)
    ([30, 10], [15, 5], [0])
    """
    total = sum(due)
    if total <= most:
        return [Nano(amount) for amount in due]
    return [Nano(amount * most // total) for amount in due]


def shares(claims: Iterable[Claim], price: Price, rates: Rates, charge: Charge) -> tuple[NodeShare, ...]:
    """The shares of a settlement: one for each node that has an owner and whose draft was checked."""
    paid = [(claim, claim.owner) for claim in merged(claims) if claim.owner is not None and claim.work.drafted]
    due = [claim.price * claim.work.marginal // PICO_PER_NANO for claim, _ in paid]
    amounts = bounded(due, most(price, rates, charge))
    return tuple(
        NodeShare(work=claim.work, owner=owner, price=claim.price, price_version=claim.price_version, amount=amount)
        for (claim, owner), amount in zip(paid, amounts, strict=True)
    )


def merged(claims: Iterable[Claim]) -> list[Claim]:
    """One for each node, over the choices of a request; the lower price counts where two minutes differ."""
    by_node: dict[NodeId, Claim] = {}
    for claim in claims:
        known = by_node.get(claim.work.node)
        by_node[claim.work.node] = claim if known is None else _both(known, claim)
    return list(by_node.values())


def _both(one: Claim, other: Claim) -> Claim:
    left, right = one.work, other.work
    joules = None if left.joules is None and right.joules is None else (left.joules or 0.0) + (right.joules or 0.0)
    work = NodeWork(
        node=left.node,
        drafted=left.drafted + right.drafted,
        accepted=left.accepted + right.accepted,
        marginal=left.marginal + right.marginal,
        first=min(left.first, right.first),
        last=max(left.last, right.last),
        joules=joules,
    )
    cheaper = one if one.price <= other.price else other
    return replace(cheaper, work=work)
