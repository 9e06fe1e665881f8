"""The coordinator against the verifier's own draft port, so that the scripted one of the other tests is no fiction."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq.auth

from cloud.api.coordinator import Coordinator
from cloud.api.draftport.settings import DraftPortSettings
from cloud.verifier.port.curve import Curve
from cloud.verifier.port.server import PortServer
from shared.draftport.messages import PROTOCOL, Attached, Closed, Counts, Opened, Policy, Resync, Verified
from shared.ids import StreamId
from shared.sampling import Sampling

ABOUT = Attached(
    verifier="engine-1",
    protocol=PROTOCOL,
    model="big",
    fingerprint="a" * 64,
    vocabulary=100,
    max_model_len=4096,
    k=8,
    rank=0,
    counts=Counts(),
)

Serve = Callable[[Attached], PortServer]


@pytest.fixture(params=["ipc", "tcp with keys"])
def link(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Serve, Callable[[str], DraftPortSettings]]]:
    """How to start the port (again, at the same address), and the gateway's settings for it."""
    servers: list[PortServer] = []
    curve = None
    keys: dict[str, Any] = {}
    if request.param != "ipc":
        server_public, server_secret = zmq.auth.create_certificates(tmp_path, "server")
        own_public, own_secret = zmq.auth.create_certificates(tmp_path, "gateway")
        (tmp_path / "clients").mkdir()
        shutil.copy(own_public, tmp_path / "clients")
        curve = Curve(Path(server_secret), tmp_path / "clients")
        keys = {"curve_server": Path(server_public), "curve_secret": Path(own_secret)}

    def serve(about: Attached) -> PortServer:
        first = f"ipc://{tmp_path / 'p-0'}" if curve is None else "tcp://127.0.0.1:*"
        servers.append(PortServer(servers[0].address if servers else first, about, curve))
        return servers[-1]

    yield serve, lambda address: DraftPortSettings(endpoints=(address,), **keys)
    for server in servers:
        server.close()


async def test_a_stream_and_a_restart_over_the_real_port(world: Any, link: Any) -> None:
    """Attach, policy, gap, resync, close; then a new engine at the same address."""
    serve, settings = link
    server = serve(ABOUT)
    gateway = Coordinator(settings(server.address))
    await gateway.start()
    try:
        await world.until(lambda: bool(gateway.models()))
        handle = gateway.register(StreamId("s"))
        server.opened("s", gateway.gateway_id)
        opened = Opened(stream="s", tokens=(1, 2), prompt=2, sampling=Sampling(), seed=7, max_tokens=9, draftable=True)
        server.publish(gateway.gateway_id, opened)
        gap = Verified(
            stream="s", pos=3, tokens=(4,), drafted=0, accepted=0, source=None, baseline=0, step=1, step_ms=1.0
        )
        server.publish(gateway.gateway_id, gap)
        told: list[Any] = []

        def heard() -> bool:
            told.extend(letter.message for letter in server.mailbox.drain())
            return len(told) >= 2

        await world.until(heard)
        assert told == [Policy(stream="s", wait_ms=0.0, k=4), Resync(stream="s")]
        server.publish(gateway.gateway_id, msgspec.structs.replace(opened, tokens=(1, 2, 3, 4)))
        server.publish(gateway.gateway_id, Closed(stream="s", reason="finished"))
        assert await handle.closed(20)
        assert handle.figures().output_tokens == 2
        server.close()
        serve(msgspec.structs.replace(ABOUT, verifier="engine-2"))
        await world.until(lambda: [v.verifier for v in gateway.broker.verifiers.values()] == ["engine-2"])
        assert gateway.failures == 0
    finally:
        await gateway.stop()
