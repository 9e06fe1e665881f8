"""A node that belongs to an account: paired by its key, until it is revoked."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from shared.errors import Conflict, Forbidden, NexusError, NodeRevoked
from shared.ids import AccountId, NodeId

NAME_MAX: Final = 100


class NodeState(StrEnum):
    """Whether the node's key may connect."""

    PAIRED = "paired"
    REVOKED = "revoked"
    """For good: a key that was revoked is never paired again."""


class NodeEvent(StrEnum):
    """What its owner or an operator does to it."""

    PAIR = "pair"
    REVOKE = "revoke"


_S, _E = NodeState, NodeEvent

TRANSITIONS: Final[dict[tuple[NodeState | None, NodeEvent], NodeState]] = {
    (None, _E.PAIR): _S.PAIRED,
    (_S.PAIRED, _E.PAIR): _S.PAIRED,
    (_S.PAIRED, _E.REVOKE): _S.REVOKED,
}
"""Every legal step; None: the key is not known yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """Times in seconds since 1970."""

    id: NodeId
    public_key: bytes
    """Ed25519, 32 bytes."""
    owner: AccountId
    name: str
    state: NodeState = NodeState.PAIRED
    paired_at: int
    revoked_at: int | None = None


def pair(node: Node | None, new: Node) -> Node:
    """What the node is after its key was paired. Raises `Forbidden` for a key of another account or a revoked one."""
    if (None if node is None else node.state, NodeEvent.PAIR) not in TRANSITIONS:
        raise Forbidden("This node's key has been revoked and is never paired again. " + NEW_KEY)
    if node is not None and node.owner != new.owner:
        raise Forbidden("This node's key belongs to another account. " + NEW_KEY)
    return new if node is None else replace(node, name=new.name)


def revoke(node: Node, now: float) -> Node:
    """Raises `Conflict` when it is revoked already."""
    after = TRANSITIONS.get((node.state, NodeEvent.REVOKE))
    if after is None:
        raise Conflict("This node has been revoked already.")
    return replace(node, state=after, revoked_at=int(now))


def refusal(node: Node) -> NexusError | None:
    """Why the node may not connect, in words for its owner."""
    if node.state is NodeState.REVOKED:
        return NodeRevoked(f"This node's key was revoked by its owner or by the operator. {NEW_KEY}")
    return None


NEW_KEY: Final = "Move the node's key file away and run `nexus agent pair`: it makes a new key."
