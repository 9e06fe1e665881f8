"""Knows every paired node in memory, and hears within a second of those that are paired or revoked."""

import time
from collections.abc import Callable

from cloud.api.identity.node import Node, NodeState, refusal
from cloud.api.identity.ports import IdentityStore, NodeChanges
from cloud.api.store.following import Following
from shared.errors import NexusError, NodeUnpaired
from shared.ids import AccountId, NodeId


class NodeRing:
    """Asking about a known node costs no read. With `pairing_needed` a node that is paired with no account is refused.

    `on_revoked` is told of each node that is revoked while the gateway runs, on the event loop; it must not block.
    `monotonic` measures how old the knowledge is.
    """

    def __init__(
        self, store: IdentityStore, *, pairing_needed: bool = False, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.on_revoked: Callable[[NodeId, NexusError], None] = lambda node, error: None
        self._pairing_needed = pairing_needed
        self._nodes: dict[NodeId, Node] = {}
        silent = "nodes cannot be read; what is known stays in force"
        self._following = Following(store.node_changes, self._take, silent, monotonic)

    def owner(self, node: NodeId) -> AccountId | None:
        """Whose the node is; none when it is paired with nobody, or was revoked."""
        found = self._nodes.get(node)
        return found.owner if found is not None and found.state is NodeState.PAIRED else None

    def find(self, node: NodeId) -> Node | None:
        """What is known of a node, revoked ones too."""
        return self._nodes.get(node)

    def refusal(self, node: NodeId) -> NexusError | None:
        """Why this node may not be connected, by what is known now."""
        found = self._nodes.get(node)
        if found is not None:
            return refusal(found)
        if self._pairing_needed:
            return NodeUnpaired(
                "This gateway takes only nodes that belong to an account. Run `nexus agent pair` on this machine."
            )
        return None

    async def check(self, node: NodeId) -> NexusError | None:
        """As `refusal`; where that depends on a node that is unknown, the store is asked first."""
        if self._pairing_needed and node not in self._nodes:
            await self._following.look()
        return self.refusal(node)

    async def refresh(self) -> None:
        """Ask the store now. Raises `Unavailable` when it does not answer."""
        await self._following.refresh()

    async def run(self) -> None:
        """Keep up with the store until cancelled."""
        await self._following.run()

    def _take(self, changes: NodeChanges) -> None:
        self._nodes.update(changes.nodes)
        for node in changes.nodes.values():
            if error := refusal(node):
                self.on_revoked(node.id, error)
