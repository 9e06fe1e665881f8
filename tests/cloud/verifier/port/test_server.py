"""The draft port over real sockets: attach, publish, resync, and what hostile or faulty peers send."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.auth

from cloud.verifier.port.curve import Curve
from cloud.verifier.port.server import PortServer
from shared.draftport.messages import (
    GATEWAY_FRAME_LIMIT,
    PROTOCOL,
    Attach,
    Attached,
    Closed,
    Counts,
    DropTape,
    GatewayMessage,
    Policy,
    PortDraft,
    Resync,
    Verified,
    VerifierMessage,
)
from shared.errors import ConfigError, EngineError

ABOUT = Attached(
    verifier="v1",
    protocol=PROTOCOL,
    model="m",
    fingerprint="f",
    vocabulary=10,
    max_model_len=64,
    k=4,
    rank=0,
    counts=Counts(),
)


class Peer:
    """A gateway's socket."""

    def __init__(
        self, address: str, name: str, server_key: bytes | None = None, keys: tuple[bytes, bytes] | None = None
    ):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.IDENTITY, name.encode())
        if server_key and keys:
            self.socket.curve_serverkey = server_key
            self.socket.curve_publickey, self.socket.curve_secretkey = keys
        self.socket.connect(address)
        self.name = name

    def send(self, message: GatewayMessage) -> None:
        self.socket.send(msgspec.msgpack.encode(message))

    def receive(self, timeout_ms: int = 5000) -> VerifierMessage | None:
        if not self.socket.poll(timeout_ms):
            return None
        return msgspec.msgpack.decode(self.socket.recv(), type=VerifierMessage)

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PortServer]:
    server = PortServer(f"ipc://{tmp_path}/p-0", ABOUT)
    yield server
    server.close()


@pytest.fixture
def peer(server: PortServer) -> Iterator[Peer]:
    peer = Peer(server.address, "g1")
    yield peer
    peer.close()


def draft(stream: str = "s") -> PortDraft:
    return PortDraft(stream=stream, tape="t", epoch=0, pos=1, tokens=(2, 3))


def test_attach_is_answered_with_what_is_served_and_the_counts_so_far(server: PortServer, peer: Peer) -> None:
    """Even while the engine is idle."""
    peer.send(Attach(gateway="g1"))
    assert peer.receive() == ABOUT
    server.counts = Counts(steps=7)
    peer.send(Attach(gateway="g1"))
    answer = peer.receive()
    assert isinstance(answer, Attached)
    assert answer.counts.steps == 7


def test_drafts_reach_the_mailbox_and_wake_its_reader(server: PortServer, peer: Peer) -> None:
    """The scheduler may be waiting for just this."""
    peer.send(draft())
    assert server.mailbox.wait(5)
    assert [letter.message for letter in server.mailbox.drain()] == [draft()]
    assert not server.mailbox.wait(0)


def test_each_gateway_gets_its_own_streams(server: PortServer, peer: Peer) -> None:
    """Several gateways may be attached to one verifier."""
    other = Peer(server.address, "g2")
    try:
        for each in (peer, other):
            each.send(Attach(gateway=each.name))
            assert isinstance(each.receive(), Attached)
        server.publish("g2", Closed(stream="a", reason="stop"))
        server.publish("g1", Closed(stream="b", reason="stop"))
        assert other.receive() == Closed(stream="a", reason="stop")
        assert peer.receive() == Closed(stream="b", reason="stop")
    finally:
        other.close()


def test_a_message_for_a_gateway_that_is_not_there_does_no_harm(server: PortServer, peer: Peer) -> None:
    """Drafting is an optimisation; the engine goes on."""
    server.publish("nobody", Closed(stream="a", reason="stop"))
    peer.send(Attach(gateway="g1"))
    assert isinstance(peer.receive(), Attached)


def test_garbage_is_dropped_and_the_port_goes_on(server: PortServer, peer: Peer) -> None:
    """Malformed frames, unknown tags, empty frames, wrong types."""
    for frame in (b"", b"\xff\xff", msgspec.msgpack.encode({"t": "nonsense"}), msgspec.msgpack.encode([1, 2])):
        peer.socket.send(frame)
    peer.socket.send(msgspec.msgpack.encode({"t": "draft", "stream": 5}))
    peer.send(draft())
    assert server.mailbox.wait(5)
    assert [letter.message for letter in server.mailbox.drain()] == [draft()]


def test_a_frame_nested_too_deeply_does_not_end_the_port(server: PortServer, peer: Peer) -> None:
    """Unknown fields are skipped, and the decoder's recursion limit is no decoding error."""
    whole = msgspec.msgpack.encode({"t": "draft", "x": None})
    peer.socket.send(whole.removesuffix(b"\xc0") + b"\x91" * 4000 + b"\xc0")
    peer.send(draft())
    assert server.mailbox.wait(5)
    assert [letter.message for letter in server.mailbox.drain()] == [draft()]


def test_an_oversized_draft_never_reaches_the_mailbox(server: PortServer, peer: Peer) -> None:
    """The mailbox is bounded by number: nobody reads it while the engine is idle. The gateway may come back."""
    peer.send(msgspec.structs.replace(draft(), tokens=tuple(range(GATEWAY_FRAME_LIMIT))))
    peer.socket.send(b"")
    assert not server.mailbox.wait(0.2)
    again = Peer(server.address, "g2")
    try:
        again.send(draft())
        assert server.mailbox.wait(5)
        assert [letter.message for letter in server.mailbox.drain()] == [draft()]
    finally:
        again.close()


def test_publishing_never_waits_for_the_thread(server: PortServer, peer: Peer) -> None:
    """The scheduler publishes from the engine's own loop; what a thread cannot encode does not end it either."""
    for number in range(5000):
        server.publish("g1", Closed(stream="\ud800", reason=str(number)))
    peer.send(draft())
    assert server.mailbox.wait(5)


def test_a_scheduler_goes_on_when_the_port_is_dead(server: PortServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a bell that nobody hears any more must not hold the engine up."""
    server.close()
    with zmq.Context() as context:
        bell, listener = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        bell.bind("inproc://bell")
        listener.connect("inproc://bell")
        monkeypatch.setattr(server, "_bell", bell)
        bell.setsockopt(zmq.SNDTIMEO, 2000)
        for _ in range(3000):
            server.publish("g1", Closed(stream="s", reason="stop"))
        bell.close(linger=0)
        listener.close(linger=0)


def test_a_gateway_cannot_speak_for_another(server: PortServer, peer: Peer) -> None:
    """Attach names the socket's own identity, or is ignored."""
    peer.send(Attach(gateway="g2"))
    peer.send(Attach(gateway="g1"))
    assert isinstance(peer.receive(), Attached)
    assert peer.receive(100) is None


def test_a_resync_for_a_stream_that_is_gone_is_answered_at_once(server: PortServer, peer: Peer) -> None:
    """Also while the engine is idle; an open one is the scheduler's to answer."""
    server.opened("open", "g1")
    peer.send(Resync(stream="gone"))
    assert peer.receive() == Closed(stream="gone", reason="unknown")
    peer.send(Resync(stream="open"))
    assert server.mailbox.wait(5)
    assert [letter.message for letter in server.mailbox.drain()] == [Resync(stream="open")]


@pytest.mark.parametrize(
    "message",
    [draft("mine"), DropTape(stream="mine", tape="t"), Policy(stream="mine", wait_ms=9.0, k=0), Resync(stream="mine")],
    ids=lambda message: type(message).__name__,
)
def test_only_a_streams_own_gateway_is_listened_to(server: PortServer, peer: Peer, message: GatewayMessage) -> None:
    """Another gateway on the same port can neither draft for it, nor drop its tapes, nor change its policy."""
    server.opened("mine", "g2")
    peer.send(message)
    peer.send(draft("unknown"))
    assert server.mailbox.wait(5)
    assert [letter.message for letter in server.mailbox.drain()] == [draft("unknown")]
    server.closed("mine")
    peer.send(draft("mine"))
    assert server.mailbox.wait(5)
    assert [letter.message for letter in server.mailbox.drain()] == [draft("mine")]


def test_two_verifiers_cannot_share_a_local_port(server: PortServer) -> None:
    """Binding would silently steal it; and a closed one frees it."""
    with pytest.raises(EngineError, match="Another verifier already uses the draft port"):
        PortServer(server.address, ABOUT)
    server.close()
    PortServer(server.address, ABOUT).close()


def test_what_was_published_before_closing_is_sent(server: PortServer, peer: Peer) -> None:
    """Nothing is lost at an orderly end."""
    peer.send(Attach(gateway="g1"))
    assert isinstance(peer.receive(), Attached)
    for position in range(50):
        server.publish(
            "g1",
            Verified(
                stream="s",
                pos=position,
                tokens=(1,),
                drafted=0,
                accepted=0,
                source=None,
                baseline=0,
                step=position,
                step_ms=1.0,
            ),
        )
    server.close()
    assert [message.pos for _ in range(50) if isinstance(message := peer.receive(), Verified)] == list(range(50))


def test_tcp_without_keys_is_refused() -> None:
    """Anyone who reaches the address could send drafts."""
    with pytest.raises(EngineError, match="--draft-port-secret"):
        PortServer("tcp://127.0.0.1:0", ABOUT)


def test_on_a_local_socket_keys_have_no_effect(tmp_path: Path) -> None:
    """Gateways use none there: with keys in force none of them could attach."""
    _, secret = zmq.auth.create_certificates(tmp_path, "server")
    server = PortServer(f"ipc://{tmp_path}/p-0", ABOUT, Curve(Path(secret), tmp_path))
    peer = Peer(server.address, "g1")
    try:
        peer.send(Attach(gateway="g1"))
        assert isinstance(peer.receive(), Attached)
    finally:
        peer.close()
        server.close()


def test_over_tcp_only_gateways_on_file_get_through(tmp_path: Path) -> None:
    """CURVE: the server's key, and a folder of clients' public keys."""
    clients = tmp_path / "clients"
    clients.mkdir()
    _, server_secret = zmq.auth.create_certificates(tmp_path, "server")
    server_public, _ = zmq.auth.load_certificate(server_secret)
    zmq.auth.create_certificates(clients, "friend")
    friend = zmq.auth.load_certificate(clients / "friend.key_secret")
    (clients / "friend.key_secret").unlink()
    server = PortServer("tcp://127.0.0.1:0", ABOUT, Curve(Path(server_secret), clients))
    known = Peer(server.address, "g1", server_public, (friend[0], friend[1] or b""))
    stranger = Peer(server.address, "g2", server_public, zmq.curve_keypair())
    try:
        for each in (known, stranger):
            each.send(Attach(gateway=each.name))
        assert isinstance(known.receive(), Attached)
        assert stranger.receive(500) is None
    finally:
        known.close()
        stranger.close()
        server.close()


def test_unusable_keys_are_named(tmp_path: Path) -> None:
    """The flag, the file and what is wrong with it."""
    with pytest.raises(ConfigError, match="--draft-port-secret"):
        PortServer("tcp://127.0.0.1:0", ABOUT, Curve(tmp_path / "missing", tmp_path))
