"""What clients talk to: a verifier, real or played, a switch before it, and the real gateway, all on loopback."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import played_vllm
from support.servers import CPU_ENGINE, Server, free_port, nexus

from clients.switch import switched

MODEL = "smollm2-135m"
DATABASE = "gateway.db"
KEY = "nx_clients_key_0123456789"
ENGINE_FLAGS = ("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "16", "--seed", "0")


@dataclass(frozen=True, slots=True)
class Stack:
    """Addresses without a path."""

    gateway: str
    switch: str
    verifier: str
    gateway_log: Path
    limited_key: str
    model: str
    gateway_pid: int

    def environment(self) -> dict[str, str]:
        """How scenarios are told; see `scenarios/checks.py`."""
        return {
            "NEXUS_URL": f"{self.gateway}/v1",
            "NEXUS_API_KEY": KEY,
            "NEXUS_LIMITED_KEY": self.limited_key,
            "NEXUS_MODEL": self.model,
            "NEXUS_SWITCH": f"{self.switch}/switch",
        }


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A running gateway; `url` without a path."""

    url: str
    server: Server


@contextmanager
def running(*, played: bool, model: str = MODEL) -> Iterator[Stack]:
    """All of it, until the block ends. Raises `AssertionError` with the log of what does not start."""
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="nx")))
        verifier = exits.enter_context(verifier_running(folder, played=played, model=model))
        switch = exits.enter_context(switched(verifier, free_port()))
        limited = limited_key(folder)
        gateway = exits.enter_context(gateway_before(f"{switch}=ipc://{folder}/p-0", folder))
        yield Stack(gateway.url, switch, verifier, folder / "gateway.log", limited, model, gateway.server.process.pid)


def limited_key(folder: Path) -> str:
    """A key for one choice at once and a thousand requests a minute, in the database that the gateway will use."""
    argv = nexus("keys", "create", "limited", "--streams", "1", "--requests-per-minute", "1000", "--quiet")
    argv += ["--database", str(folder / DATABASE)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@contextmanager
def verifier_running(folder: Path, *, played: bool = False, model: str = MODEL) -> Iterator[str]:
    """Gives its address; a real one's draft port is `ipc://<folder>/p-0`."""
    port = free_port()
    if played:
        argv = [sys.executable, played_vllm.__file__, str(port), "0.002"]
    else:
        argv = nexus("verifier", "serve", model, "--draft-port", f"ipc://{folder}/p", "--max-draft", "8")
        argv += ["--port", str(port), *ENGINE_FLAGS]
    server = Server(argv, folder / "verifier.log", env={} if played else CPU_ENGINE)
    try:
        server.wait_healthy(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()


@contextmanager
def gateway_before(verifier: str, folder: Path, **env: str) -> Iterator[GatewayProcess]:
    """`nexus gateway serve` for a `--verifier` argument, with the one key `KEY`."""
    keys = folder / "keys"
    keys.write_text(KEY + "\n")
    own = {"NEXUS_GATEWAY_LOG__LEVEL": "warning", "NEXUS_GATEWAY_DATABASE": str(folder / DATABASE)}
    argv = nexus("gateway", "serve", "--port", "0", "--verifier", verifier, "--api-keys-file", str(keys))
    server = Server(argv, folder / "gateway.log", env={**own, **env})
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"ready: (http://\S+)/v1", server.tail())):
            assert server.process.poll() is None, server.tail()
            assert time.monotonic() < deadline, server.tail()
            time.sleep(0.05)
        yield GatewayProcess(found[1], server)
    finally:
        server.stop()
