"""The end of a connection, when both directions notice it at once."""

import asyncio
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError

from desktop.agent.connection import _carry, _Refused
from desktop.agent.outbox import Outbox
from shared.wire import codec
from shared.wire.messages import Challenge, Drain, Hello, ModelOffer, Proof, Refuse, Welcome
from shared.wire.session import NodeSession


class ClosingSocket:
    """A connection that the gateway has closed: sending fails, and what it said before can still be read."""

    def __init__(self, unread: list[bytes], slow: int) -> None:
        self._unread = unread
        self._slow = slow

    async def recv(self) -> bytes:
        for _ in range(self._slow):
            await asyncio.sleep(0)
        if not self._unread:
            raise ConnectionClosedError(None, None)
        return self._unread.pop(0)

    async def send(self, frame: bytes) -> None:
        raise ConnectionClosedError(None, None)


class Deaf:
    """Hears everything, does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def welcomed() -> NodeSession:
    session = NodeSession()
    offer = ModelOffer(name="m", fingerprint="f", vocabulary=10)
    session.send(Hello(versions=(1,), key=bytes(32), engine="e", models=(offer,), streams=1))
    session.receive(codec.encode(Challenge(version=1, nonce=bytes(32), cloud="g")))
    session.send(Proof(signature=bytes(64)))
    session.receive(codec.encode(Welcome(node="n", beat_s=5.0, frame_limit=65536)))
    return session


@pytest.mark.parametrize("slow", range(4))
async def test_a_refusal_is_not_lost_when_sending_fails_first(slow: int) -> None:
    """The reason lies unread while the writer finds the connection closed: it is what the owner must be told."""
    refuse = Refuse(code="limit_exceeded", message="Too many invalid drafts.")
    outbox = Outbox()
    outbox.put(Drain())
    socket: Any = ClosingSocket([codec.encode(refuse)], slow)
    listener: Any = Deaf()
    with pytest.raises(_Refused) as caught:
        await _carry(socket, welcomed(), listener, outbox)
    assert caught.value.refuse == refuse


async def test_a_connection_that_closes_without_a_word_has_broken_off() -> None:
    """The reader comes to the end as well."""
    outbox = Outbox()
    outbox.put(Drain())
    socket: Any = ClosingSocket([], 2)
    listener: Any = Deaf()
    with pytest.raises(ConnectionClosedError):
        await _carry(socket, welcomed(), listener, outbox)
