"""The commands that README.md and CONTRIBUTING.md show are real."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "bench/README.md")
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code(page: str) -> str:
    """The fenced, indented and inline code of a page."""
    text = (ROOT / page).read_text()
    fenced = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*fenced, *re.findall(r"^ {4}(.*)$", text, re.MULTILINE), *re.findall(r"`([^`\n]+)`", text)])


def nexus_commands() -> list[tuple[str, ...]]:
    """Every `nexus …` in the pages: the words before the first argument, flag or capital."""
    found = {match for page in PAGES for match in re.findall(r"\bnexus((?: [a-z][a-z-]*)+)", code(page))}
    return sorted({tuple(words.split()[:2]) for words in found})


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_in_the_pages_exist(page: str) -> None:
    """`make something` works as shown."""
    assert set(re.findall(r"\bmake ([a-z]+)", code(page))) <= TARGETS


def test_the_help_lists_every_target() -> None:
    """`make` teaches all of the Makefile."""
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z]+) ", shown, re.MULTILINE)) == TARGETS


def test_ci_calls_the_same_commands() -> None:
    """CI has no way of its own."""
    script = (ROOT / ".ci/run").read_text()
    assert "\nmake lint" in script
    assert "\nmake test" in script


def test_the_pages_show_commands_to_check() -> None:
    """The next test is not empty."""
    assert {("models", "fetch"), ("verifier", "serve"), ("gateway", "serve"), ("agent", "run")} <= set(nexus_commands())


@pytest.mark.parametrize("command", nexus_commands(), ids=" ".join)
def test_nexus_commands_in_the_pages_exist(command: tuple[str, ...]) -> None:
    """Each shown sub-command has a help page."""
    shown = subprocess.run(
        [sys.executable, "-c", "from shared.cli import main; main()", *command, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    """Relative links name files that exist."""
    for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / link).exists(), link
