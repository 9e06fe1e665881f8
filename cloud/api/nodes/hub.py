"""All connected nodes: what they say becomes broker events, the broker's commands become messages."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import assert_never

import structlog
from starlette.websockets import WebSocket

from cloud.api.accounts.money import Pico
from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.nodes.aliases import Aliases
from cloud.api.nodes.connection import NodeConnection
from cloud.api.nodes.register import Everybody, Register
from cloud.api.nodes.settings import NodeSettings
from shared.errors import LimitExceeded, LocalMisuse, NexusError, Unavailable
from shared.ids import AccountId, GatewayId, NodeId
from shared.wire.messages import (
    Advance,
    Beat,
    Close,
    Demand,
    Draft,
    Drain,
    Hello,
    Hold,
    ModelOffer,
    NodeMessage,
    Open,
    Proof,
    Resume,
)

MOST_JOULES = 1e15
"""A reading beyond this is no reading."""
PICO_PER_NANO = 1_000

_log = structlog.get_logger("nexus.nodes")


@dataclass(slots=True)
class NodeCounts:
    """Since the gateway started."""

    connections: int = 0
    drafts_after_close: int = 0
    """Drafts for a stream that was closed while they were on the way."""


class NodeHub:
    """The endpoint `/v1/nodes/connect` and the connections behind it.

    `mismatch` says why a node with these models can draft for nothing here, or none; `owner` whose a node is that has
    proved its key, or none while it is not paired.
    """

    def __init__(
        self,
        gateway: GatewayId,
        settings: NodeSettings,
        on_event: Callable[[ev.NodeEvent], None],
        mismatch: Callable[[Iterable[ModelOffer]], NexusError | None],
        owner: Callable[[NodeId], AccountId | None] = lambda _: None,
    ) -> None:
        self.counts = NodeCounts()
        self._gateway = gateway
        self._settings = settings
        self._on_event = on_event
        self._mismatch = mismatch
        self._owner = owner
        self._open: set[NodeConnection] = set()
        """All sockets, those in their handshake included."""
        self._nodes: dict[NodeId, NodeConnection] = {}
        self._aliases: dict[NodeConnection, Aliases] = {}
        self._stopping = False
        self._register: Register = Everybody()

    def guard(self, register: Register) -> None:
        """From now on `register` says which nodes may be connected, and ends the connections of those that may not."""
        self._register = register
        self._owner = register.owner
        register.on_revoked = self._turn_away

    def _turn_away(self, node: NodeId, error: NexusError) -> None:
        if (connection := self._nodes.get(node)) is not None:
            connection.refuse(error)

    async def node_endpoint(self, websocket: WebSocket) -> None:
        """Serve one node until its connection ends."""
        await websocket.accept()
        connection = NodeConnection(websocket, self._gateway, self._settings, self)
        self.counts.connections += 1
        if self._stopping:
            connection.refuse(Unavailable("The gateway is stopping. Connect again later."))
        elif len(self._open) >= self._settings.max_nodes:
            connection.refuse(Unavailable("The gateway serves no more nodes at once. Connect again later."))
        self._open.add(connection)
        try:
            await connection.serve()
        finally:
            self._open.discard(connection)

    def stop(self) -> None:
        """Turn every node away, now and from now on; the endpoints end by themselves."""
        self._stopping = True
        for connection in list(self._open):
            connection.refuse(Unavailable("The gateway is stopping. Connect again later."))

    def send(self, command: do.NodeCommand) -> None:
        """Carry out a command of the broker; one for a node that is gone has no effect."""
        connection = self._nodes.get(command.node)
        if connection is None:
            return
        try:
            self._carry_out(command, connection)
        except LocalMisuse as error:
            _log.error("nodes.command_failed", node=command.node, command=type(command).__name__, error=str(error))
            connection.refuse(error)

    def _carry_out(self, command: do.NodeCommand, connection: NodeConnection) -> None:
        aliases = self._aliases[connection]
        match command:
            case do.OpenStream():
                connection.send(
                    Open(
                        stream=aliases.open(command.stream),
                        model=command.model,
                        fingerprint=command.fingerprint,
                        tokens=command.tokens,
                        sampling=command.sampling,
                        seed=command.seed,
                        k=command.k,
                        ahead=command.ahead,
                        candidates=command.candidates,
                    )
                )
            case do.AdvanceStream(_, stream, epoch, pos, tokens):
                connection.send(Advance(stream=aliases.name(stream), epoch=epoch, pos=pos, tokens=tokens))
            case do.CloseStream(_, stream, reason, receipt):
                connection.send(Close(stream=aliases.close(stream), reason=reason, receipt=receipt))
            case do.SendDemand(_, reason, message):
                connection.send(Demand(reason=reason, message=message))
            case do.RejectNode(node, error):
                del self._nodes[node]
                connection.refuse(error)
            case _:
                assert_never(command)

    # --- the connection's listener -------------------------------------------------------------

    def greeted(self, hello: Hello) -> None:
        if error := self._mismatch(hello.models):
            raise error

    async def proved(self, node: NodeId) -> None:
        if error := await self._register.check(node):
            raise error

    def joined(self, connection: NodeConnection) -> None:
        # Nothing is awaited from here to `_nodes`, so that no revocation comes in between.
        if error := self._register.refusal(connection.node):
            raise error
        older = self._nodes.get(connection.node)
        if older is not None:
            older.refuse(
                LimitExceeded(
                    "This node's key connected again, and the newer connection replaces this one. "
                    "If that was another machine, give each its own key."
                )
            )
        self._nodes[connection.node] = connection
        self._aliases[connection] = Aliases()
        hello = connection.hello
        _log.info("nodes.joined", node=connection.node, engine=hello.engine, streams=hello.streams)
        ask = None if hello.ask is None else Pico(max(hello.ask, 0) * PICO_PER_NANO)
        self._on_event(
            ev.NodeJoined(connection.node, hello.models, hello.streams, owner=self._owner(connection.node), ask=ask)
        )

    def left(self, connection: NodeConnection) -> None:
        self._aliases.pop(connection, None)
        if self._nodes.get(connection.node) is connection:
            del self._nodes[connection.node]
            _log.info("nodes.left", node=connection.node)
            self._on_event(ev.NodeLeft(connection.node))

    def broke(self, connection: NodeConnection) -> None:
        if self._nodes.get(connection.node) is connection:
            self._on_event(ev.NodeBroke(connection.node))

    def beat(self, connection: NodeConnection, beat: Beat) -> None:
        if self._nodes.get(connection.node) is connection and beat.energy is not None:
            self._on_event(ev.NodeBeat(connection.node, beat.energy if 0 <= beat.energy < MOST_JOULES else None))

    def ignored(self, connection: NodeConnection) -> None:
        self.counts.drafts_after_close += 1

    def received(self, connection: NodeConnection, message: NodeMessage) -> None:
        node = connection.node
        if self._nodes.get(node) is not connection:
            return
        match message:
            case Draft(stream=alias, epoch=epoch, pos=pos, tokens=tokens, candidate=candidate):
                stream = self._aliases[connection].stream(alias)
                if stream is None:
                    self.counts.drafts_after_close += 1
                else:
                    self._on_event(ev.NodeDraft(node, stream, epoch, pos, tokens, candidate))
            case Hold(reason=reason):
                self._on_event(ev.NodeHeld(node, reason))
            case Resume():
                self._on_event(ev.NodeResumed(node))
            case Drain():
                self._on_event(ev.NodeDraining(node))
            case Hello() | Proof() | Beat():
                pass
            case _:
                assert_never(message)
