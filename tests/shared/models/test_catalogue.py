"""The catalogue is well-formed, and its errors help."""

import re

import pytest

from shared.errors import ModelError
from shared.models.catalogue import CATALOGUE, Entry, HubSource, PypiSource, find, names


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_every_entry_can_be_checked_and_had_without_the_hub(entry: Entry) -> None:
    """The hub comes first, and a package source has a hash, a size and distinct parts."""
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", entry.name)
    assert entry.licence == "Apache-2.0"
    assert isinstance(entry.sources[0], HubSource)
    packaged = [source for source in entry.sources if isinstance(source, PypiSource)]
    assert packaged
    for source in packaged:
        assert re.fullmatch(r"[0-9a-f]{64}", source.sha256)
        assert source.size > 0
        assert len({part.package for part in source.parts}) == len(source.parts)
        assert all(part.version for part in source.parts)


def test_names_are_unique_and_found() -> None:
    """Each name leads to its own entry."""
    assert len(set(names())) == len(CATALOGUE)
    assert [find(name).name for name in names()] == names()


def test_parts_are_numbered_in_order() -> None:
    """Concatenation needs part 10 after part 9."""
    source = find("qwen2.5-coder-1.5b").sources[1]
    assert isinstance(source, PypiSource)
    assert [part.suffix for part in source.parts][8:11] == [
        "/data/part09.bin",
        "/data/part10.bin",
        "/data/part11.bin",
    ]


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    """A typing mistake is answered with the name that was meant."""
    with pytest.raises(ModelError, match=r"did you mean smollm2-135m"):
        find("smollm-135")
    with pytest.raises(ModelError, match=r"known names: smollm2-135m, qwen2\.5-coder-0\.5b"):
        find("zzzz")
