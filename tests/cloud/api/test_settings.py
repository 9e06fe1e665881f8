"""Where settings come from, which wins, and how errors read."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cloud.api.cli import app
from cloud.api.settings import GatewaySettings
from cloud.api.settings_sources import SettingsInvalid, flatten, load

DOCS = Path(__file__).parents[3] / "docs"
KEY = "secret-key-42"


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """No settings of this machine."""
    monkeypatch.setenv("NEXUS_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("NEXUS_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.fixture
def file(tmp_path):
    """Write a settings file; gives its path."""

    def write(text: str) -> Path:
        path = tmp_path / "gateway.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_defaults(monkeypatch, tmp_path):
    """One local verifier with this user's draft port, on loopback port 8080."""
    monkeypatch.setenv("NEXUS_GATEWAY_API_KEYS", KEY)
    settings = load(None, {}).settings
    [verifier] = settings.verifiers
    assert (settings.host, settings.port, verifier.url) == ("127.0.0.1", 8080, "http://127.0.0.1:8000")
    assert verifier.draft_ports == [f"ipc://{tmp_path}/run/draft-port-0"]
    assert not settings.metrics_need_key() and settings.to_nodes().allowed_keys is None


def test_precedence(monkeypatch, file):
    """File below environment below flags, also inside one section, and the source of each is known."""
    path = file(f'port = 1\nhost = "a"\napi_keys = ["{KEY}"]\n[limits]\nkeep_alive_s = 1\nread_timeout_s = 2\n')
    monkeypatch.setenv("NEXUS_GATEWAY_PORT", "2")
    monkeypatch.setenv("NEXUS_GATEWAY_LIMITS__KEEP_ALIVE_S", "3")
    loaded = load(path, {"port": 3})
    s = loaded.settings
    assert (s.port, s.host, s.limits.keep_alive_s, s.limits.read_timeout_s) == (3, "a", 3, 2)
    where = {name: source for name, _, source in loaded.lines()}
    assert where["port"] == "command line" and where["limits.keep_alive_s"] == "environment"
    assert where["host"] == where["limits.read_timeout_s"] == f"file {path}"
    assert where["log.level"] == "default"


def test_default_file(monkeypatch, tmp_path):
    """gateway.toml in the settings folder is read without being asked for."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "gateway.toml").write_text(f'api_keys = ["{KEY}"]\nport = 5\n')
    assert load(None, {}).settings.port == 5


def test_keys_from_a_file(monkeypatch, tmp_path):
    """One key on each line, comments skipped."""
    keys = tmp_path / "keys"
    keys.write_text("# ours\nkey-number-1\n\nkey-number-2\n")
    assert load(None, {"api_keys_file": str(keys)}).settings.all_api_keys() == ["key-number-1", "key-number-2"]


def test_keys_in_a_file_are_as_long_as_others(tmp_path, file):
    """A key that could be guessed is refused wherever it stands, and not shown."""
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\nshort\n")
    with pytest.raises(SettingsInvalid, match=rf"{keys}: each key must be at least 8") as caught:
        load(file(f'api_keys_file = "{keys}"'), {})
    assert "short" not in str(caught.value)


def test_all_errors_at_once(monkeypatch, file):
    """Each error names field, source and remedy."""
    path = file(
        'port = 70000\ntypo = 1\nnode_keys = ["abc"]\n[limits]\nkeep_alive_s = 0\n[[verifiers]]\nurl = "localhost"\n'
    )
    monkeypatch.setenv("NEXUS_GATEWAY_PROT", "1")
    with pytest.raises(SettingsInvalid) as caught:
        load(path, {})
    told = "\n".join(caught.value.problems)
    for part in (
        f"port (file {path}): ",
        f"typo (file {path}): there is no such setting",
        f"limits.keep_alive_s (file {path}): ",
        f"verifiers[0].url (file {path}): ",
        "node_keys (file",
        "NEXUS_GATEWAY_PROT (environment): there is no such setting",
        "api_keys_file (default): no API key is set",
    ):
        assert part in told, told
    assert len(caught.value.problems) == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port = ", "not valid TOML"),
        ('api_keys = ["short"]', "at least 8"),
        (f'api_keys = ["{KEY}"]\napi_keys_file = "/nowhere/keys"', "/nowhere/keys cannot be read"),
        (
            f'api_keys = ["{KEY}"]\n[[verifiers]]\nurl = "http://v"\ndraft_ports = ["tcp://10.0.0.1:5"]',
            "tcp address without keys",
        ),
        (f'api_keys = ["{KEY}"]\n[[verifiers]]\nurl = "http://v"\ndraft_ports = ["/run/x"]', "no ZeroMQ address"),
    ],
)
def test_error_words(file, text, words):
    """The words of an error say what is wrong; no key is shown."""
    with pytest.raises(SettingsInvalid, match=re.escape(words)) as caught:
        load(file(text), {})
    assert KEY not in str(caught.value) and "short" not in str(caught.value)


def test_named_file_must_exist(tmp_path):
    """A file named with --config that is not there is an error."""
    with pytest.raises(SettingsInvalid, match="no such file"):
        load(tmp_path / "none.toml", {})


def test_environment_that_is_no_json(monkeypatch):
    """A list in the environment that is no JSON is explained."""
    monkeypatch.setenv("NEXUS_GATEWAY_VERIFIERS", "http://x")
    with pytest.raises(SettingsInvalid, match="verifiers"):
        load(None, {})


def test_check_config_masks_secrets(monkeypatch, file):
    """The command prints every setting with its source and no secret; a wrong file makes it exit with 1."""
    monkeypatch.setenv("NEXUS_GATEWAY_API_KEYS", f"{KEY},{KEY}-2")
    monkeypatch.setenv("NEXUS_GATEWAY_DATABASE", "postgresql+asyncpg://nexus:pass/wo@rd@host/db")
    result = CliRunner().invoke(app, ["check-config", "--port", "0", "--verifier", "http://v=ipc:///a,ipc:///b"])
    assert result.exit_code == 0, result.output
    assert KEY not in result.output and re.search(r"^api_keys +\[\*+, \*+\]  \(environment\)$", result.output, re.M)
    assert re.search(r"^port +0  \(command line\)$", result.output, re.MULTILINE)
    assert "[ipc:///a, ipc:///b]" in result.output
    assert "postgresql+asyncpg://nexus:********@host/db" in result.output
    result = CliRunner().invoke(app, ["check-config", "--config", str(file("port = -1\nhost = 3\n"))])
    assert result.exit_code == 1 and result.output.count("error: ") == 2


def test_help_teaches():
    """Help shows examples."""
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0 and "nexus gateway serve --config" in result.output


def test_metrics_need_a_key_beyond_loopback():
    """The default asks for a key as soon as the gateway is open to the network."""
    for host, needed in (("127.0.0.1", False), ("0.0.0.0", True), ("::", True)):
        assert GatewaySettings(host=host, api_keys=[KEY]).metrics_need_key() is needed


def test_every_setting_is_documented():
    """docs/settings.md has a row for each setting, with the default, and none for what does not exist."""
    settings = GatewaySettings(api_keys=[KEY])
    values = {re.sub(r"\[\d+\]", "[]", name): value for name, value in flatten(settings)}
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    row = r"^\| `([\w.\[\]]+)` \| `?([^|`]+)`?(?:, `-0`| in the Nexus data folder)? \|"
    rows = dict(re.findall(row, text, re.MULTILINE))
    assert set(values) | {"verifiers"} == set(rows)
    for name, default in rows.items():
        if name not in ("verifiers", "verifiers[].draft_ports", "api_keys", "node_keys", "database"):
            shown = values[name].removesuffix(".0") if values[name] != "127.0.0.1" else values[name]
            assert default.lower() == shown.lower(), name
