"""Real server processes for tests: started on a free loopback port, waited for, and ended with their whole group."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2

CPU_ENGINE = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1"}
"""Environment of an engine in tests: small, and quiet."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A child process in a group of its own, with its output in a file."""

    def __init__(self, argv: Sequence[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.log = log
        self._output = log.open("wb")
        self.process = subprocess.Popen(
            argv,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )

    def wait_healthy(self, url: str, timeout_s: float = 240.0) -> None:
        """Until GET `url` answers 200."""
        deadline = time.monotonic() + timeout_s
        while True:
            assert self.process.poll() is None, f"ended early with {self.process.returncode}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"not healthy in time:\n{self.tail()}"
            try:
                if httpx2.get(url, timeout=5).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            time.sleep(0.2)

    def tail(self, size: int = 4000) -> str:
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def alive(self) -> bool:
        """Whether anything of the process group is left."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL to the process alone, as a crash would."""
        self.process.kill()
        self.process.wait(30)

    def stop(self, grace_s: float = 20.0) -> int:
        """SIGTERM, then SIGKILL to what is left of the group; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        while self.alive():
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                break
            self.process.poll()
            time.sleep(0.05)
        self._output.close()
        return code


def stock_vllm(folder: Path, name: str, port: int, *flags: str) -> list[str]:
    """Command line of a stock vLLM server on a CPU, without our plugin."""
    argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    argv += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    return [*argv, "--enforce-eager", "--block-size", "32", "--generation-config", "vllm", *flags]


def nexus(*arguments: str) -> list[str]:
    """Command line of one of our own commands."""
    return [sys.executable, "-m", "shared.cli", *arguments]
