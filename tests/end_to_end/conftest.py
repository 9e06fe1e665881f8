"""The whole of Nexus as processes: the suite's verifier, a gateway before it, draft nodes that come and go."""

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway import API_KEY, Gateway, Nodes
from support.servers import Server, nexus
from support.verifier import Verifier

BROKER = {
    "NEXUS_GATEWAY_BROKER__MAX_HOLD_MS": "8000",
    "NEXUS_GATEWAY_BROKER__REFUSAL_MIN_CHECKED": "60",
    "NEXUS_GATEWAY_BROKER__CANDIDATES": "2",
}
"""Waits for drafts that suit three engines on two busy cores; a bad node is refused after less evidence than usual; and
nodes draft a runner-up line too, which is not the default."""


@pytest.fixture(scope="module")
def gateway(verifier: Verifier, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with one key, attached to the suite's verifier."""
    folder = tmp_path_factory.mktemp("gateway")
    keys = folder / "keys"
    keys.write_text(API_KEY + "\n")
    arguments = ("gateway", "serve", "--port", "0", "--verifier", f"{verifier.url}={verifier.draft_port}")
    server = Server(nexus(*arguments, "--api-keys-file", str(keys)), folder / "log", env=BROKER)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"ready: (http://\S+)/v1", server.tail())):
            assert server.process.poll() is None, server.tail()
            assert time.monotonic() < deadline, server.tail()
            time.sleep(0.05)
        gateway = Gateway(found[1], server)
        gateway.wait("the draft port does not attach", lambda health: health["status"] == "ok")
        yield gateway
    finally:
        server.stop()


@pytest.fixture
def nodes(gateway: Gateway) -> Iterator[Nodes]:
    """Starts `nexus agent run` with the small model on a key of its own; all are ended after the test."""
    started: list[Server] = []
    with tempfile.TemporaryDirectory(prefix="nx") as folder:

        def start() -> Server:
            name = f"node{len(started)}"
            arguments = ("agent", "run", "--gateway", gateway.url, "--model", "smollm2-135m", "--log-format", "json")
            engine = ("--engine", "transformers", "--dtype", "float32", "--threads", "1")
            files = ("--key-file", f"{folder}/{name}.key", "--worker-log", f"{folder}/{name}.worker.log")
            server = Server(nexus(*arguments, *engine, *files), Path(folder) / f"{name}.log")
            before = gateway.health()["nodes"]
            started.append(server)
            gateway.wait(
                f"{name} does not connect",
                lambda health: health["nodes"] > before or server.process.poll() is not None,
            )
            assert server.process.poll() is None, server.tail()
            return server

        yield start
        for server in started:
            server.stop()
            assert not server.alive()
    gateway.wait("nodes do not leave", lambda health: health["nodes"] == 0)
