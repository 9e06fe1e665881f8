"""Listening in on the draft port: nothing is lost on the way, and steps are counted once."""

import asyncio
import tempfile

from support.played_gateway import PlayedGateway

from bench.tap import Steps, tapped
from cloud.verifier.drafts.stream import LOOKUP
from cloud.verifier.port.server import PortServer
from shared.draftport.messages import PROTOCOL, Attached, Closed, Counts, Opened, PortDraft, Verified
from shared.sampling import Sampling

ABOUT = Attached(
    verifier="v1",
    protocol=PROTOCOL,
    model="m",
    fingerprint="f",
    vocabulary=99,
    max_model_len=64,
    k=4,
    rank=0,
    counts=Counts(),
)
NODE = "ab" * 32


def verified(stream: str, pos: int, *tokens: int, step: int, drafted: int = 0, source: str | None = None) -> Verified:
    return Verified(
        stream=stream,
        pos=pos,
        tokens=tokens,
        drafted=drafted,
        accepted=len(tokens) - 1,
        source=source,
        baseline=0,
        step=step,
        step_ms=100.0 + step,
    )


def test_a_step_of_several_streams_counts_once() -> None:
    """Its tokens count for each; the steps that computed a prompt are apart."""
    steps = Steps()
    steps.add(verified("a", 2, 10, step=1), True)
    steps.add(verified("a", 3, 11, 12, 13, step=2, drafted=4, source=NODE), False)
    steps.add(verified("b", 2, 20, 21, step=2, drafted=1, source=LOOKUP), False)
    steps.add(verified("a", 6, 14, step=3, drafted=2, source=NODE), False)
    assert steps.decoding() == (2, 102.0 + 103.0, 6)
    assert steps.profile() == {3: [103.0], 7: [102.0]}
    assert (steps.drafted, steps.lookup_drafted, steps.lookup_accepted) == (7, 1, 1)
    assert (steps.depth_drafted, steps.depth_accepted) == ([2, 2, 1, 1], [1, 1])


async def test_the_tap_passes_on_both_ways_and_listens() -> None:
    """A real port on one side, a gateway on the other."""
    with tempfile.TemporaryDirectory(prefix="nx") as folder:
        port = PortServer(f"ipc://{folder}/p", ABOUT)
        port.counts = Counts(steps=3)
        try:
            async with tapped(f"ipc://{folder}/p", f"ipc://{folder}/tap") as tap:
                await asyncio.to_thread(talk, port, f"ipc://{folder}/tap")
                assert tap.counts.steps == 3
                steps = tap.take()
                assert steps.opening == {7}
                assert (steps.tokens, steps.step_ms) == (3, {7: 107.0, 8: 108.0})
                assert tap.take().tokens == 0
        finally:
            port.close()


def talk(port: PortServer, address: str) -> None:
    """One stream's life, as the scheduler and a gateway see it."""
    with PlayedGateway(address, name="g") as gateway:
        gateway.rule = lambda stream, tokens: [("t", len(tokens), [1])]
        port.opened("s", "g")
        opened = Opened(
            stream="s", tokens=(1, 2), prompt=2, sampling=Sampling(), seed=None, max_tokens=9, draftable=True
        )
        port.publish("g", opened)
        port.publish("g", verified("s", 2, 10, step=7))
        port.publish("g", verified("s", 3, 11, 12, step=8, drafted=2, source=NODE))
        port.publish("g", Closed(stream="s", reason="stop"))
        gateway.until_closed("s")
        drafts: list[PortDraft] = []
        while len(drafts) < 3:
            port.mailbox.wait(5)
            letters = [letter.message for letter in port.mailbox.drain()]
            drafts += [message for message in letters if isinstance(message, PortDraft)]
        assert [draft.pos for draft in drafts] == [2, 3, 5]
