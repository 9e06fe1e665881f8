"""Knows every paired node in memory, and hears within a second of those that are paired or revoked."""

import asyncio
import time
from collections.abc import Callable

import structlog

from cloud.api.identity.node import Node, NodeState, refusal
from cloud.api.identity.ports import IdentityStore
from shared.errors import NexusError, NodeUnpaired
from shared.ids import AccountId, NodeId

POLL_S = 0.5
"""How often the store is asked what has changed."""
UNKNOWN_S = 0.05
"""Shortest time between two such questions when an unknown node connects."""

log = structlog.get_logger(__name__)


class NodeRing:
    """Asking about a known node costs no read. With `pairing_needed` a node that is paired with no account is refused.

    `on_revoked` is told of each node that is revoked while the gateway runs, on the event loop; it must not block.
    `monotonic` measures how old the knowledge is.
    """

    def __init__(
        self, store: IdentityStore, *, pairing_needed: bool = False, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.on_revoked: Callable[[NodeId, NexusError], None] = lambda node, error: None
        self._store = store
        self._pairing_needed = pairing_needed
        self._nodes: dict[NodeId, Node] = {}
        self._revision = 0
        self._monotonic = monotonic
        self._asked = float("-inf")
        self._turn = asyncio.Lock()
        self._silent = False

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
            await self._look(self._monotonic())
        return self.refusal(node)

    async def refresh(self) -> None:
        """Ask the store now. Raises `Unavailable` when it does not answer."""
        async with self._turn:
            await self._ask()

    async def run(self) -> None:
        """Keep up with the store until cancelled."""
        while True:
            async with self._turn:
                await self._hear()
            await asyncio.sleep(POLL_S)

    async def _look(self, since: float) -> None:
        """Ask what has changed unless somebody asked after `since`. Many who wait here cost one read."""
        async with self._turn:
            if self._asked < since:
                await asyncio.sleep(max(self._asked + UNKNOWN_S - self._monotonic(), 0))
                await self._hear()

    async def _hear(self) -> None:
        """As `refresh`, but goes on with what is known when the store is silent."""
        try:
            await self._ask()
        except Exception as error:  # whatever it is, the next look may do
            if not self._silent:
                unforeseen = None if isinstance(error, NexusError) else error
                log.warning("nodes cannot be read; what is known stays in force", exc_info=unforeseen)
            self._silent = True
            self._asked = self._monotonic()

    async def _ask(self) -> None:
        began = self._monotonic()
        changes = await self._store.node_changes(self._revision)
        self._nodes.update(changes.nodes)
        self._revision = max(self._revision, changes.revision)
        self._asked = began
        self._silent = False
        for node in changes.nodes.values():
            if error := refusal(node):
                self.on_revoked(node.id, error)
