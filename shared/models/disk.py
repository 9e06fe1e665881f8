"""Room on the disk: asked for before a fetch, and said in words when it runs out during one."""

import errno
import shutil
from pathlib import Path

from shared.errors import ModelError
from shared.models.progress import human_bytes

_ADVICE = "free some space or set NEXUS_CACHE_DIR to a larger disk, then run it again."


def require_room(folder: Path, name: str, needed: int) -> None:
    """Raise ModelError when the disk of `folder` has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{name} needs {human_bytes(needed)} free under {folder}, and {human_bytes(free)} are free; {_ADVICE}"
        )


def says_disk_full(text: str) -> bool:
    """Whether a child process's message is about a full disk."""
    return "No space left on device" in text or "os error 28" in text


def disk_full() -> ModelError:
    """The disk ran full; whole parts that were downloaded stay for the next try."""
    return ModelError(f"the disk is full; {_ADVICE}")


def as_disk_full(error: BaseException) -> ModelError | None:
    """`error` as the full disk that it is, or None."""
    full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
    return disk_full() if full or says_disk_full(str(error)) else None
