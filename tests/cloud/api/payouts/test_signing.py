"""The coordinator's key: where it is, who may read it, and how another takes its place."""

import stat
from pathlib import Path

import pytest

from cloud.api.payouts.signing import key_path, load_key, rotate
from shared import paths
from shared.errors import ConfigError


def test_where_it_is(tmp_path):
    """Beside the database, where the settings say, or nowhere."""
    assert key_path("/var/lib/gateway.db", None) == Path("/var/lib/gateway.receipts.pem")
    assert key_path("sqlite+aiosqlite:////var/lib/g.db", None) == Path("/var/lib/g.receipts.pem")
    assert key_path("postgresql+psycopg://db/nexus", None) == paths.data_dir() / "receipts.pem"
    assert key_path(":memory:", None) is None
    assert key_path(":memory:", tmp_path / "k") == tmp_path / "k"


def test_made_once_for_its_user_only(tmp_path):
    """The same key after a restart; a file that others can read is refused."""
    path = tmp_path / "new" / "receipts.pem"
    key = load_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key(path).name == key.name != load_key(None).name
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"receipt key .* chmod 600"):
        load_key(path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be"):
        load_key(tmp_path / "file" / "x.pem")


def test_rotation_keeps_the_old_key(tmp_path):
    """Under its own name, so that nothing is lost by a mistake."""
    path = tmp_path / "receipts.pem"
    old = load_key(path)
    new, kept = rotate(path)
    assert load_key(path).name == new.name != old.name and kept is not None
    assert load_key(kept).name == old.name and stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert rotate(tmp_path / "other.pem")[1] is None
