"""The agent against a real WebSocket server: what the cloud sees, and what the owner is told."""

import asyncio
from typing import Any

import pytest

from shared.errors import ConfigError, ProofFailed, TokenizerMismatch, Unavailable, VersionUnsupported
from shared.keys import NodeKey, node_id
from shared.wire.limits import Limits
from shared.wire.messages import Beat, Demand, DemandReason, Draft, Drain, Hold, HoldReason, Resume


async def test_a_node_proves_itself_and_drafts_for_three_streams_at_once(start: Any, gateway: Any) -> None:
    """Each stream gets the drafts that were made from its own tokens, before and after an advance."""
    start()
    node = await gateway.nodes.get()
    for number, stream in enumerate("abc"):
        await node.open(stream, 1, 100 * number)
    drafts = await node.drafts("a", "b", "c")
    for number, stream in enumerate("abc"):
        draft = drafts[stream]
        assert (draft.epoch, draft.pos) == (0, 2)
        assert draft.tokens == tuple(range(100 * number + 1, 100 * number + 5))
    await node.advance("b", 0, 2, 500)
    redraft = await node.next(Draft)
    assert redraft == Draft(stream="b", epoch=1, pos=3, tokens=(501, 502, 503, 504))


async def test_the_hello_says_who_and_what(start: Any, gateway: Any, tmp_path: Any) -> None:
    """The key from the file, the rest from the worker."""
    running = start()
    await gateway.nodes.get()
    (hello,) = gateway.hellos
    assert hello.key == NodeKey.load(tmp_path / "node.key").public
    assert (hello.engine, hello.streams, hello.models[0].name) == ("counting 1", 5, "counter")
    connected = await running.said.wait_for("connected")
    assert connected["node"] == node_id(hello.key)


async def test_nothing_is_dialled_before_the_model_is_loaded(start: Any, gateway: Any, workers: Any) -> None:
    """A node that cannot draft yet does not take the cloud's time."""
    workers.prepare = lambda worker: worker.ready.clear()
    running = start()
    await running.said.wait_for("worker_loading")
    worker = await workers.made.get()
    assert gateway.hellos == []
    worker.ready.set()
    await gateway.nodes.get()


async def test_a_gateway_that_vanishes_and_returns_gets_its_node_back(start: Any, gateway: Any, workers: Any) -> None:
    """The worker forgets the old streams but stays loaded; the same stream id may come again."""
    running = start()
    node = await gateway.nodes.get()
    await node.open("a", 1, 2)
    await node.drafts("a")
    await gateway.stop()
    await running.said.wait_for("disconnected")
    worker = workers.all[0]
    assert worker.calls[-1] == ("stop_all", "")
    while running.link_delays.used < 3:
        await running.said.wait_for("retrying", running.link_delays.used)
    await gateway.start()
    node = await gateway.nodes.get()
    late = worker.calls[0][1]  # what the worker knew the stream by in the first session
    worker.guess(Draft(stream=late, epoch=7, pos=2, tokens=(9,)))
    await node.open("a", 1, 2)
    assert await node.next(Draft) == Draft(stream="a", epoch=0, pos=2, tokens=(3, 4, 5, 6))
    assert len(workers.all) == 1
    assert len(running.said.of("disconnected")) == 2, "the broken line and the closed port, once each"


async def test_a_worker_crash_is_a_hold_a_restart_and_a_resume(start: Any, gateway: Any, workers: Any) -> None:
    """The connection stays; streams that the cloud opens afterwards are drafted for by the new worker."""
    start()
    node = await gateway.nodes.get()
    await node.open("a", 1)
    await node.drafts("a")
    workers.all[0].crash()
    assert await node.next(Hold) == Hold(reason=HoldReason.ENGINE_FAILED)
    await node.next(Resume)
    assert workers.all[0].stopped
    for stream in node.session.streams_to_close:
        await node.close(stream)
    await node.open("b", 7)
    assert (await node.drafts("b"))["b"].tokens == (8, 9, 10, 11)
    assert [call for call, _ in workers.all[1].calls] == ["open"]
    assert len(gateway.hellos) == 1


async def test_a_node_whose_worker_is_down_connects_with_a_hold(start: Any, gateway: Any, workers: Any) -> None:
    """The cloud never opens streams on a node that cannot draft."""
    running = start()
    node = await gateway.nodes.get()
    workers.prepare = lambda worker: worker.ready.clear()
    workers.all[0].crash()
    await node.next(Hold)
    await gateway.stop()
    await running.said.wait_for("disconnected")
    await gateway.start()
    node = await gateway.nodes.get()
    await node.next(Hold)
    workers.all[1].ready.set()
    await node.next(Resume)
    await node.open("a", 1)
    await node.drafts("a")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (TokenizerMismatch("Its tokenizer is aa, the target's is bb."), "--model"),
        (VersionUnsupported("The node speaks 1, the cloud 2."), "Update Nexus"),
        (ProofFailed("This key may not connect."), "nexus agent key"),
    ],
)
async def test_a_refusal_that_cannot_be_helped_is_said_in_words_and_retried_slowly(
    start: Any, gateway: Any, error: Any, remedy: str
) -> None:
    """The cloud's own sentence, what to do, and the process stays up."""
    gateway.refuse = error
    running = start()
    refused = await running.said.wait_for("refused")
    assert error.message.rstrip(".") in refused["message"] and remedy in refused["message"]
    assert refused["retry_s"] >= 59
    assert not running.task.done()


async def test_a_refusal_for_want_of_capacity_is_retried_like_a_lost_connection(start: Any, gateway: Any) -> None:
    """It may be over in a moment."""
    gateway.refuse = Unavailable("No room for more nodes.")
    running = start()
    lost = await running.said.wait_for("disconnected")
    assert "No room" in lost["message"] and lost["retry_s"] == 0
    gateway.refuse = None
    await gateway.nodes.get()


async def test_a_gateway_that_never_answers_hello_is_given_up(start: Any, gateway: Any) -> None:
    """The handshake has a limit of its own; after that it is dialled again."""
    gateway.mute = True
    running = start(limits=Limits(handshake_s=0.2))
    lost = await running.said.wait_for("disconnected")
    assert "0.2 s" in lost["message"]
    gateway.mute = False
    await gateway.nodes.get()


async def test_leaving_says_drain_and_ends_the_worker(start: Any, gateway: Any, workers: Any) -> None:
    """The cloud hears it before the socket closes normally."""
    running = start()
    node = await gateway.nodes.get()
    await node.open("a", 1)
    await node.drafts("a")
    await running.stop()
    await node.next(Drain)
    await node.gone.wait()
    assert node.socket.close_code == 1000
    assert workers.all[0].stopped


async def test_stopping_while_nothing_can_be_reached_is_immediate(start: Any, gateway: Any, workers: Any) -> None:
    """Neither a long back-off nor a loading model holds it up."""
    await gateway.stop()
    running = start(retry_s=3600.0)
    await running.said.wait_for("disconnected")
    await running.stop()
    workers.prepare = lambda worker: worker.ready.clear()
    loading = start()
    await loading.said.wait_for("worker_loading")
    await loading.stop()
    assert all(worker.stopped for worker in workers.all)


async def test_beats_carry_what_was_drafted(start: Any, gateway: Any) -> None:
    """A sign of life at the pace that the cloud asked for."""
    gateway.beat_s = 0.05
    start()
    node = await gateway.nodes.get()
    await node.open("a", 1)
    await node.drafts("a")
    beat = await node.next(Beat, lambda beat: beat.stats.drafted_tokens > 0)
    assert (beat.stats.streams, beat.stats.drafted_tokens) == (1, 4)
    following = await node.next(Beat)
    assert following.seq == beat.seq + 1


async def test_settings_that_cannot_work_end_the_agent(start: Any, workers: Any) -> None:
    """A wrong model name is told to the person who typed it, not retried for ever."""

    def prepare(worker: Any) -> None:
        worker.start_error = ConfigError("There is no model 'x'.")

    workers.prepare = prepare
    running = start()
    with pytest.raises(ConfigError, match="no model"):
        await running.task
    assert workers.all[0].stopped


async def test_the_owner_is_told_why_there_is_no_work(start: Any, gateway: Any) -> None:
    """Each reason in words, once."""
    running = start()
    node = await gateway.nodes.get()
    for reason in DemandReason:
        await node.send(Demand(reason=reason))
        await node.send(Demand(reason=reason))
    await running.said.wait_for("demand", len(DemandReason))
    await node.open("a", 1)
    await running.said.wait_for("drafting")
    assert len(running.said.of("demand")) == len(DemandReason)
    assert running.said.of("demand")[1]["message"] == "Waiting for work: no demand."
    assert running.said.of("drafting")[0]["message"] == "Drafting for 1 stream."


async def test_an_engine_that_breaks_the_rules_costs_its_draft_only(start: Any, gateway: Any, workers: Any) -> None:
    """An oversize draft is dropped and logged; the session goes on."""
    running = start()
    node = await gateway.nodes.get()
    await node.open("a", 1)
    await node.drafts("a")
    known_as = workers.all[0].calls[0][1]
    workers.all[0].guess(Draft(stream=known_as, epoch=0, pos=5, tokens=tuple(range(5000))))
    await running.said.wait_for("draft_dropped")
    workers.all[0].guess(Draft(stream=known_as, epoch=0, pos=5, tokens=(6,)))
    assert (await node.next(Draft)).tokens == (6,)


async def test_a_text_frame_ends_the_connection_with_a_reason(start: Any, gateway: Any) -> None:
    """The protocol is binary; the gateway reads why."""
    running = start()
    node = await gateway.nodes.get()
    await node.socket.send("hello")
    await node.gone.wait()
    assert node.socket.close_code == 1002
    assert "protocol" in (await running.said.wait_for("disconnected"))["message"]


async def test_what_is_no_gateway_is_named_as_such(start: Any, gateway: Any) -> None:
    """A web server on the port answers HTTP, not the upgrade."""

    async def not_found(_request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    await gateway.stop()
    server = await asyncio.start_server(not_found, "127.0.0.1", gateway.port)
    running = start()
    assert "HTTP 404" in (await running.said.wait_for("disconnected"))["message"]
    server.close()
