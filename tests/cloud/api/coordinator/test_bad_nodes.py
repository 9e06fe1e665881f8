"""Nodes that waste time, over real WebSockets: what the client gets does not change, and they end refused.

The verifier is scripted: it commits the target's token at each position, which depends on the position alone, and
checks one drafted token against it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from cloud.api.coordinator import Coordinator
from shared.draftport.messages import PortDraft
from shared.ids import StreamId
from shared.keys import NodeKey
from shared.wire import codec
from shared.wire.messages import Beat, Demand, DemandReason, Draft, Hold, HoldReason, Open, Refuse, Resume, Welcome

PROMPT = (1, 2, 3)
LENGTH = 40
STREAMS = 12
FATES = ("drafts_forwarded", "drafts_late", "drafts_stale", "drafts_invalid", "drafts_excess", "drafts_unassigned")
Strategy = Callable[["Bad", int], Awaitable[None]]
"""(node, position): what it sends before the target commits the token at that position."""


def target(pos: int) -> int:
    return 10 + pos * 7 % 50


class Refused(Exception):
    """The gateway turned the node away."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__(refuse.message)
        self.refuse = refuse


class Bad:
    """A node that keeps to no rule but those of its own session; it reads what comes without acting on it."""

    def __init__(self, world: Any, gateway: Coordinator) -> None:
        self.world, self.gateway = world, gateway
        self.key = NodeKey.generate()
        self.stream = ""
        self.epoch = 0
        self.sent = 0

    async def join(self) -> "Bad":
        self.node = await self.world.node(self.key)
        await self.node.hello()
        await self.node.prove()
        match await self.next():
            case Refuse() as refuse:
                raise Refused(refuse)
            case Welcome():
                return self
        raise AssertionError("neither in nor out")

    async def opened(self) -> None:
        """Wait for the stream, or for the refusal."""
        while True:
            match await self.next():
                case Refuse() as refuse:
                    raise Refused(refuse)
                case Open(stream=stream):
                    self.stream, self.epoch = stream, 0
                    return

    async def next(self) -> Any:
        async with asyncio.timeout(20):
            return codec.decode_cloud_message(await self.node.socket.recv(), 1 << 23)

    async def raw(self, *messages: Any) -> None:
        try:
            for message in messages:
                await self.node.socket.send(codec.encode(message))
        except ConnectionClosed:
            await self.refused()

    async def refused(self) -> None:
        """Read to the end; the last words are the refusal."""
        while True:
            if isinstance(message := await self.next(), Refuse):
                raise Refused(message)

    async def draft(self, pos: int, *tokens: int, anew: bool = True) -> None:
        """Send a draft and wait until the gateway has dealt with it."""
        self.epoch += anew
        await self.raw(Draft(stream=self.stream, epoch=self.epoch, pos=pos, tokens=tokens))
        self.sent += 1
        await self.world.until(lambda: self.dealt_with() >= self.sent or not self.gateway.broker.nodes)
        if not self.gateway.broker.nodes:
            await self.refused()

    def dealt_with(self) -> int:
        counts = self.gateway.snapshot()
        return int(sum(counts[fate] for fate in FATES))

    async def again(self) -> None:
        """Leave and come back with the same key, in time for the stream to be opened again."""
        await self.node.socket.close()
        await self.world.until(lambda: not self.gateway.broker.nodes)
        await self.join()
        await self.opened()


async def wrong_tokens(node: Bad, pos: int) -> None:
    await node.draft(pos, 99, 98)


async def outside_the_vocabulary(node: Bad, pos: int) -> None:
    await node.draft(pos, 100)


async def wrong_positions(node: Bad, pos: int) -> None:
    await node.draft(pos + 1_000, target(pos))


async def shifted(node: Bad, pos: int) -> None:
    await node.draft(pos, *map(target, range(pos + 1, pos + 5)))


async def replays(node: Bad, pos: int) -> None:
    for _ in range(40):
        await node.draft(3, target(3), target(4), anew=False)


async def floods(node: Bad, pos: int) -> None:
    for _ in range(60):
        await node.draft(pos, target(pos), target(pos + 1))


async def anothers_stream(node: Bad, pos: int) -> None:
    await node.raw(Draft(stream="another~1", epoch=0, pos=pos, tokens=(5,)))
    try:
        await node.refused()
    except Refused as refused:
        if refused.refuse.code != "protocol_error":
            raise
    await node.again()


async def pauses(node: Bad, pos: int) -> None:
    await node.raw(Hold(reason=HoldReason.INPUT), Resume())
    await node.opened()


async def connects(node: Bad, pos: int) -> None:
    await node.again()


STRATEGIES: dict[Strategy, str] = {
    wrong_tokens: "agreed with only",
    outside_the_vocabulary: "invalid",
    wrong_positions: "invalid",
    shifted: "agreed with only",
    replays: "more drafts",
    floods: "more drafts",
    anothers_stream: "invalid",
    pauses: "paused",
    connects: "connected too often",
}


class Target:
    """Plays the verifier of one answer after the other."""

    def __init__(self, world: Any, port: Any, gateway: Coordinator) -> None:
        self.until: Callable[[Callable[[], bool]], Awaitable[None]] = world.until
        self.port, self.gateway = port, gateway
        self.name = ""
        self.pos = 0
        self.tokens: list[int] = []
        self.drafts: dict[int, tuple[str, int]] = {}

    async def open(self, name: str) -> None:
        self.name, self.pos, self.tokens, self.drafts = name, len(PROMPT), [], {}
        self.handle = self.gateway.register(StreamId(name))
        await self.port.open(name)
        await self.until(lambda: StreamId(name) in self.gateway.broker.streams)

    async def step(self) -> None:
        while not self.port.inbox.empty():
            message = self.port.inbox.get_nowait()
            if isinstance(message, PortDraft) and message.stream == self.name:
                assert all(0 <= token < 100 for token in message.tokens)
                self.drafts |= {message.pos + i: (message.tape, token) for i, token in enumerate(message.tokens)}
        token = target(self.pos)
        tape, guess = self.drafts.get(self.pos, (None, -1))
        await self.port.verify(self.name, self.pos, (token,), int(tape is not None), int(guess == token), tape)
        self.pos += 1
        self.tokens.append(token)
        await self.until(lambda: len(self.gateway.broker.streams[StreamId(self.name)].tokens) == self.pos)

    async def finish(self) -> None:
        await self.port.finish(self.name)
        assert await self.handle.closed(20)
        assert self.handle.figures().output_tokens == len(self.tokens) == LENGTH
        self.handle.release()


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.__name__)
async def test_every_strategy_ends_refused_and_no_answer_changes(world: Any, strategy: Strategy) -> None:
    """Whatever it sends, each answer has all its tokens; the key stays out when it connects again."""
    port = await world.port()
    gateway = await world.gateway(port, refusal_min_checked=60, stream_misses=30)
    bad = await Bad(world, gateway).join()
    verifier = Target(world, port, gateway)
    refused: Refuse | None = None
    for number in range(STREAMS):
        await verifier.open(f"s{number}")
        try:
            if refused is None:
                await bad.opened()
        except Refused as why:
            refused = why.refuse
        for _ in range(LENGTH):
            try:
                if refused is None:
                    await strategy(bad, verifier.pos)
            except Refused as why:
                refused = why.refuse
            await verifier.step()
        await verifier.finish()
        if refused is not None and number >= 1:
            break
    assert refused is not None and refused.code == "rate_limit_exceeded"
    assert STRATEGIES[strategy] in refused.message
    node = await world.node(bad.key)
    await node.hello()
    await node.prove()
    assert STRATEGIES[strategy] in (await node.next(Refuse)).message
    assert await node.end() == 4005
    assert gateway.failures == 0


async def test_a_poor_node_is_told_and_an_honest_one_gets_its_stream(world: Any) -> None:
    """Before anything is refused, and in mid-answer."""
    port = await world.port()
    gateway = await world.gateway(port, acceptance_min_checked=10, acceptance_floor=0.3)
    bad = await Bad(world, gateway).join()
    verifier = Target(world, port, gateway)
    await verifier.open("s")
    await bad.opened()
    for _ in range(LENGTH // 2):
        await wrong_tokens(bad, verifier.pos)
        await verifier.step()
    while not isinstance(told := await bad.next(), Demand) or told.reason is not DemandReason.LOW_ACCEPTANCE:
        pass
    assert "draft model" in told.message
    good = await (await world.node()).join()
    assert (await good.next(Open)).tokens == (*PROMPT, *verifier.tokens)
    assert gateway.snapshot()["nodes_poor"] == 1 and gateway.snapshot()["nodes_demoted"] == 1
    while verifier.pos < len(PROMPT) + LENGTH:
        await verifier.step()
    await verifier.finish()


async def test_a_node_that_sends_too_fast_is_read_slower_and_then_turned_away(world: Any) -> None:
    """Other nodes are served all the while."""
    gateway = await world.gateway(
        await world.port(),
        nodes={"frames_per_s": 1.0, "frames_per_stream_s": 0.0, "frames_burst_s": 20.0, "throttled_s": 0.1},
    )
    good = await (await world.node()).join()
    bad = await (await world.node()).join()
    with contextlib.suppress(ConnectionClosed):
        for number in range(1_000_000):
            await bad.send(Beat(seq=number))
    assert "faster than 1 a second" in (await bad.next(Refuse)).message
    assert set(gateway.broker.nodes) == {good.id}
    assert gateway.snapshot()["drafts_invalid"] == 1, "remembered against its key"
