"""The demo as a whole, with stand-ins in place of verifier and agent."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from cloud.terminal import recipe
from cloud.terminal.recipe import STANDARD, TINY

Marked = Callable[[], list[int]]
SCRIPT = Path(__file__).resolve().parent / "stand_in_demo.py"


class Run:
    """A running demo with stand-ins."""

    def __init__(self, folder: Path, mark: str, kind: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.out = folder.with_suffix(".out")
        with self.out.open("wb") as out:
            command = [sys.executable, str(SCRIPT), str(folder), mark, kind]
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def text(self) -> str:
        return self.out.read_text()

    def status(self) -> int:
        return self.process.wait()


@pytest.fixture
def start(tmp_path: Path, mark: str, marked: Marked) -> Callable[[str], Run]:
    return lambda kind: Run(tmp_path / "run", mark, kind)


def test_once_prints_everything_and_ends(start: Callable[[str], Run], marked: Marked) -> None:
    """Address, key, snippets, answer, figures; status 0, nothing left, logs removed."""
    run = start("good")
    assert run.status() == 0, run.text()
    text = run.text()
    for expected in (
        "large answers, small drafts for it",
        "verifier (x)                       ready after",
        "key    right-key",
        "curl http://127.0.0.1:",
        "from openai import OpenAI",
        "nexus chat --url",
        "Prompt: Capital of France?\n\nParis is the capital.\n",
        "  verify steps     2\n  tokens per step  2.50\n  acceptance       50% (2 of 4 drafted tokens)\n",
        "Stopping… all processes have ended.\n",
    ):
        assert expected in text
    assert "■" not in text  # no legend without colours
    assert "\x1b" not in text
    assert marked() == []
    assert not run.folder.exists()


def test_colours_and_their_legend(start: Callable[[str], Run], marked: Marked) -> None:
    """The legend comes before the answer, in the same colours."""
    run = start("coloured")
    assert run.status() == 0, run.text()
    assert run.text().index("\x1b[32m■ drafted and accepted\x1b[0m") < run.text().index("\x1b[32mParis\x1b[0m")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_snippets_run_as_they_are_printed(
    start: Callable[[str], Run], eventually: Callable[..., None], marked: Marked
) -> None:
    """Pasted from the terminal; the Python one is valid Python."""
    run = start("stays")
    eventually(lambda: "until Ctrl-C" in run.text())
    block = run.text().split("from another terminal:\n")[1].split("Prompt:")[0]
    lines = [line.removeprefix("    ") for line in block.strip("\n").splitlines()]
    curl = "\n".join(lines[: lines.index("")])
    python = "\n".join(line for line in lines[lines.index("") + 1 :] if "nexus chat" not in line)
    compile(python, "snippet", "exec")
    done = subprocess.run(["sh", "-c", curl], capture_output=True, text=True, check=False)
    assert "Paris" in done.stdout, done.stderr
    run.process.send_signal(signal.SIGINT)
    assert run.status() == 0


def test_ctrl_c_ends_it_cleanly(start: Callable[[str], Run], eventually: Callable[..., None], marked: Marked) -> None:
    """After the answer that is its normal end."""
    run = start("stays")
    eventually(lambda: "until Ctrl-C" in run.text())
    assert len(marked()) > 4
    run.process.send_signal(signal.SIGINT)
    assert run.status() == 0
    assert run.text().endswith("Stopping… all processes have ended.\n")
    assert "Traceback" not in run.text()
    assert marked() == []


def test_sigterm_ends_it_cleanly(start: Callable[[str], Run], eventually: Callable[..., None], marked: Marked) -> None:
    """As a service manager or a closing session sends it."""
    run = start("stays")
    eventually(lambda: "until Ctrl-C" in run.text())
    run.process.terminate()
    assert run.status() == 143
    assert "Traceback" not in run.text()
    assert marked() == []


def test_sigkill_leaves_nothing(start: Callable[[str], Run], eventually: Callable[..., None], marked: Marked) -> None:
    """The keepers notice and end their parts."""
    run = start("stays")
    eventually(lambda: "until Ctrl-C" in run.text())
    run.process.kill()
    run.status()
    eventually(lambda: not marked())


def test_a_part_that_fails_shows_its_log(start: Callable[[str], Run], marked: Marked) -> None:
    """The last 20 lines, a status that says so, and the logs are kept."""
    run = start("broken")
    assert run.status() == 1
    assert "Error: the verifier (x) ended with status 3. The end of its log:\n    line 20\n" in run.text()
    assert "    line 39\n" in run.text()
    assert f"The logs are in {run.folder}." in run.text()
    assert (run.folder / "verifier.log").exists()
    assert marked() == []


def test_a_part_that_dies_later_ends_the_demo(
    start: Callable[[str], Run], eventually: Callable[..., None], marked: Marked
) -> None:
    """It does not stay up with a part missing."""
    run = start("stays")
    eventually(lambda: "until Ctrl-C" in run.text())
    processes = map(psutil.Process, marked())
    (gateway,) = [process for process in processes if process.cmdline()[1].endswith("fake_gateway.py")]
    gateway.kill()
    assert run.status() == 1
    assert "Error: the gateway ended by SIGKILL" in run.text()
    assert marked() == []


def test_answers_without_accepted_drafts_fail_in_the_end(start: Callable[[str], Run], marked: Marked) -> None:
    """It asks three times; the figures are printed all the same."""
    run = start("undrafted")
    assert run.status() == 1
    assert run.text().count("  acceptance       no drafts\n") == 3
    assert run.text().count("Asking once more") == 2
    assert "Something is wrong: no drafted token was accepted" in run.text()
    assert marked() == []


def test_models_that_cannot_be_fetched_end_it_before_anything_starts(start: Callable[[str], Run]) -> None:
    """The fetch command has said why."""
    run = start("unfetched")
    assert run.status() == 1
    assert "Error: The models could not be fetched" in run.text()
    assert "Starting" not in run.text()


@pytest.mark.parametrize("pair", [STANDARD, TINY])
def test_the_real_recipe_fits_together(tmp_path: Path, pair: recipe.Pair) -> None:
    """Draft port, ports and key file are the same on both ends, the key is in no command line and kept private."""
    made = recipe.recipe(pair, folder=tmp_path, port=0, draft=4, key="nx-secret")
    verifier, gateway, agent = (list(part.command) for part in made.parts)
    endpoint = verifier[verifier.index("--draft-port") + 1]
    url = f"http://127.0.0.1:{verifier[verifier.index('--port') + 1]}"
    assert gateway[gateway.index("--verifier") + 1] == f"{url}={endpoint}-0"
    assert made.url == f"{agent[agent.index('--gateway') + 1]}/v1"
    assert made.url.endswith(f":{gateway[gateway.index('--port') + 1]}/v1")
    assert not any("nx-secret" in argument for part in made.parts for argument in part.command)
    keys = Path(gateway[gateway.index("--api-keys-file") + 1])
    assert keys.read_text() == "nx-secret\n"
    assert keys.stat().st_mode & 0o077 == 0


def test_the_users_own_settings_stay_out(tmp_path: Path) -> None:
    """A demo does not serve with the settings of a real gateway or agent."""
    environ = {"NEXUS_GATEWAY_PORT": "1", "NEXUS_AGENT_MODEL": "x", "NEXUS_CACHE_DIR": "/c", "PATH": "/p"}
    assert recipe.clean_environment(environ, tmp_path) == {
        "NEXUS_CACHE_DIR": "/c",
        "PATH": "/p",
        "NEXUS_CONFIG_DIR": f"{tmp_path}/config",
        "NEXUS_RUNTIME_DIR": str(tmp_path),
    }


@pytest.mark.parametrize(
    ("cores", "shares"),
    [([], (None, None)), ([3], (None, None)), ([0, 1], ("0", "1")), ([0, 2, 4, 6, 7], ("0,2,4", "6,7"))],
)
def test_verifier_and_node_share_no_core(cores: list[int], shares: tuple[str | None, str | None]) -> None:
    """Where there are two cores at least."""
    assert recipe.share_cores(cores) == shares
