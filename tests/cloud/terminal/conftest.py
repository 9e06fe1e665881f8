"""A fake gateway on a free port, and a look at which processes of a session or a mark are alive."""

import contextlib
import importlib.util
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import uvicorn

HERE = Path(__file__).resolve().parent


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"terminal_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake_gateway = _load("fake_gateway")


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Serves a fake gateway in a thread; gives the URL of its API."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(fake: Any) -> str:
        server = uvicorn.Server(fake_gateway.config(fake.app))
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        eventually(lambda: server.started)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join()


@pytest.fixture
def fake() -> Any:
    """A Nexus gateway that answers with five tokens, one of each origin and another accepted one."""
    return fake_gateway.FakeGateway()


@pytest.fixture
def foreign() -> Any:
    """An OpenAI-compatible gateway that knows nothing of Nexus."""
    return fake_gateway.FakeGateway(owned_by="somebody")


def eventually(condition: Callable[[], Any], within_s: float = 60.0) -> None:
    """Returns as soon as the condition holds."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., None]:
    return eventually


@pytest.fixture
def mark() -> str:
    """An argument that tells this test's processes from all others."""
    return f"mark-{uuid.uuid4().hex}"


@pytest.fixture
def marked(mark: str) -> Iterator[Callable[[], list[int]]]:
    """Ids of the live processes with this test's mark among their arguments; all are killed after the test."""

    def alive() -> list[int]:
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            if process.info["status"] != psutil.STATUS_ZOMBIE and mark in (process.info["cmdline"] or ()):
                found.append(process.pid)
        return found

    yield alive
    for pid in alive():
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()
