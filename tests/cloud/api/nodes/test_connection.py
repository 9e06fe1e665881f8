"""A node's connection on a scripted socket: what needs no network."""

import asyncio
from typing import Any, cast

from starlette.websockets import WebSocket, WebSocketState

from cloud.api.nodes.connection import TURN, NodeConnection
from cloud.api.nodes.settings import NodeSettings
from shared.ids import GatewayId, NodeId
from shared.keys import NodeKey, proof_payload
from shared.wire.messages import Beat, Challenge, Hello, ModelOffer, NodeMessage, Proof
from shared.wire.session import NodeSession


class Flooder:
    """A socket on which `beats` frames lie ready as soon as the handshake is over, and then the end."""

    application_state = WebSocketState.CONNECTED

    def __init__(self, beats: int) -> None:
        self.key = NodeKey.generate()
        self.session = NodeSession()
        self.beats = beats
        self.taken = 0
        self.challenged = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self.session.state == "connecting":
            offer = ModelOffer(name="small", fingerprint="f", vocabulary=10)
            return self._frame(Hello(versions=(1,), key=self.key.public, engine="e", models=(offer,), streams=1))
        if self.session.state != "open":
            await self.challenged.wait()
        if self.session.state == "challenged":
            challenge = self.session.challenge
            payload = proof_payload(challenge.nonce, challenge.cloud, self.session.hello_bytes)
            return self._frame(Proof(signature=self.key.sign(payload)))
        while self.session.state != "open":  # noqa: ASYNC110 - the session has no event
            await asyncio.sleep(0)
        if self.taken == self.beats:
            return {"type": "websocket.disconnect"}
        self.taken += 1
        return self._frame(Beat(seq=self.taken))

    async def send_bytes(self, frame: bytes) -> None:
        if isinstance(self.session.receive(frame), Challenge):
            self.challenged.set()

    def _frame(self, message: NodeMessage) -> dict[str, Any]:
        return {"type": "websocket.receive", "bytes": self.session.send(message)}


class Nobody:
    """A listener that does nothing."""

    def greeted(self, hello: Hello) -> None: ...
    async def proved(self, node: NodeId) -> None: ...
    def joined(self, connection: NodeConnection) -> None: ...
    def received(self, connection: NodeConnection, message: NodeMessage) -> None: ...
    def ignored(self, connection: NodeConnection) -> None: ...

    def beat(self, connection: NodeConnection, beat: Beat) -> None: ...
    def left(self, connection: NodeConnection) -> None: ...


async def test_a_node_that_floods_does_not_stop_the_gateway() -> None:
    """Frames that lie ready are read without waiting, so the reader itself must give others their turn."""
    flooder = Flooder(beats=100 * TURN)
    connection = NodeConnection(cast(WebSocket, flooder), GatewayId("g"), NodeSettings(), Nobody())
    serving = asyncio.create_task(connection.serve())
    most, before = 0, 0
    while not serving.done():
        most, before = max(most, flooder.taken - before), flooder.taken
        await asyncio.sleep(0)
    await serving
    assert flooder.taken == 100 * TURN
    assert most <= TURN
