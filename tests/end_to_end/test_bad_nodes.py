"""Nodes that the gateway turns away, by hand over a real WebSocket, in words and with a close code.

What every strategy does to the broker is tested without an engine in `tests/cloud/api`; here the engine is real.
"""

import asyncio
import contextlib
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.gateway import Gateway, nexus_figures
from support.verifier import PROMPTS, Verifier, complete
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from shared.fingerprint import read_tokenizer
from shared.keys import NodeKey, proof_payload
from shared.wire import codec
from shared.wire.messages import Advance, Beat, Challenge, Draft, Hello, ModelOffer, Open, Proof, Refuse, Welcome

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

WRONG = "0" * 64


def hello(key: NodeKey, **changed: Any) -> Hello:
    offer = ModelOffer(name="other", fingerprint=WRONG, vocabulary=100)
    return Hello(**{"versions": (1,), "key": key.public, "engine": "test", "models": (offer,), "streams": 1, **changed})


async def converse(gateway: Gateway, *frames: bytes) -> tuple[list[Any], int | None]:
    """Sends frames; what came back, and the close code."""
    answers: list[Any] = []
    async with connect(gateway.node_url, compression=None) as socket:
        try:
            for frame in frames:
                await socket.send(frame)
            while True:
                answers.append(codec.decode_cloud_message(await socket.recv(), 1 << 23))
                if isinstance(answers[-1], Challenge):
                    return answers, None
        except ConnectionClosed:
            return answers, socket.close_code


async def test_another_tokenizer_is_refused_with_both_fingerprints(gateway: Gateway) -> None:
    """A node can see what it has and what is wanted."""
    key = NodeKey.generate()
    answers, code = await converse(gateway, codec.encode(hello(key)))
    assert isinstance(answers[-1], Refuse)
    assert answers[-1].code == "tokenizer_mismatch"
    assert WRONG in answers[-1].message
    named = re.findall(r"\b[0-9a-f]{64}\b", answers[-1].message)
    assert len(set(named)) == 2
    assert code == 4004


async def test_another_protocol_version_is_refused(gateway: Gateway) -> None:
    """With the versions of both sides."""
    answers, code = await converse(gateway, codec.encode(hello(NodeKey.generate(), versions=(99,))))
    assert isinstance(answers[-1], Refuse)
    assert answers[-1].code == "version_unsupported"
    assert "99" in answers[-1].message
    assert code == 4001


async def test_an_oversized_frame_closes_the_connection(gateway: Gateway) -> None:
    """Before it is decoded."""
    _, code = await converse(gateway, b"\xc6" + bytes(2 << 20))
    assert code == 1009


async def test_garbage_and_messages_out_of_turn_are_refused(gateway: Gateway) -> None:
    """Not MessagePack; a proof before a challenge."""
    for frame in (b"\xff\xfe", codec.encode(Proof(signature=bytes(64)))):
        answers, code = await converse(gateway, frame)
        assert isinstance(answers[-1], Refuse)
        assert code == 1002


Frames = Iterator[Draft]
Strategy = Callable[[Open, int, int], Frames]
"""(stream, position, number of the answer to the stream so far) -> what to send."""


def wrong_tokens(opened: Open, pos: int, epoch: int) -> Frames:
    """Valid ids, never meant to be right."""
    dice = random.Random(pos)
    yield Draft(stream=opened.stream, epoch=epoch, pos=pos, tokens=tuple(dice.randrange(40_000) for _ in range(4)))


def impossible(opened: Open, pos: int, epoch: int) -> Frames:
    """An id that would index past the embedding, and positions that nobody asked for."""
    yield Draft(stream=opened.stream, epoch=epoch, pos=pos, tokens=(2_000_000_000,))
    yield Draft(stream=opened.stream, epoch=epoch, pos=pos + 5_000, tokens=(5,))
    yield Draft(stream=opened.stream, epoch=epoch, pos=0, tokens=(5,))


def floods(opened: Open, pos: int, epoch: int) -> Frames:
    """Each draft replaces the one before."""
    for more in range(60):
        yield Draft(stream=opened.stream, epoch=epoch * 60 + more, pos=pos, tokens=(5, 6, 7, 8))


def replays(opened: Open, pos: int, epoch: int) -> Frames:
    """The first draft for ever."""
    for _ in range(60):
        yield Draft(stream=opened.stream, epoch=0, pos=len(opened.tokens), tokens=(5, 6, 7, 8))


class BadNode:
    """Joins with the target's own tokenizer and answers each message of the cloud by its strategy."""

    def __init__(self, gateway: Gateway, verifier: Verifier, strategy: Strategy) -> None:
        self.gateway, self.strategy = gateway, strategy
        self.key = NodeKey.generate()
        tokenizer = read_tokenizer(verifier.folder)
        self.offer = ModelOffer(name="bad", fingerprint=tokenizer.fingerprint, vocabulary=tokenizer.vocabulary)
        self.joined = asyncio.Event()

    async def run(self) -> tuple[Refuse, int | None]:
        """Until it is turned away: why, and the close code."""
        streams: dict[str, tuple[Open, int, int]] = {}
        refuse: Refuse | None = None
        beats: asyncio.Task[None] | None = None
        async with connect(self.gateway.node_url, compression=None) as socket:
            try:
                greeting = codec.encode(hello(self.key, models=(self.offer,), streams=4))
                await socket.send(greeting)
                while True:
                    message = codec.decode_cloud_message(await socket.recv(), 1 << 23)
                    match message:
                        case Challenge():
                            signature = self.key.sign(proof_payload(message.nonce, message.cloud, greeting))
                            await socket.send(codec.encode(Proof(signature=signature)))
                        case Welcome():
                            beats = asyncio.create_task(self._beat(socket, message.beat_s))
                            self.joined.set()
                        case Open():
                            streams[message.stream] = message, len(message.tokens), 0
                        case Advance():
                            opened, _, turn = streams[message.stream]
                            streams[message.stream] = opened, message.pos + len(message.tokens), turn + 1
                        case Refuse():
                            refuse = message
                    if isinstance(message, Open | Advance):
                        for draft in self.strategy(*streams[message.stream]):
                            await socket.send(codec.encode(draft))
                        await socket.send(codec.encode(Beat(seq=0)))
            except ConnectionClosed:
                assert refuse is not None, "closed without a word"
                return refuse, socket.close_code
            finally:
                if beats is not None:
                    beats.cancel()

    async def _beat(self, socket: ClientConnection, every_s: float) -> None:
        """It is well behaved otherwise: a silent node would be taken for gone between two answers."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(every_s)
                await socket.send(codec.encode(Beat(seq=0)))


@pytest.mark.parametrize(
    ("strategy", "why"),
    [(wrong_tokens, "agreed with only"), (impossible, "invalid"), (floods, "more drafts"), (replays, "more drafts")],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_bad_node_changes_no_answer_and_is_refused(
    gateway: Gateway, verifier: Verifier, strategy: Strategy, why: str
) -> None:
    """Greedy and sampled answers are the target's own while it drafts; its key stays out when it comes back."""
    node = BadNode(gateway, verifier, strategy)
    running = asyncio.create_task(node.run())
    await asyncio.wait_for(node.joined.wait(), 30)
    bodies: list[dict[str, Any]] = [
        {"temperature": 0, "max_tokens": 160},
        {"temperature": 0.8, "top_p": 0.95, "seed": 7, "max_tokens": 160},
    ]
    seen = 0
    for number, prompt in enumerate(PROMPTS):
        body = bodies[number % 2]
        answer = await asyncio.to_thread(gateway.client.completions.create, model="smollm2-135m", prompt=prompt, **body)
        plain = await asyncio.to_thread(complete, verifier.url, prompt, **body)
        assert answer.choices[0].text == plain["text"], prompt
        seen += nexus_figures(answer)["nodes"] == "any"
        if running.done():
            break
    assert seen, "no prompt was shown to the node"
    refuse, code = await asyncio.wait_for(running, 30)
    assert why in refuse.message
    assert (refuse.code, code) == ("rate_limit_exceeded", 4005)
    again, code = await asyncio.wait_for(node.run(), 30)
    assert why in again.message and code == 4005
