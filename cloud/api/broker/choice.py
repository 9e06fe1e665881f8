"""Which node is asked next, and why a node is not."""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from cloud.api.broker.node import Node
from cloud.api.market.pricebook import WHOLE
from cloud.api.market.reasons import ask_too_high, probation
from cloud.api.market.state import Market
from cloud.api.market.surplus import Candidate, pick
from shared.ids import AccountId, ModelName
from shared.wire.messages import DemandReason


def choose(nodes: Iterable[Node], fingerprint: str, good_share: float, rng: random.Random) -> Node | None:
    """A free node with this tokenizer: of the good ones the least loaded, by chance among equals; none if none is.

    Good are those with at least `good_share` of the best score. Poor ones count only when no other is free.
    """
    free = [node for node in nodes if node.available and node.offers(fingerprint)]
    free = [node for node in free if node.poor is None] or free
    if not free:
        return None
    best = max(node.score for node in free)
    good = [node for node in free if node.score >= best * good_share]
    lightest = min(node.load for node in good)
    return rng.choice([node for node in good if node.load == lightest])


def trade(
    nodes: Iterable[Node],
    fingerprint: str,
    model: ModelName,
    market: Market,
    streams: Mapping[AccountId | None, int],
    *,
    k: int,
    canary: bool,
    rng: random.Random,
) -> Node | None:
    """The same where drafts are paid: by expected surplus, among those that this minute's price serves.

    A node on probation is asked first for a canary stream, and for others where no proven one is free. A node that
    asks more than the price, or that nobody could be paid for, is not asked.

    Args:
        nodes: of any tokenizer.
        fingerprint: the target's.
        model: the target's name.
        market: prices, asks and reputations.
        streams: that each owner's nodes draft for now.
        k: draft tokens that a verification takes.
        canary: the stream is one that nodes are tried with.
        rng: chance among equals.
    """
    free = {node.node: node for node in nodes if node.available and node.offers(fingerprint)}
    paid, tried = market.able(free, model)
    first = market.spot(model).served
    served = [name for name in paid if name in first] or paid
    served = [name for name in served if free[name].poor is None] or served
    trials = [Candidate(name, market.traders[name].owner, 1.0, free[name].load) for name in tried]
    candidates = [
        Candidate(name, market.traders[name].owner, market.surplus(name, model, k), free[name].load) for name in served
    ]
    settings = market.settings
    for group in (trials, candidates) if canary else (candidates, trials):
        if chosen := pick(group, streams, cap=settings.owner_cap, good_share=settings.good_share, rng=rng):
            return free[chosen]
    return None


def held_by_owner(nodes: Iterable[Node], market: Market) -> Counter[AccountId | None]:
    """Streams that each owner's nodes draft for."""
    held: Counter[AccountId | None] = Counter()
    for node in nodes:
        if node.open:
            held[market.traders[node.node].owner] += len(node.open)
    return held


def market_demand(node: Node, targets: Mapping[ModelName, str], market: Market) -> tuple[DemandReason, str]:
    """`demand` and `explain` where drafts are paid; `targets`: fingerprints of the attached targets by name."""
    reason = demand(node, targets.values())
    if reason not in (DemandReason.NO_DEMAND, DemandReason.SERVING):
        return reason, explain(node, reason)
    matching = [model for model, fingerprint in targets.items() if node.offers(fingerprint)]
    objections = {model: market.objection(node.node, model) for model in matching}
    if not objections or (reason is DemandReason.SERVING and None in objections.values()):
        return reason, ""
    for model, objection in objections.items():
        if objection is None:
            others = market.floor(model).streams
            return (DemandReason.OUTRANKED if others and not node.open else reason), ""
    model, objection = next(iter(objections.items()))
    if objection is DemandReason.ASK_TOO_HIGH:
        return objection, ask_too_high(market.ask(node.node), market.spot(model).price)
    if objection is DemandReason.PROBATION:
        reputation = market.reputation(node.node, model)
        gain = reputation.gain / reputation.trials if reputation.trials else 0.0
        least, needed = market.settings.least_yield / WHOLE, market.settings.prove_tokens
        return objection, probation(reputation.compared_tokens, needed, gain, least)
    return objection or reason, ""


def demand(node: Node, fingerprints: Collection[str]) -> DemandReason:
    """What to tell the node about its work; `fingerprints` are those of the attached targets."""
    if node.holding or node.draining:
        return DemandReason.HOLDING
    if fingerprints and not any(map(node.offers, fingerprints)):
        return DemandReason.NO_MATCHING_MODEL
    if node.poor is not None:
        return node.poor
    return DemandReason.SERVING if node.open else DemandReason.NO_DEMAND


def explain(node: Node, reason: DemandReason) -> str:
    """Words for the node's owner where the reason alone does not say what to do."""
    settings = node.settings
    match reason:
        case DemandReason.LOW_ACCEPTANCE:
            return (
                f"The target model agrees with about {node.record.acceptance:.0%} of this node's drafted tokens. Below "
                f"{settings.acceptance_floor:.0%} a node gets work only when no other is free. Check its draft model "
                "and the precision that it runs in."
            )
        case DemandReason.TOO_SLOW:
            return (
                f"Half of this node's drafts took more than {settings.max_hold_ms:.0f} ms. Such a node gets work only "
                "when no other is free. Check its network and what else its machine does."
            )
        case _:
            return ""
