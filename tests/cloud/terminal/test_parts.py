"""The processes of the demo: their life cycle, and that nothing is left of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cloud.terminal.parts import TRANSITIONS, Event, Part, Parts, PartSpec, State
from shared.errors import LocalMisuse

Marked = Callable[[], list[int]]
WAITS = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
FAMILY = f"""
import subprocess, sys, time
for apart in (True, False):
    child = subprocess.Popen(
        [sys.executable, "-c", {STUBBORN!r}, sys.argv[1]], start_new_session=apart, stdout=subprocess.PIPE
    )
    child.stdout.readline()
print("up", flush=True)
time.sleep(600 if len(sys.argv) < 3 else 0)
"""
"""Two children that ignore SIGTERM, one of them in a session of its own."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def make(tmp_path: Path, mark: str) -> Iterator[Callable[..., Part]]:
    """Starts a part with Python code as its command; it is ready when it has printed `up`."""
    parts: list[Part] = []

    def start(code: str, *arguments: str, grace_s: float = 0.2, clock: Callable[[], float] | None = None) -> Part:
        log = tmp_path / "part.log"
        spec = PartSpec(
            name="part",
            title="part of a test",
            command=[sys.executable, "-c", code, mark, *arguments],
            is_ready=lambda: "up" in log.read_text(),
            timeout_s=60.0,
        )
        part = Part(spec, tmp_path, grace_s=grace_s, **({} if clock is None else {"clock": clock}))
        parts.append(part)
        part.start()
        return part

    yield start
    Parts(parts).end()


def test_the_table_has_every_state_and_ends_in_one() -> None:
    """From each state a stop leads to the end, and nothing leads out of it."""
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.STOPPED}
    for state in (State.STARTING, State.READY, State.FAILED):
        stopping = TRANSITIONS[state, Event.STOP]
        assert TRANSITIONS[stopping, Event.EXITED] is State.STOPPED


def test_what_the_table_does_not_have_is_refused(tmp_path: Path) -> None:
    """A mistake of our own is named."""
    part = Part(PartSpec(name="x", title="x", command=["x"], is_ready=lambda: True, timeout_s=1), tmp_path)
    part.state = State.STOPPED
    with pytest.raises(LocalMisuse, match="answered cannot happen while stopped"):
        part._advance(Event.ANSWERED)


def test_a_part_becomes_ready_and_stops(
    make: Callable[..., Part], eventually: Callable[..., None], marked: Marked
) -> None:
    """SIGTERM is enough for a command that heeds it."""
    part = make(WAITS, grace_s=60.0)
    eventually(lambda: part.check() is State.READY)
    assert len(marked()) == 2  # the keeper's own command line holds the mark as well
    part.stop()
    part.wait()
    assert part.state is State.STOPPED
    assert marked() == []


def test_children_of_children_are_ended_too(
    make: Callable[..., Part], eventually: Callable[..., None], marked: Marked
) -> None:
    """Those that ignore SIGTERM, and those in a session of their own."""
    part = make(FAMILY)
    eventually(lambda: part.check() is State.READY)
    assert len(marked()) == 4
    part.stop()
    part.wait()
    assert marked() == []


def test_a_command_that_ends_leaves_no_children(
    make: Callable[..., Part], eventually: Callable[..., None], marked: Marked
) -> None:
    """Its exit is reported when what it left has been ended."""
    part = make(FAMILY, "ends")
    eventually(lambda: part.check() is State.FAILED)
    assert part.failure == "part of a test ended with status 0"
    assert marked() == []


def test_a_part_that_exits_shows_the_end_of_its_log(make: Callable[..., Part], eventually: Callable[..., None]) -> None:
    """With its status in words."""
    part = make("import sys; print('\\n'.join(map(str, range(50)))); sys.exit(7)")
    eventually(lambda: part.check() is State.FAILED)
    assert part.failure == "part of a test ended with status 7"
    assert part.tail(3) == ["47", "48", "49"]


def test_a_part_that_is_killed_says_so(
    make: Callable[..., Part], eventually: Callable[..., None], marked: Marked
) -> None:
    """As the kernel does when memory is short."""
    part = make(WAITS)
    eventually(lambda: part.check() is State.READY)
    os.kill(next(pid for pid in marked() if pid != part.pid), signal.SIGKILL)
    eventually(lambda: part.check() is State.FAILED)
    assert part.failure == "part of a test ended by SIGKILL (was memory short?)"


def test_a_part_that_is_not_ready_in_time_has_failed(make: Callable[..., Part]) -> None:
    """By the clock that it is given."""
    clock = Clock()
    part = make("import time; time.sleep(600)", clock=clock)
    assert part.check() is State.STARTING
    clock.now = 60.5
    assert part.check() is State.FAILED
    assert part.failure == "part of a test was not ready after 60 s"


def test_a_command_that_cannot_start_says_why(tmp_path: Path, eventually: Callable[..., None]) -> None:
    """Its name is in the log."""
    missing = str(tmp_path / "missing")
    part = Part(PartSpec(name="x", title="x", command=[missing], is_ready=lambda: False, timeout_s=60), tmp_path)
    part.start()
    eventually(lambda: part.check() is State.FAILED)
    assert part.tail() == [f"{missing}: No such file or directory"]
    Parts([part]).end()


def test_hurry_takes_away_the_grace(make: Callable[..., Part], eventually: Callable[..., None], marked: Marked) -> None:
    """What a second Ctrl-C does; the grace of an hour would outlast the test."""
    part = make(STUBBORN, grace_s=3600.0)
    eventually(lambda: part.check() is State.READY)
    part.stop()
    part.hurry()
    part.wait()
    assert marked() == []


def test_nothing_outlives_whoever_started_it(eventually: Callable[..., None], mark: str, marked: Marked) -> None:
    """SIGKILL of the parent closes the keeper's input, and that ends all."""
    code = f"""
import subprocess, sys
keeper = subprocess.Popen(
    [sys.executable, "-m", "cloud.terminal.keeper", "0.2", sys.executable, "-c", {FAMILY!r}, sys.argv[1]],
    stdin=subprocess.PIPE, start_new_session=True,
)
keeper.wait()
"""
    with subprocess.Popen([sys.executable, "-c", code, mark], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        assert len(marked()) == 5
        parent.kill()
        eventually(lambda: not marked())


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_the_command_dies_with_its_keeper(
    make: Callable[..., Part], eventually: Callable[..., None], marked: Marked
) -> None:
    """Even when the keeper itself is killed."""
    part = make(WAITS)
    eventually(lambda: part.check() is State.READY)
    psutil.Process(part.pid).kill()
    eventually(lambda: not marked())


def test_a_killed_keeper_leaves_nothing_in_its_group(
    make: Callable[..., Part], eventually: Callable[..., None], marked: Marked
) -> None:
    """What has no keeper any more is killed by its group."""
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAITS!r}, sys.argv[1]])"
    part = make(code)
    eventually(lambda: part.check() is State.READY)
    psutil.Process(part.pid).kill()
    eventually(lambda: part.check() is State.FAILED)
    part.stop()
    part.wait()
    eventually(lambda: not marked())
