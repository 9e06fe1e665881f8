"""The draft-port client over real sockets."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.auth

from cloud.api.broker import events as ev
from cloud.api.draftport.client import LOST_AFTER_BEATS, DraftPortClient
from cloud.api.draftport.settings import DraftPortSettings
from shared.draftport.messages import PROTOCOL, Resync
from shared.errors import ConfigError
from shared.ids import GatewayId, StreamId


async def test_a_verifier_attaches_and_its_model_is_served(world: Any) -> None:
    """What `Attached` says is what the gateway offers, and its counts are shown."""
    port = await world.port()
    gateway = await world.gateway(port)
    [model] = gateway.models()
    assert (model.name, model.vocabulary, model.max_model_len) == ("big", 100, 4096)
    assert gateway.snapshot()["verifier_steps"] == 5


async def test_malformed_frames_are_counted_and_the_link_goes_on(world: Any) -> None:
    """Garbage, an unknown message, one that lacks a field, and one nested too deeply."""
    port = await world.port()
    gateway = await world.gateway(port)
    nested = msgspec.msgpack.encode({"t": "closed", "x": None}).removesuffix(b"\xc0") + b"\x91" * 4000 + b"\xc0"
    what, closed = (msgspec.msgpack.encode({"t": tag}) for tag in ("what", "closed"))
    for frame in (b"\xc1garbage", what, closed, nested):
        await port.send_bytes(frame)
    gateway.register(StreamId("s"))
    await port.open("s")
    await world.until(lambda: StreamId("s") in gateway.broker.streams)
    assert gateway.snapshot()["port_malformed"] == 4


async def test_a_restarted_verifier_loses_its_streams(world: Any) -> None:
    """A new verifier id means that all streams of the old one are gone."""
    port = await world.port()
    gateway = await world.gateway(port)
    handle = gateway.register(StreamId("s"))
    await port.open("s")
    await world.until(lambda: bool(gateway.broker.streams))
    port.about = msgspec.structs.replace(port.about, verifier="engine-2")
    assert await handle.closed(20)
    assert not gateway.broker.streams
    assert gateway.broker.verifiers[port.address].verifier == "engine-2"


async def test_a_silent_verifier_is_lost_after_unanswered_beats(world: Any) -> None:
    """Beats are counted, so a gateway that slept itself blames nobody; late messages are then unexpected."""
    port = await world.port()
    events: list[ev.VerifierEvent] = []
    settings = DraftPortSettings(endpoints=(port.address,))
    client = DraftPortClient(port.address, GatewayId("g"), events.append, settings, world.context)
    try:
        client.receive(msgspec.msgpack.encode(port.about))
        for _ in range(LOST_AFTER_BEATS):
            client.beat()
        assert [type(event) for event in events] == [ev.VerifierAttached]
        client.beat()
        assert [type(event) for event in events] == [ev.VerifierAttached, ev.VerifierLost]
        client.receive(msgspec.msgpack.encode({"t": "closed", "stream": "s", "reason": "x"}))
        assert client.counts.unexpected == 1
        client.receive(msgspec.msgpack.encode(port.about))
        assert isinstance(events[-1], ev.VerifierAttached)
    finally:
        client.close()


async def test_a_verifier_of_another_protocol_is_not_attached(world: Any) -> None:
    """It would misread what it is sent."""
    port = await world.port()
    port.about = msgspec.structs.replace(port.about, protocol=PROTOCOL + 1)
    events: list[ev.VerifierEvent] = []
    settings = DraftPortSettings(endpoints=(port.address,))
    client = DraftPortClient(port.address, GatewayId("g"), events.append, settings, world.context)
    client.receive(msgspec.msgpack.encode(port.about))
    client.close()
    assert not events


async def test_a_gap_is_asked_for_and_closed(world: Any) -> None:
    """`Resync` goes out, `Opened` comes back, the stream goes on."""
    port = await world.port()
    gateway = await world.gateway(port)
    handle = gateway.register(StreamId("s"))
    await port.open("s")
    await port.verify("s", 5, (6,))
    assert (await port.next(Resync)).stream == "s"
    await port.open("s", (1, 2, 3, 4, 5, 6))
    await port.verify("s", 6, (7,))
    await port.finish("s")
    assert await handle.closed(20)
    assert handle.figures().output_tokens == 4
    handle.release()
    handle.release()
    assert not gateway.broker.registrations


async def test_closed_says_no_when_time_is_up(world: Any) -> None:
    """And a stream id cannot be registered twice."""
    gateway = await world.gateway(await world.port())
    handle = gateway.register(StreamId("s"))
    assert not await handle.closed(0)
    with pytest.raises(Exception, match="in use"):
        gateway.register(StreamId("s"))


async def test_curve_keys_are_used_on_tcp(world: Any, tmp_path: Path) -> None:
    """The link works with the right keys; the settings refuse tcp without any."""
    server_public, server_secret = zmq.auth.create_certificates(tmp_path, "server")
    _, own_secret = zmq.auth.create_certificates(tmp_path, "gateway")

    def curve(socket: zmq.Socket[bytes]) -> None:
        socket.curve_publickey, socket.curve_secretkey = zmq.auth.load_certificate(server_secret)
        socket.curve_server = True

    port = await world.port(address="tcp://127.0.0.1:*", curve=curve)
    keys = {"curve_server": Path(server_public), "curve_secret": Path(own_secret)}
    gateway = await world.gateway(port, keys=keys)
    assert gateway.models()


@pytest.mark.parametrize(
    ("endpoints", "match"),
    [
        (("tcp://127.0.0.1:7700",), "without keys"),
        (("http://x",), "begin it with"),
        ((), "at least one"),
        (("ipc:///a", "ipc:///a"), "twice"),
    ],
)
def test_wrong_addresses_are_refused_in_words(endpoints: tuple[str, ...], match: str) -> None:
    """The message names the address and the remedy."""
    with pytest.raises(ConfigError, match=match):
        DraftPortSettings(endpoints=endpoints)


async def test_a_missing_key_file_is_named(world: Any, tmp_path: Path) -> None:
    """And nothing is left open."""
    port = await world.port()
    keys = {"curve_server": tmp_path / "no.key", "curve_secret": tmp_path / "no.key_secret"}
    with pytest.raises(ConfigError, match=r"no\.key"):
        await world.gateway(port, keys=keys)
