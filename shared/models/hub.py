"""Models from the hub: complete folders that need no conversion."""

import shutil
from pathlib import Path

from shared.errors import ModelError
from shared.models.catalogue import HubSource
from shared.models.disk import as_disk_full
from shared.models.sources import hub_answers, hub_endpoint

# What vLLM reads. Repositories also carry the same weights in other formats.
_WANTED = ["*.safetensors", "*.json", "*.jinja", "merges.txt", "tokenizer.model"]


def download_folder(source: HubSource, staging: Path) -> tuple[Path, str]:
    """Download the repository below `staging` (continuing what is there); return the folder and `repo@revision`."""
    if not hub_answers():
        raise ModelError(f"the model hub ({hub_endpoint()}) cannot be reached")
    from huggingface_hub import HfApi, snapshot_download

    folder = staging / "hub"
    try:
        revision = HfApi().model_info(source.repo).sha
        snapshot_download(source.repo, revision=revision, local_dir=folder, allow_patterns=_WANTED)
    except Exception as error:  # the hub's client raises its own, the HTTP client's and the system's errors
        raise as_disk_full(error) or ModelError(
            f"{source.repo} could not be downloaded from the hub: {first_line(error)}"
        ) from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return folder, f"{source.repo}@{revision}"


def snapshot(repo: str) -> Path:
    """The folder of any hub repository in the hub client's own cache, downloaded if the hub can be reached."""
    from huggingface_hub import snapshot_download

    online = hub_answers()
    try:
        return Path(snapshot_download(repo, allow_patterns=_WANTED, local_files_only=not online))
    except Exception as error:
        if not online:
            raise ModelError(
                f"{repo} is not on this machine and the model hub ({hub_endpoint()}) cannot be reached; "
                "give a folder, or a name that `nexus models list` shows."
            ) from error
        raise as_disk_full(error) or ModelError(
            f"{repo} could not be had from the model hub: {first_line(error)}"
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its kind when it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
