"""What the node endpoint needs to know of who nodes belong to; `cloud.api.identity.ring` is the one in use."""

from collections.abc import Callable
from typing import Protocol

from shared.errors import NexusError
from shared.ids import AccountId, NodeId


class Register(Protocol):
    """Which nodes may be connected."""

    on_revoked: Callable[[NodeId, NexusError], None]
    """Called on the event loop with each node that may no longer be connected."""

    async def check(self, node: NodeId) -> NexusError | None:
        """Why a node that has proved its key may not connect; none if it may."""
        ...

    def refusal(self, node: NodeId) -> NexusError | None:
        """The same by what is known now, without waiting."""
        ...

    def owner(self, node: NodeId) -> AccountId | None:
        """Who is paid for the node's work, by what is known now; none when it is paired with no account."""
        ...


class Everybody:
    """Every node may be connected."""

    def __init__(self) -> None:
        self.on_revoked: Callable[[NodeId, NexusError], None] = lambda node, error: None

    async def check(self, node: NodeId) -> NexusError | None:
        return None

    def refusal(self, node: NodeId) -> NexusError | None:
        return None

    def owner(self, node: NodeId) -> AccountId | None:
        return None
