"""Which source is tried, and how little time an unreachable hub costs."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from shared.errors import ConfigError
from shared.models import sources
from shared.models.catalogue import HubSource, PypiSource, find


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A probe that remembers nothing, before and after."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    sources.hub_answers.cache_clear()
    yield
    sources.hub_answers.cache_clear()


def test_the_setting_restricts_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset means all in the catalogue's order."""
    entry = find("smollm2-135m")
    monkeypatch.delenv("NEXUS_MODEL_SOURCES", raising=False)
    assert [type(source) for source in sources.candidates(entry)] == [HubSource, PypiSource]
    monkeypatch.setenv("NEXUS_MODEL_SOURCES", "pypi")
    assert [type(source) for source in sources.candidates(entry)] == [PypiSource]
    monkeypatch.setenv("NEXUS_MODEL_SOURCES", "hub")
    assert [type(source) for source in sources.candidates(entry)] == [HubSource]


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the setting, its value and what is allowed."""
    monkeypatch.setenv("NEXUS_MODEL_SOURCES", "ftp")
    with pytest.raises(ConfigError, match="NEXUS_MODEL_SOURCES is 'ftp': use hub, pypi"):
        sources.allowed_kinds()


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False), (403, False)])
def test_the_hub_counts_as_reachable_only_when_it_serves(
    status: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that answers for a blocked hub is no hub; the answer is asked for once."""
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert sources.hub_answers() is expected
        assert sources.hub_answers() is expected
        server.shutdown()
        thread.join()
    assert len(asked) == 1


@pytest.mark.usefixtures("answers")
def test_a_closed_port_is_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection is an answer, not an error."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        assert not sources.hub_answers()


@pytest.mark.usefixtures("answers")
def test_the_hub_clients_own_offline_switch_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked when the user works offline."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert not sources.hub_answers()
