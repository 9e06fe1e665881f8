"""docs/map.md and the packages say the same."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location("nexus_map", ROOT / "tools/map.py")
assert _spec is not None
assert _spec.loader is not None
nexus_map = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(nexus_map)


def package(root: Path, name: str, text: str) -> None:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(text)


def test_the_map_is_up_to_date() -> None:
    """Every package is on the map with the sentence of its docstring (mend with `make map`)."""
    page = (ROOT / "docs/map.md").read_text()
    assert page == nexus_map.updated(page, ROOT)


def test_every_top_level_folder_is_on_the_map() -> None:
    """Folders that hold no package of ours are in the second table."""
    page = (ROOT / "docs/map.md").read_text()
    listed = set(re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE))
    files = {path.parent for path in ROOT.glob("[a-z]*/*") if path.is_file()}
    there = {path.name for path in files if not path.name.endswith(".egg-info")} - {"build", "dist"}
    assert listed == there


def test_a_new_package_makes_the_map_old(tmp_path: Path) -> None:
    """The check sees what was added, in sub-packages too."""
    for top in nexus_map.OURS:
        package(tmp_path, top, '"""Something."""')
    before = nexus_map.table(tmp_path)
    package(tmp_path, "cloud/new", '"""New\nhere."""')
    assert nexus_map.table(tmp_path) != before
    assert "| `cloud/new` | New here. |" in nexus_map.table(tmp_path)


@pytest.mark.parametrize("text", ["", '"""No stop"""', '"""Two. Sentences."""'])
def test_a_package_without_its_one_sentence_is_refused(tmp_path: Path, text: str) -> None:
    """Missing, unfinished and long docstrings are named."""
    package(tmp_path, "cloud", text)
    with pytest.raises(nexus_map.MapError, match="cloud"):
        nexus_map.table(tmp_path)


def test_a_folder_with_modules_needs_an_init(tmp_path: Path) -> None:
    """A package cannot escape the map by having no `__init__.py`."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/loose.py").write_text("x = 1\n")
    with pytest.raises(nexus_map.MapError, match="shared holds modules"):
        nexus_map.table(tmp_path)
