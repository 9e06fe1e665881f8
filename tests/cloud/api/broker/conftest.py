"""A broker with a hand-turned clock, and short names for the events that tests send."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud.api.accounts.money import Pico
from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.broker.broker import Broker
from cloud.api.broker.policy import StreamPolicy
from cloud.api.broker.settings import BrokerSettings
from cloud.api.market.state import Market
from shared.ids import AccountId, ModelName, NodeId, StreamId, TapeId, VerifierId
from shared.sampling import Sampling
from shared.wire.messages import HoldReason, ModelOffer

FP = "a" * 64
PROMPT = (1, 2, 3)
TRACES = Path(__file__).parents[4] / "bench/data/traces.jsonl"


class Play:
    """Sends events to a broker; every call returns the commands that it caused, all of them are kept in `log`."""

    def __init__(
        self, seed: int = 0, *, expected_verifiers: int = 1, market: Market | None = None, **settings: Any
    ) -> None:
        self.broker = Broker(
            BrokerSettings(**settings), random.Random(seed), expected_verifiers=expected_verifiers, market=market
        )
        self.now = 100.0
        self.log: list[do.Command] = []

    def send(self, event: ev.Event) -> list[do.Command]:
        out = self.broker.handle(event, self.now)
        self.log += out
        return out

    def verifier(self, endpoint: str = "v", fingerprint: str = FP, k: int = 8) -> list[do.Command]:
        return self.send(
            ev.VerifierAttached(endpoint, VerifierId(f"id-{endpoint}"), ModelName("big"), fingerprint, 100, 4096, k)
        )

    def join(self, node: str, streams: int = 4, fingerprint: str = FP, vocabulary: int = 100) -> list[do.Command]:
        offer = ModelOffer(name="small", fingerprint=fingerprint, vocabulary=vocabulary)
        return self.send(ev.NodeJoined(NodeId(node), (offer,), streams, AccountId(f"acct_{node}"), Pico(0)))

    def leave(self, node: str) -> list[do.Command]:
        return self.send(ev.NodeLeft(NodeId(node)))

    def hold(self, node: str) -> list[do.Command]:
        return self.send(ev.NodeHeld(NodeId(node), HoldReason.INPUT))

    def resume(self, node: str) -> list[do.Command]:
        return self.send(ev.NodeResumed(NodeId(node)))

    def register(self, stream: str, *, trace: bool = False, shaped: bool = False, **policy: Any) -> None:
        self.send(ev.StreamRegistered(StreamId(stream), StreamPolicy(**policy), trace, shaped))

    def opened(
        self,
        stream: str,
        tokens: tuple[int, ...] = PROMPT,
        *,
        endpoint: str = "v",
        draftable: bool = True,
        prompt: int = len(PROMPT),
    ) -> list[do.Command]:
        return self.send(ev.StreamOpened(endpoint, StreamId(stream), tokens, prompt, Sampling(), 7, draftable))

    def open(self, stream: str, tokens: tuple[int, ...] = PROMPT, **options: Any) -> list[do.Command]:
        self.register(stream, **options)
        return self.opened(stream, tokens)

    def verified(
        self,
        stream: str,
        pos: int,
        tokens: tuple[int, ...],
        drafted: int = 0,
        accepted: int = 0,
        source: str | None = None,
        endpoint: str = "v",
    ) -> list[do.Command]:
        tape = None if source is None else TapeId(source)
        return self.send(ev.StreamVerified(endpoint, StreamId(stream), pos, tokens, drafted, accepted, tape, 0, 1.0))

    def draft(
        self, node: str, stream: str, pos: int, tokens: tuple[int, ...], epoch: int = 0, candidate: int = 0
    ) -> list[do.Command]:
        return self.send(ev.NodeDraft(NodeId(node), StreamId(stream), epoch, pos, tokens, candidate))

    def closed(self, stream: str, endpoint: str = "v") -> list[do.Command]:
        return self.send(ev.StreamClosed(endpoint, StreamId(stream), "finished"))

    def assigned(self, stream: str) -> set[str]:
        return set(self.broker.streams[StreamId(stream)].tapes)


@pytest.fixture
def play() -> Play:
    """One verifier attached, no node."""
    made = Play()
    made.verifier()
    return made


@pytest.fixture
def make_play() -> Callable[..., Play]:
    def make(**settings: Any) -> Play:
        made = Play(**settings)
        made.verifier()
        return made

    return make


@pytest.fixture(scope="session")
def traces() -> list[dict[str, Any]]:
    """Answers of a real target with what a real draft model guessed at each token (bench/traces.py)."""
    return [json.loads(line) for line in TRACES.read_text().splitlines()]
