"""The whole of Nexus as processes: the suite's verifier, a gateway before it, draft nodes that come and go."""

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conftest import Verifier
from openai import OpenAI
from support.servers import Server, nexus

API_KEY = "nx_end_to_end_key"


@dataclass
class Gateway:
    """A running `nexus gateway serve`."""

    url: str
    server: Server

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=API_KEY, max_retries=0, timeout=240)

    @property
    def node_url(self) -> str:
        return self.url.replace("http", "ws") + "/v1/nodes/connect"

    def health(self) -> dict[str, Any]:
        return dict(httpx2.get(f"{self.url}/health", timeout=10).json())

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's samples whose labels include `labels`."""
        total = 0.0
        for line in httpx2.get(f"{self.url}/metrics", timeout=10).text.splitlines():
            found = re.match(rf"{name}(?:{{(.*)}})? (\S+)$", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def wait(self, what: str, holds: Callable[[dict[str, Any]], bool], timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds(health := self.health()):
            assert time.monotonic() < deadline, f"{what}: {health}\n{self.server.tail()}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def gateway(verifier: Verifier, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with one key, attached to the suite's verifier."""
    folder = tmp_path_factory.mktemp("gateway")
    keys = folder / "keys"
    keys.write_text(API_KEY + "\n")
    arguments = ("gateway", "serve", "--port", "0", "--verifier", f"{verifier.url}={verifier.draft_port}")
    server = Server(nexus(*arguments, "--api-keys-file", str(keys)), folder / "log")
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


Nodes = Callable[[], Server]


@pytest.fixture
def nodes(gateway: Gateway) -> Iterator[Nodes]:
    """Starts `nexus agent run` with the small model on a key of its own; all are ended after the test."""
    started: list[Server] = []
    with tempfile.TemporaryDirectory(prefix="nx") as folder:

        def start() -> Server:
            name = f"node{len(started)}"
            arguments = (
                "agent",
                "run",
                "--gateway",
                gateway.url,
                "--model",
                "smollm2-135m",
                "--engine",
                "transformers",
            )
            files = ("--key-file", f"{folder}/{name}.key", "--worker-log", f"{folder}/{name}.worker.log")
            server = Server(
                nexus(
                    *arguments,
                    "--engine",
                    "transformers",
                    "--dtype",
                    "float32",
                    "--threads",
                    "1",
                    "--log-format",
                    "json",
                    *files,
                ),
                Path(folder) / f"{name}.log",
            )
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


def nexus_figures(answer: Any) -> dict[str, Any]:
    """The `nexus` object of an answer of the official client."""
    return dict(json.loads(answer.model_dump_json())["nexus"])
