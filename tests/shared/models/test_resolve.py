"""What a user may write for a model."""

from pathlib import Path
from typing import Any

import pytest

from shared.errors import ModelError
from shared.models import hub
from shared.models.resolve import resolve


def test_a_catalogue_name_is_fetched(index: Any, cache: Path, listener: Any) -> None:
    """A name leads to the cached folder, fetched when it is missing."""
    index.add(1)
    index.add(2)
    assert resolve("tiny", listener) == cache / "tiny"


def test_a_local_folder_is_itself(tmp_path: Path) -> None:
    """As text or as a path."""
    (tmp_path / "config.json").write_text("{}")
    assert resolve(str(tmp_path)) == tmp_path
    assert resolve(tmp_path) == tmp_path


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    """The message says what is missing."""
    with pytest.raises(ModelError, match=r"without config\.json"):
        resolve(tmp_path)


@pytest.mark.parametrize("text", ["/no/such/folder", "./nothing", "a/b/c"])
def test_a_missing_folder_is_not_asked_for_at_the_hub(text: str) -> None:
    """Only owner/name is a hub id."""
    with pytest.raises(ModelError, match="there is no folder"):
        resolve(text)


def test_a_hub_id_without_a_hub_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is named, not the hub client's stack of errors."""
    monkeypatch.setattr(hub, "hub_answers", lambda: False)
    with pytest.raises(ModelError, match="nobody/nothing is not on this machine and the model hub"):
        resolve("nobody/nothing")


def test_an_unknown_name_lists_near_ones(cache: Path) -> None:
    """The same words as the catalogue's own."""
    with pytest.raises(ModelError, match=r"did you mean qwen2\.5-coder-0\.5b"):
        resolve("qwen-coder-0.5b")
