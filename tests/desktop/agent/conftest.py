"""Fixtures of the agent's tests: a clean configuration, a cloud to connect to, and workers without processes."""

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from desktop.agent.agent import Agent
from desktop.agent.identity import load_identity
from desktop.agent.ports import DraftWorker, Loaded
from desktop.agent.report import LogFormat, make_log
from shared.errors import EngineError, NexusError
from shared.keys import node_id, verify_proof
from shared.sampling import Sampling
from shared.wire.events import Ignored
from shared.wire.limits import Limits
from shared.wire.messages import (
    Advance,
    Close,
    CloudMessage,
    Draft,
    Hello,
    ModelOffer,
    NodeMessage,
    Open,
    Proof,
    Welcome,
)
from shared.wire.session import CloudSession

M = TypeVar("M", bound=NodeMessage)


class Node:
    """One connected node, as the cloud sees it."""

    def __init__(self, socket: ServerConnection, session: CloudSession) -> None:
        self.socket = socket
        self.session = session
        self.inbox: asyncio.Queue[NodeMessage] = asyncio.Queue()
        self.gone = asyncio.Event()

    async def send(self, message: CloudMessage) -> None:
        await self.socket.send(self.session.send(message))

    async def open(self, stream: str, *tokens: int) -> None:
        await self.send(
            Open(
                stream=stream,
                model="target",
                fingerprint=self.session.hello.models[0].fingerprint,
                tokens=tokens,
                sampling=Sampling(),
                seed=None,
                k=4,
                ahead=8,
            )
        )

    async def advance(self, stream: str, epoch: int, pos: int, *tokens: int) -> None:
        await self.send(Advance(stream=stream, epoch=epoch, pos=pos, tokens=tokens))

    async def close(self, stream: str) -> None:
        await self.send(Close(stream=stream, reason="finished"))

    async def next(self, kind: type[M], where: Callable[[M], bool] = lambda _: True) -> M:
        """The next message of this kind that fits; what came before it is dropped."""
        while True:
            message = await self.inbox.get()
            if isinstance(message, kind) and where(message):
                return message

    async def drafts(self, *streams: str) -> dict[str, Draft]:
        """The first draft of each stream."""
        found: dict[str, Draft] = {}
        while set(found) != set(streams):
            draft = await self.next(Draft)
            found.setdefault(draft.stream, draft)
        return found


class Gateway:
    """Accepts nodes until it is stopped. `refuse` turns every `Hello` away; `mute` never answers one."""

    def __init__(self, beat_s: float = 60.0) -> None:
        self.nodes: asyncio.Queue[Node] = asyncio.Queue()
        self.hellos: list[Hello] = []
        self.refuse: NexusError | None = None
        self.mute = False
        self.beat_s = beat_s
        self.port = 0
        self._server: Server | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/nodes/connect"

    async def start(self) -> None:
        """Listen; a second time on the same port as the first."""
        self._server = await serve(self._serve, "127.0.0.1", self.port, compression=None, close_timeout=1)
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        """Cut every connection and stop listening."""
        if self._server is not None:
            for connection in list(self._server.connections):
                connection.transport.abort()
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, socket: ServerConnection) -> None:
        session = CloudSession(cloud_id="test", nonce=os.urandom(32))
        node = Node(socket, session)
        try:
            await self._prove(node)
            await self.nodes.put(node)
            while True:
                message = session.receive(await socket.recv(decode=False))
                if not isinstance(message, Ignored):
                    await node.inbox.put(message)
        except NexusError as error:
            refusal = session.refusal(error)
            await socket.send(refusal.frame)
            await socket.close(refusal.close_code, refusal.reason)
        except ConnectionClosed:
            pass
        finally:
            node.gone.set()

    async def _prove(self, node: Node) -> None:
        session, socket = node.session, node.socket
        hello = session.receive(await socket.recv(decode=False))
        assert isinstance(hello, Hello)
        self.hellos.append(hello)
        if self.mute:
            await socket.wait_closed()
        if self.refuse is not None:
            raise self.refuse
        await node.send(session.challenge())
        proof = session.receive(await socket.recv(decode=False))
        assert isinstance(proof, Proof)
        verify_proof(hello.key, proof.signature, session.nonce, session.cloud_id, session.hello_bytes)
        await node.send(Welcome(node=node_id(hello.key), beat_s=self.beat_s, frame_limit=Limits().node_frame))


class LocalWorker:
    """A draft worker without a process: guesses that tokens count upwards."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.ends: dict[str, int] = {}
        self.ready = asyncio.Event()
        self.ready.set()
        self.start_error: NexusError | None = None
        self.stopped = False
        self._out: asyncio.Queue[Draft | EngineError] = asyncio.Queue()

    async def start(self) -> Loaded:
        await self.ready.wait()
        if self.start_error is not None:
            raise self.start_error
        return Loaded("counting 1", (ModelOffer(name="counter", fingerprint="f" * 64, vocabulary=1000),), 5)

    async def drafts(self) -> AsyncIterator[Draft]:
        while True:
            item = await self._out.get()
            if isinstance(item, EngineError):
                raise item
            yield item

    def open(self, message: Open) -> None:
        self.calls.append(("open", message.stream))
        self._guess(message.stream, 0, len(message.tokens), message.tokens[-1])

    def advance(self, message: Advance) -> None:
        self.calls.append(("advance", message.stream))
        self._guess(message.stream, message.epoch + 1, message.pos + len(message.tokens), message.tokens[-1])

    def close(self, stream: str) -> None:
        self.calls.append(("close", stream))

    def stop_all(self) -> None:
        self.calls.append(("stop_all", ""))

    async def stop(self, grace_s: float) -> None:
        self.stopped = True

    def crash(self) -> None:
        self._out.put_nowait(EngineError("it fell over"))

    def guess(self, draft: Draft) -> None:
        self._out.put_nowait(draft)

    def _guess(self, stream: str, epoch: int, pos: int, last: int) -> None:
        self.guess(Draft(stream=stream, epoch=epoch, pos=pos, tokens=tuple(range(last + 1, last + 5))))


class Workers:
    """Makes `LocalWorker`s and hands out each as it is made; `prepare` changes one before it starts."""

    def __init__(self) -> None:
        self.made: asyncio.Queue[LocalWorker] = asyncio.Queue()
        self.all: list[LocalWorker] = []
        self.prepare: Callable[[LocalWorker], None] = lambda worker: None

    def __call__(self) -> LocalWorker:
        worker = LocalWorker()
        self.prepare(worker)
        self.all.append(worker)
        self.made.put_nowait(worker)
        return worker


class Fixed:
    """Back-off of one length, counting its use."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.used = 0

    def next(self) -> float:
        self.used += 1
        return self.seconds

    def reset(self) -> None:
        pass


class Said(io.StringIO):
    """JSON log lines, to look things up in and to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def write(self, text: str) -> int:
        self._changed.set()
        return super().write(text)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines() if line]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    async def wait_for(self, event: str, count: int = 1) -> dict[str, Any]:
        """The line of the `count`th such event."""
        while len(found := self.of(event)) < count:
            self._changed.clear()
            await self._changed.wait()
        return found[count - 1]


class Running:
    """An agent in a task of this test."""

    def __init__(self, agent: Agent, said: Said, link_delays: Fixed) -> None:
        self.agent = agent
        self.said = said
        self.link_delays = link_delays
        self.task = asyncio.create_task(agent.run())

    async def stop(self) -> None:
        self.agent.stop()
        await self.task


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that has all of a model but its weights: 1,000 tokens."""
    folder = tmp_path / "counter"
    folder.mkdir()
    vocabulary = {f"t{number}": number for number in range(1000)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordLevel", "vocab": vocabulary}}))
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """A listening cloud."""
    it = Gateway()
    await it.start()
    try:
        yield it
    finally:
        await it.stop()


@pytest.fixture
async def start(tmp_path: Path, gateway: Gateway, workers: Workers) -> AsyncIterator[Callable[..., Running]]:
    """Starts an agent against `gateway`; it is stopped after the test."""
    running: list[Running] = []

    def start(
        make_worker: Callable[[], DraftWorker] | None = None,
        *,
        limits: Limits | None = None,
        retry_s: float = 0.0,
    ) -> Running:
        said = Said()
        link_delays = Fixed(retry_s)
        agent = Agent(
            gateways=(gateway.url,),
            identity=load_identity(tmp_path / "node.key"),
            make_worker=make_worker or workers,
            describe="counter with counting",
            log=make_log(LogFormat.JSON, stream=said, verbose=True),
            worker_delays=Fixed(),
            link_delays=link_delays,
            limits=limits,
            grace_s=5.0,
        )
        running.append(Running(agent, said, link_delays))
        return running[-1]

    yield start
    for one in running:
        one.agent.stop()
    await asyncio.gather(*(one.task for one in running), return_exceptions=True)


@pytest.fixture(autouse=True)
def own_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty configuration folder, and no NEXUS_AGENT_* variable."""
    for name in list(os.environ):
        if name.upper().startswith("NEXUS_AGENT_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "config"
    folder.mkdir()
    monkeypatch.setenv("NEXUS_CONFIG_DIR", str(folder))
    return folder
