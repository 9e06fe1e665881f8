"""Settlements survive the process that made them."""

import errno
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledger import OWNER, Maker

from cloud.api.ledger import spool as module
from cloud.api.ledger.spool import Spool, in_use, records


@pytest.fixture
def some(make):
    """Settlements, with and without nodes."""
    return [make.settlement(n, name=f"req_{n}", shares=((OWNER, n),) if n % 2 else ()) for n in range(1, 6)]


def taken(folder):
    return list(Spool(folder).take_over())


def test_what_was_appended_comes_back(tmp_path, some):
    """In order and with every field, after a close or a kill; then it is gone."""
    spool = Spool(tmp_path / "new" / "folder")
    for settlement in some:
        spool.append(settlement)
    spool.sync()
    spool.posted(0)
    spool.close()
    assert taken(spool._folder) == some and taken(spool._folder) == []
    assert not list(spool._folder.iterdir())


def test_a_living_process_keeps_its_own(tmp_path, some):
    """Another one takes nothing of it over, and can tell that it lives."""
    spool = Spool(tmp_path)
    assert not in_use(tmp_path) and not in_use(tmp_path / "missing")
    spool.append(some[0])
    assert taken(tmp_path) == [] and in_use(tmp_path)
    spool.posted(1)
    spool.close()
    assert not in_use(tmp_path) and not list(tmp_path.iterdir())


def test_posted_files_go(tmp_path, some, monkeypatch):
    """A file goes when all of it is posted and another one has begun, and not before."""
    monkeypatch.setattr(module, "SEGMENT_BYTES", 1)
    spool = Spool(tmp_path)
    for settlement in some:
        spool.append(settlement)
    assert len(list(tmp_path.iterdir())) == 5
    spool.posted(3)
    assert len(list(tmp_path.iterdir())) == 2
    spool.posted(2)
    assert len(list(tmp_path.iterdir())) == 1
    spool.append(some[0])
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(ValueError, match="more was posted"):
        spool.posted(2)
    spool.close()


def test_a_full_disk_leaves_no_half_record(tmp_path, some, monkeypatch):
    """The caller hears of it; what was written before and comes after is whole."""
    spool = Spool(tmp_path)
    spool.append(some[0])
    write = os.write

    def full(fd, data):
        if len(data) < 50:
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="full"):
            spool.append(some[1])
    spool.append(some[2])
    spool.close()
    assert taken(tmp_path) == [some[0], some[2]]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_torn_or_damaged_end_is_kept_aside(tmp_path_factory, data):
    """Everything before it comes back; it is never taken for a settlement, and never thrown away."""
    folder, make = tmp_path_factory.mktemp("torn"), Maker()
    some = [make.settlement(n, name=f"req_{n}") for n in range(3)]
    spool = Spool(folder)
    for settlement in some:
        spool.append(settlement)
    spool.close()
    [file] = folder.glob("*.spool")
    whole = file.read_bytes()
    ends = [end for end, _ in records(whole)]
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] if data.draw(st.booleans()) else whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]
    file.write_bytes(damaged)
    intact = sum(end <= at for end in ends)
    assert taken(folder) == some[:intact] and taken(folder) == []
    unread = [path.read_bytes() for path in folder.iterdir()]
    assert unread == ([damaged] if len(damaged) > ([0, *ends][intact]) else [])
