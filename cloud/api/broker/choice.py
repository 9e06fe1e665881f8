"""Which node is asked next, and why a node is not."""

import random
from collections.abc import Collection, Iterable

from cloud.api.broker.node import Node
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
