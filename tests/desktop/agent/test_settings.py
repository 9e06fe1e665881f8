"""Settings: where they come from, which wins, and how a fault is said."""

from pathlib import Path

import pytest

from desktop.agent.settings import DEFAULT_GATEWAY, connect_url, load
from shared.errors import ConfigError


def test_defaults_need_no_file(own_config: Path) -> None:
    """Nothing set: the local gateway, the small coder model, eight streams, the key in the configuration folder."""
    settings = load()
    assert settings.gateway == (DEFAULT_GATEWAY,)
    assert (settings.model, settings.engine, settings.streams) == ("qwen2.5-coder-0.5b", "auto", 8)
    assert settings.key_file == own_config / "node.key"


def test_flag_beats_environment_beats_file(own_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source fills in only what no stronger one says."""
    (own_config / "agent.toml").write_text('model = "file"\nstreams = 3\nengine = "transformers"\n')
    monkeypatch.setenv("NEXUS_AGENT_MODEL", "environment")
    monkeypatch.setenv("NEXUS_AGENT_STREAMS", "4")
    settings = load(flags={"model": "flag", "engine": None})
    assert (settings.model, settings.streams, settings.engine) == ("flag", 4, "transformers")


def test_a_bad_value_in_the_file_is_harmless_when_a_flag_replaces_it(own_config: Path) -> None:
    """Only the value that is used is judged."""
    (own_config / "agent.toml").write_text("streams = 0\n")
    assert load(flags={"streams": 2}).streams == 2


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("gateway.example:9000", "ws://gateway.example:9000/v1/nodes/connect"),
        ("http://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/nodes/connect"),
        ("https://gateway.example/", "wss://gateway.example/v1/nodes/connect"),
        ("wss://gateway.example/edge/v1/nodes/connect", "wss://gateway.example/edge/v1/nodes/connect"),
        ("http://[::1]:80", "ws://[::1]:80/v1/nodes/connect"),
    ],
)
def test_gateway_addresses_are_taken_as_people_write_them(written: str, url: str) -> None:
    """Host and port are enough; http(s) means the same place as ws(s)."""
    assert connect_url(written) == url


@pytest.mark.parametrize(
    "written", ["", "ftp://x", "ws://", "http://host:99999", "http://u:p@host", "http://host/?a=1"]
)
def test_what_is_no_gateway_address_is_refused(written: str) -> None:
    """A wrong address fails when it is read, not when it is dialled."""
    with pytest.raises(ValueError, match="address"):
        connect_url(written)


def test_several_gateways_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comma separates them."""
    monkeypatch.setenv("NEXUS_AGENT_GATEWAY", "a:1, https://b")
    assert load().gateway == ("ws://a:1/v1/nodes/connect", "wss://b/v1/nodes/connect")


def test_a_fault_names_its_source_and_the_remedy(own_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag, variable or file and field: the reader knows what to change."""
    with pytest.raises(ConfigError, match="flag --streams") as caught:
        load(flags={"streams": 0})
    assert caught.value.param == "streams"
    with pytest.raises(ConfigError, match="module:factory"):
        load(flags={"engine": "tensor rt"})
    monkeypatch.setenv("NEXUS_AGENT_DTYPE", "float8")
    with pytest.raises(ConfigError, match="variable NEXUS_AGENT_DTYPE"):
        load()
    monkeypatch.delenv("NEXUS_AGENT_DTYPE")
    (own_config / "agent.toml").write_text("gpu_memory_utilization = 90\n")
    with pytest.raises(ConfigError, match=r"gpu_memory_utilization in .*agent\.toml"):
        load()


def test_a_misspelt_setting_is_not_ignored(own_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the file and in the environment alike."""
    (own_config / "agent.toml").write_text("stream = 3\n")
    with pytest.raises(ConfigError, match="Unknown setting 'stream'"):
        load()
    (own_config / "agent.toml").unlink()
    monkeypatch.setenv("NEXUS_AGENT_MODLE", "x")
    with pytest.raises(ConfigError, match="Unknown setting 'modle'"):
        load()


def test_a_settings_file_that_cannot_be_used_says_why(own_config: Path) -> None:
    """Missing where it was named, or broken."""
    with pytest.raises(ConfigError, match="no settings file"):
        load(own_config / "other.toml")
    (own_config / "agent.toml").write_text("model = \n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load()
