"""The node endpoint over real WebSockets, with the broker behind it."""

from typing import Any

import msgspec
import pytest

from shared.draftport.messages import DropTape, PortDraft
from shared.ids import NodeId, StreamId
from shared.keys import NodeKey
from shared.wire.limits import Limits
from shared.wire.messages import (
    Advance,
    Beat,
    Challenge,
    Close,
    Demand,
    DemandReason,
    Draft,
    Drain,
    Hello,
    Hold,
    HoldReason,
    Open,
    Receipt,
    Refuse,
    Resume,
)

PROMPT = (1, 2, 3)


async def start(world: Any, gateway: Any, port: Any, stream: str) -> Any:
    handle = gateway.register(StreamId(stream), trace=True)
    await port.open(stream)
    return handle


async def test_a_stream_is_drafted_verified_and_closed(world: Any) -> None:
    """The whole way: open, draft, verified, advance, close with receipt, figures."""
    port = await world.port()
    gateway = await world.gateway(port)
    node = await (await world.node()).join()
    assert (await node.next(Demand)).reason is DemandReason.NO_DEMAND
    handle = await start(world, gateway, port, "s")
    opened = await node.next(Open)
    assert (opened.tokens, opened.model, opened.seed, opened.k, opened.ahead) == (PROMPT, "big", 7, 4, 16)
    await node.draft(opened.stream, 3, (4, 5))
    draft = await port.next(PortDraft)
    assert (draft.stream, draft.tape, draft.tokens) == ("s", node.id, (4, 5))
    await port.verify("s", 3, (4, 9), 2, 1, node.id)
    advance = await node.next(Advance)
    assert (advance.stream, advance.epoch, advance.pos, advance.tokens) == (opened.stream, 0, 3, (4, 9))
    await port.finish("s")
    assert (await node.next(Close)).receipt == Receipt(drafted=2, accepted=1)
    assert await handle.closed(20)
    figures = handle.figures()
    assert figures.origins == ("accepted", "corrected") and figures.node_class == "any"


async def test_a_candidate_reaches_the_verifier_on_a_tape_of_its_own(world: Any) -> None:
    """As many as the gateway asks for; its acceptance is the node's, and its tape goes with the node's."""
    port = await world.port()
    gateway = await world.gateway(port, candidates=2)
    node = await (await world.node()).join()
    await start(world, gateway, port, "s")
    opened = await node.next(Open)
    assert opened.candidates == 2
    await node.draft(opened.stream, 3, (4, 5))
    await node.send(Draft(stream=opened.stream, epoch=0, pos=3, tokens=(4, 9, 8), candidate=1))
    drafts = [await port.next(PortDraft) for _ in range(2)]
    assert [(draft.tape, draft.tokens) for draft in drafts] == [(node.id, (4, 5)), (f"{node.id}/1", (4, 9, 8))]
    await port.verify("s", 3, (4, 9), 2, 1, node.id)
    await port.verify("s", 5, (8, 7), 1, 1, f"{node.id}/1")
    assert [(await node.next(Advance)).tokens for _ in range(2)] == [(4, 9), (8, 7)]
    await node.send(Hold(reason=HoldReason.INPUT))
    assert (await node.next(Close)).receipt == Receipt(drafted=3, accepted=2)
    assert [(await port.next(DropTape)).tape for _ in range(2)] == [node.id, f"{node.id}/1"]


async def test_two_nodes_and_four_streams_get_their_own_drafts(world: Any) -> None:
    """Each draft arrives under its stream and its node's tape."""
    port = await world.port()
    gateway = await world.gateway(port)
    nodes = [await (await world.node()).join(streams=2) for _ in range(2)]
    for stream in "abcd":
        await start(world, gateway, port, stream)
    expected = set()
    for number, node in enumerate(nodes):
        for _ in range(2):
            opened = await node.next(Open)
            stream = opened.stream.split("~")[0]
            token = 10 * number + "abcd".index(stream)
            await node.draft(opened.stream, 3, (token,))
            expected.add((stream, node.id, (token,)))
    drafts = [await port.next(PortDraft) for _ in range(4)]
    assert {(draft.stream, draft.tape, draft.tokens) for draft in drafts} == expected
    assert {stream for stream, _, _ in expected} == set("abcd")


async def test_a_node_that_vanishes_has_its_tape_dropped_and_the_other_takes_over(world: Any) -> None:
    """The socket is cut without a close frame, as by SIGKILL."""
    port = await world.port()
    gateway = await world.gateway(port)
    node = await (await world.node()).join()
    await start(world, gateway, port, "s")
    await node.next(Open)
    other = await (await world.node()).join()
    await port.verify("s", 3, (4,))
    await node.next(Advance)
    node.socket.transport.abort()
    assert (await port.next(DropTape)).tape == node.id
    assert (await other.next(Open)).tokens == (*PROMPT, 4)


async def test_a_held_node_gets_its_streams_closed_and_may_have_them_again(world: Any) -> None:
    """The second opening has another name, so that drafts of the first are told apart."""
    port = await world.port()
    gateway = await world.gateway(port)
    node = await (await world.node()).join()
    await start(world, gateway, port, "s")
    first = await node.next(Open)
    await node.send(Hold(reason=HoldReason.INPUT))
    assert (await node.next(Close)).stream == first.stream
    assert (await port.next(DropTape)).tape == node.id
    assert (await node.next(Demand)).reason is DemandReason.HOLDING
    await node.send(Resume())
    second = await node.next(Open)
    assert second.stream != first.stream
    await node.draft(second.stream, 3, (4,))
    assert (await port.next(PortDraft)).stream == "s"


async def test_a_draining_node_ends_what_it_has(world: Any) -> None:
    """And gets nothing new."""
    port = await world.port()
    gateway = await world.gateway(port)
    node = await (await world.node()).join()
    await start(world, gateway, port, "s")
    opened = await node.next(Open)
    await node.send(Drain())
    await node.draft(opened.stream, 3, (4,))
    await port.next(PortDraft)
    await start(world, gateway, port, "t")
    await world.until(lambda: StreamId("t") in gateway.broker.streams)
    assert not gateway.broker.streams[StreamId("t")].tapes


async def test_another_tokenizer_is_refused_at_hello_with_both_fingerprints(world: Any) -> None:
    """Before any proof; the close code is that of the error."""
    await world.gateway(await world.port())
    node = await world.node()
    await node.hello(fingerprint="b" * 64)
    refuse = await node.next(Refuse)
    assert refuse.code == "tokenizer_mismatch"
    assert "a" * 64 in refuse.message and "b" * 64 in refuse.message
    assert await node.end() == 4004


async def test_a_node_that_came_before_the_verifier_is_checked_when_that_attaches(world: Any) -> None:
    """It is let in first and refused then."""
    port = await world.port()
    port.answering = False
    await world.gateway(port, wait=False)
    node = await (await world.node()).join(fingerprint="b" * 64)
    port.answering = True
    assert (await node.next(Refuse)).code == "tokenizer_mismatch"


async def test_a_wrong_version_is_refused_in_words(world: Any) -> None:
    """Both sides' versions are named."""
    await world.gateway(await world.port())
    node = await world.node()
    await node.hello(versions=(99,))
    refuse = await node.next(Refuse)
    assert refuse.code == "version_unsupported" and "99" in refuse.message
    assert await node.end() == 4001


async def test_a_proof_for_another_gateway_is_refused(world: Any) -> None:
    """A signature that was made elsewhere cannot be replayed."""
    gateway = await world.gateway(await world.port())
    node = await world.node()
    await node.hello()
    await node.prove(cloud="another")
    assert (await node.next(Refuse)).code == "proof_failed"
    assert await node.end() == 4003
    assert not gateway.broker.nodes


async def test_only_listed_keys_may_connect(world: Any) -> None:
    """The refusal tells the key, so that the operator can add it."""
    known, stranger = NodeKey.generate(), NodeKey.generate()
    await world.gateway(await world.port(), nodes={"allowed_keys": frozenset({known.public})})
    await (await world.node(known)).join()
    node = await world.node(stranger)
    await node.hello()
    await node.prove()
    refuse = await node.next(Refuse)
    assert refuse.code == "proof_failed" and stranger.public.hex() in refuse.message


async def test_a_silent_handshake_is_ended(world: Any) -> None:
    """Time limit of the handshake, not of the network."""
    await world.gateway(await world.port(), limits=Limits(handshake_s=0.05))
    node = await world.node()
    assert "handshake" in (await next_raw(node, Refuse)).message
    assert await node.end() == 1002


async def next_raw(node: Any, kind: type) -> Any:
    """For a node that said nothing: its session would not read."""
    return msgspec.msgpack.decode(await node.socket.recv(), type=kind)


async def test_a_node_without_beats_is_gone(world: Any) -> None:
    """Its streams go elsewhere, as for any node that left."""
    port = await world.port()
    gateway = await world.gateway(port, nodes={"beat_s": 0.05})
    node = await (await world.node()).join()
    await node.send(Beat(seq=1))
    assert "Beat" in (await node.next(Refuse)).message
    await node.end()
    await world.until(lambda: not gateway.broker.nodes)


@pytest.mark.parametrize(("frame", "code"), [(b"x" * (65 << 10), 1009), ("text", 1002), (b"\xc1", 1002), (b"", 1002)])
async def test_bad_frames_close_the_connection(world: Any, frame: bytes | str, code: int) -> None:
    """An oversized frame, text, garbage; in words, and nobody else notices."""
    gateway = await world.gateway(await world.port())
    good = await (await world.node()).join()
    node = await (await world.node()).join()
    await node.socket.send(frame)
    assert (await node.next(Refuse)).message
    assert await node.end() == code
    await world.until(lambda: set(gateway.broker.nodes) == {NodeId(good.id)})


async def test_a_node_that_does_not_read_is_closed(world: Any) -> None:
    """Its queue is bounded; its stream goes to another node and the gateway stays responsive."""
    port = await world.port()
    gateway = await world.gateway(
        port, limits=Limits(queue_bytes=200_000), nodes={"close_s": 0.05}, max_open_tokens=200_000
    )
    slow = await (await world.node(max_queue=1)).join()
    await start(world, gateway, port, "s")
    await world.until(lambda: StreamId("s") in gateway.broker.streams)
    other = await (await world.node()).join()
    pos = len(PROMPT)
    block = (70_000,) * 20_000
    while NodeId(slow.id) in gateway.broker.nodes:
        await port.verify("s", pos, block)
        pos += len(block)
        await world.until(lambda wanted=pos: len(gateway.broker.streams[StreamId("s")].tokens) == wanted)
        assert pos < 100_000_000
    assert gateway.snapshot()["broker_failures"] == 0
    await port.finish("s")
    gateway.register(StreamId("t"))
    await port.open("t")
    await other.next(Open)


async def test_the_newer_connection_of_a_node_replaces_the_older(world: Any) -> None:
    """The older is told why; the stream is opened again on the newer."""
    port = await world.port()
    gateway = await world.gateway(port)
    key = NodeKey.generate()
    older = await (await world.node(key)).join()
    await start(world, gateway, port, "s")
    await older.next(Open)
    newer = await (await world.node(key)).join()
    assert "connected again" in (await older.next(Refuse)).message
    assert (await newer.next(Open)).tokens == PROMPT
    await older.end()
    assert set(gateway.broker.nodes) == {NodeId(newer.id)}
    await port.verify("s", 3, (4,))
    assert (await newer.next(Advance)).tokens == (4,)


async def test_a_node_of_garbage_is_refused_and_the_stream_goes_on(world: Any) -> None:
    """Ids outside the vocabulary never reach the verifier."""
    port = await world.port()
    gateway = await world.gateway(port, max_faults=3)
    node = await (await world.node()).join()
    await start(world, gateway, port, "s")
    opened = await node.next(Open)
    for _ in range(3):
        await node.draft(opened.stream, 3, (100,))
    assert (await node.next(Refuse)).code == "rate_limit_exceeded"
    assert (await port.next(DropTape)).tape == node.id
    assert gateway.snapshot()["drafts_invalid"] == 3
    again = await world.node(node.key)
    await again.hello()
    await again.prove()
    assert "invalid" in (await again.next(Refuse)).message


async def test_stopping_tells_the_nodes_to_come_back_later(world: Any) -> None:
    """Close code 1013: try again later."""
    gateway = await world.gateway(await world.port())
    node = await (await world.node()).join()
    gateway.nodes.stop()
    assert (await node.next(Refuse)).code == "unavailable"
    assert await node.end() == 1013
    late = await world.node()
    assert (await next_raw(late, Refuse)).code == "unavailable"


async def test_nodes_beyond_the_limit_are_told(world: Any) -> None:
    """In words, with a code that says a retry can help."""
    await world.gateway(await world.port(), nodes={"max_nodes": 1})
    await (await world.node()).join()
    second = await world.node()
    assert (await next_raw(second, Refuse)).code == "unavailable"


async def test_a_handshake_out_of_order_is_refused(world: Any) -> None:
    """A second `Hello` instead of the proof."""
    await world.gateway(await world.port())
    node = await world.node()
    await node.hello()
    await node.next(Challenge)
    hello = Hello(versions=(1,), key=node.key.public, engine="x", models=(), streams=1)
    await node.socket.send(msgspec.msgpack.encode(hello))
    assert (await node.next(Refuse)).code == "protocol_error"


async def test_late_drafts_are_ignored_and_counted(world: Any) -> None:
    """For a position already passed, and for a stream that is closed."""
    port = await world.port()
    gateway = await world.gateway(port)
    node = await (await world.node()).join()
    await start(world, gateway, port, "s")
    opened = await node.next(Open)
    await port.verify("s", 3, (4,))
    await node.next(Advance)
    await node.draft(opened.stream, 3, (4,))
    await world.until(lambda: gateway.snapshot()["drafts_late"] == 1)
    late = node.session.send(Draft(stream=opened.stream, epoch=0, pos=4, tokens=(5,)))
    await port.finish("s")
    await node.next(Close)
    await node.socket.send(late)
    await world.until(lambda: gateway.snapshot()["drafts_after_close"] == 1)
    assert gateway.snapshot()["drafts_forwarded"] == 0
