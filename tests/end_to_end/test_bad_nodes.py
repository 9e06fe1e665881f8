"""Nodes that the gateway turns away, by hand over a real WebSocket, in words and with a close code."""

import re
from typing import Any

import pytest
from support.gateway import Gateway
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from shared.keys import NodeKey
from shared.wire import codec
from shared.wire.messages import Challenge, Hello, ModelOffer, Proof, Refuse

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
