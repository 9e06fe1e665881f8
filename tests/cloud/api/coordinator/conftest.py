"""A scripted verifier behind a real ROUTER socket, nodes behind real WebSockets, and the coordinator between."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import uvicorn
import zmq
import zmq.asyncio
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from cloud.api.broker.settings import BrokerSettings
from cloud.api.coordinator import Coordinator
from cloud.api.draftport.settings import DraftPortSettings
from cloud.api.nodes.settings import NodeSettings
from shared.draftport.messages import PROTOCOL, Attach, Attached, Closed, Counts, GatewayMessage, Opened, Verified
from shared.keys import NodeKey, proof_payload
from shared.sampling import Sampling
from shared.wire.limits import Limits
from shared.wire.messages import Challenge, Draft, Hello, ModelOffer, Proof, Welcome
from shared.wire.session import Ignored, NodeSession

T = TypeVar("T")
FP = "a" * 64
PROMPT = (1, 2, 3)
PATIENCE_S = 20.0
"""Only bounds a hang: nothing is expected to take a noticeable part of it."""


class FakePort:
    """One rank's draft port. It answers `Attach` while `answering`; the rest is up to the test."""

    def __init__(self, address: str, context: zmq.asyncio.Context) -> None:
        self.address = address
        self.about = Attached(
            verifier="engine-1",
            protocol=PROTOCOL,
            model="big",
            fingerprint=FP,
            vocabulary=100,
            max_model_len=4096,
            k=8,
            rank=0,
            counts=Counts(steps=5),
        )
        self.answering = True
        self.gateway: bytes | None = None
        self.inbox: asyncio.Queue[GatewayMessage] = asyncio.Queue()
        self.socket = context.socket(zmq.ROUTER)

    def start(self) -> "asyncio.Task[None]":
        self.socket.bind(self.address)
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        decode = msgspec.msgpack.Decoder(GatewayMessage).decode
        while True:
            identity, frame = await self.socket.recv_multipart()
            message = decode(frame)
            if not isinstance(message, Attach):
                self.inbox.put_nowait(message)
                continue
            assert identity == message.gateway.encode()
            self.gateway = identity
            if self.answering:
                await self.send(self.about)

    async def send(self, message: Any) -> None:
        await self.send_bytes(msgspec.msgpack.encode(message))

    async def send_bytes(self, frame: bytes) -> None:
        assert self.gateway is not None
        await self.socket.send_multipart([self.gateway, frame])

    async def open(self, stream: str, tokens: tuple[int, ...] = PROMPT) -> None:
        await self.send(
            Opened(
                stream=stream,
                tokens=tokens,
                prompt=len(PROMPT),
                sampling=Sampling(),
                seed=7,
                max_tokens=64,
                draftable=True,
            )
        )

    async def verify(
        self,
        stream: str,
        pos: int,
        tokens: tuple[int, ...],
        drafted: int = 0,
        accepted: int = 0,
        source: str | None = None,
    ) -> None:
        await self.send(
            Verified(
                stream=stream,
                pos=pos,
                tokens=tokens,
                drafted=drafted,
                accepted=accepted,
                source=source,
                baseline=0,
                step=1,
                step_ms=1.0,
            )
        )

    async def finish(self, stream: str) -> None:
        await self.send(Closed(stream=stream, reason="finished"))

    async def next(self, kind: type[T]) -> T:
        """The next message of this kind; others before it are skipped."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self.inbox.get()
                if isinstance(message, kind):
                    return message


class Node:
    """A node's end, spoken by hand."""

    def __init__(self, socket: ClientConnection, key: NodeKey) -> None:
        self.socket = socket
        self.key = key
        self.session = NodeSession()
        self.id = ""

    async def hello(
        self, fingerprint: str = FP, streams: int = 4, versions: tuple[int, ...] = (1,), ask: int | None = None
    ) -> None:
        offer = ModelOffer(name="small", fingerprint=fingerprint, vocabulary=100)
        await self.send(
            Hello(versions=versions, key=self.key.public, engine="test", models=(offer,), streams=streams, ask=ask)
        )

    async def join(self, fingerprint: str = FP, streams: int = 4, ask: int | None = None) -> "Node":
        await self.hello(fingerprint, streams, ask=ask)
        await self.prove()
        self.id = (await self.next(Welcome)).node
        return self

    async def prove(self, cloud: str | None = None) -> None:
        challenge = await self.next(Challenge)
        payload = proof_payload(challenge.nonce, cloud or challenge.cloud, self.session.hello_bytes)
        await self.send(Proof(signature=self.key.sign(payload)))

    async def send(self, message: Any) -> None:
        await self.socket.send(self.session.send(message))

    async def draft(self, stream: str, pos: int, tokens: tuple[int, ...], epoch: int = 0) -> None:
        await self.send(Draft(stream=stream, epoch=epoch, pos=pos, tokens=tokens))

    async def next(self, kind: type[T]) -> T:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                frame = await self.socket.recv()
                assert isinstance(frame, bytes)
                message = self.session.receive(frame)
                assert not isinstance(message, Ignored)
                if isinstance(message, kind):
                    return message

    async def end(self) -> int:
        """Read to the end; gives the close code."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await self.socket.recv()
        assert self.socket.close_code is not None
        return self.socket.close_code


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something becomes true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


class World:
    """What a test plays with; everything it starts ends with it."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.context = zmq.asyncio.Context()
        self.stack = contextlib.AsyncExitStack()
        self.until = until
        self.url = ""

    async def port(self, name: str = "p-0", address: str | None = None, curve: Any = None) -> FakePort:
        port = FakePort(address or f"ipc://{self.tmp_path / name}", self.context)
        if curve is not None:
            curve(port.socket)
        task = port.start()
        self.stack.callback(port.socket.close, linger=0)
        self.stack.callback(task.cancel)
        return port

    async def gateway(self, *ports: FakePort, wait: bool = True, **settings: Any) -> Coordinator:
        """A running coordinator with its endpoint, attached to all ports."""
        limits = settings.pop("limits", Limits())
        nodes = NodeSettings(limits=limits, **settings.pop("nodes", {}))
        coordinator = Coordinator(
            DraftPortSettings(endpoints=tuple(port.address for port in ports), **settings.pop("keys", {})),
            nodes=nodes,
            **{name: settings.pop(name) for name in ("market", "owner", "wall") if name in settings},
            broker=BrokerSettings(**settings),
        )
        await coordinator.start()
        self.stack.push_async_callback(coordinator.stop)
        app = Starlette(routes=[WebSocketRoute("/v1/nodes/connect", coordinator.nodes.node_endpoint)])
        server = uvicorn.Server(
            uvicorn.Config(
                app, port=0, ws="websockets-sansio", log_config=None, lifespan="off", timeout_graceful_shutdown=5
            )
        )
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.create_task(server.serve())

        async def stop() -> None:
            server.should_exit = True
            await serving

        await until(lambda: server.started)
        self.stack.push_async_callback(stop)
        self.stack.callback(coordinator.nodes.stop)
        host, number = server.servers[0].sockets[0].getsockname()[:2]
        self.url = f"ws://{host}:{number}/v1/nodes/connect"
        if wait:
            await until(lambda: len(coordinator.broker.verifiers) == len(ports))
        return coordinator

    async def node(self, key: NodeKey | None = None, **options: Any) -> Node:
        socket = await connect(self.url, compression=None, proxy=None, close_timeout=1, **options)
        self.stack.push_async_callback(socket.close)
        return Node(socket, key or NodeKey.generate())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    try:
        async with made.stack:
            yield made
    finally:
        made.context.destroy(linger=0)
