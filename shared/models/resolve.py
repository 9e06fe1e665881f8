"""From what a user writes for a model to a folder that an engine loads."""

from pathlib import Path

from shared.errors import ModelError
from shared.models.catalogue import find, names
from shared.models.fetch import fetch, is_fetched
from shared.models.progress import Reporter

__all__ = ["is_fetched", "resolve"]


def resolve(name_or_path: str | Path, reporter: Reporter | None = None) -> Path:
    """The folder of a catalogue name, a local folder or a hub id (`owner/name`); fetched if it is missing.

    Blocks while it fetches. Raises ModelError with the remedy.
    """
    text = str(name_or_path)
    if text in names():
        return fetch(text, reporter)
    path = Path(text).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{text} is a folder without config.json, so it holds no model.")
        return path.resolve()
    if isinstance(name_or_path, Path) or path.is_absolute() or text.startswith((".", "~")):
        raise ModelError(f"there is no folder {text}; give one with config.json in it.")
    if text.count("/") == 1:
        from shared.models.hub import snapshot

        return snapshot(text)
    if "/" in text:
        raise ModelError(f"there is no folder {text}, and a hub id has one slash (owner/name).")
    return fetch(find(text).name, reporter)
