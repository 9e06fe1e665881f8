"""The processes that the demo runs: each has a life cycle, a log file, and a keeper that leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from shared.errors import LocalMisuse

GRACE_S: Final = 10.0
"""Time that a part gets to end by itself."""
TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 64 << 10
_KILL_S: Final = 10.0
"""Beyond the grace, for the keeper to end what did not end by itself."""


class State(Enum):
    """Where a part is in its life."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Event(Enum):
    """What happens to a part."""

    ANSWERED = "answered"
    """Its readiness check succeeded."""
    OVERDUE = "overdue"
    EXITED = "exited"
    """The process has ended, and all that came from it."""
    STOP = "stop"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.STARTING, Event.ANSWERED): State.READY,
    (State.STARTING, Event.OVERDUE): State.FAILED,
    (State.STARTING, Event.EXITED): State.FAILED,
    (State.STARTING, Event.STOP): State.STOPPING,
    (State.READY, Event.EXITED): State.FAILED,
    (State.READY, Event.STOP): State.STOPPING,
    (State.FAILED, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.EXITED): State.STOPPED,
}
"""(state, event) → next state; what is missing cannot happen."""


@dataclass(frozen=True, kw_only=True)
class PartSpec:
    """How to start one part and how to know that it is ready."""

    name: str
    """Short and unique; also names the log file."""
    title: str
    """For people."""
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the demo's own environment."""
    is_ready: Callable[[], bool]
    """Asked again and again until it is true; must return within seconds."""
    timeout_s: float


class Part:
    """One process. `start`, then `check` again and again; in the end `stop` and `wait`."""

    def __init__(
        self,
        spec: PartSpec,
        folder: Path,
        *,
        environ: Mapping[str, str] | None = None,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self.log = folder / f"{spec.name}.log"
        self.state = State.STARTING
        self.failure = ""
        """Why it failed, for people; empty while it did not."""
        self._environ = os.environ if environ is None else environ
        self._grace_s = grace_s
        self._clock = clock
        self._began = 0.0
        self._seconds: float | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the keeper, which starts the command in a session of its own."""
        self._began = self._clock()
        with self.log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "cloud.terminal.keeper", str(self._grace_s), *self.spec.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._environ, "PYTHONUNBUFFERED": "1", **self.spec.env},
                start_new_session=True,
            )

    @property
    def started(self) -> bool:
        return self._keeper is not None

    @property
    def pid(self) -> int:
        """Of the keeper, which leads the part's process group."""
        assert self._keeper is not None
        return self._keeper.pid

    @property
    def seconds(self) -> float:
        """From the start until it was ready, or until now."""
        return self._clock() - self._began if self._seconds is None else self._seconds

    def check(self) -> State:
        """Looks at the process and, while it starts, asks whether it is ready."""
        assert self._keeper is not None
        if self.state in (State.STARTING, State.READY):
            status = self._keeper.poll()
            if status is not None:
                self._advance(Event.EXITED)
                self.failure = f"{self.spec.title} ended {_in_words(status)}"
            elif self.state is State.STARTING and self.spec.is_ready():
                self._seconds = self.seconds
                self._advance(Event.ANSWERED)
            elif self.state is State.STARTING and self.seconds > self.spec.timeout_s:
                self._advance(Event.OVERDUE)
                self.failure = f"{self.spec.title} was not ready after {self.spec.timeout_s:.0f} s"
        return self.state

    def stop(self) -> None:
        """Asks it to end, and returns at once."""
        if self._keeper is None or self.state in (State.STOPPING, State.STOPPED):
            return
        self._advance(Event.STOP)
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()

    def hurry(self) -> None:
        """No more grace: everything of it is killed."""
        if self._keeper is not None and self._keeper.poll() is None:
            self._keeper.send_signal(signal.SIGINT)

    def wait(self) -> None:
        """Until nothing is left of it. After `stop`."""
        if self._keeper is None or self.state is State.STOPPED:
            return
        try:
            status = self._keeper.wait(self._grace_s + _KILL_S)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        if status == -signal.SIGKILL:  # the keeper is stuck or was killed itself, and cannot do its work
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._keeper.pid, signal.SIGKILL)
            self._keeper.wait()
        self._advance(Event.EXITED)

    def tail(self, lines: int = TAIL_LINES) -> list[str]:
        """The last lines that it wrote."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return log.read().decode(errors="replace").splitlines()[-lines:]
        except OSError:
            return []

    def _advance(self, event: Event) -> None:
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise LocalMisuse(f"Part {self.spec.name}: {event.value} cannot happen while {self.state.value}.")
        self.state = following


class Parts:
    """All parts together."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def start(self) -> None:
        for part in self._parts:
            part.start()

    def failed(self) -> Part | None:
        """Looks at every part; the first that failed."""
        states = [(part, part.check()) for part in self._parts]
        return next((part for part, state in states if state is State.FAILED), None)

    @property
    def started(self) -> bool:
        """Whether any process was started."""
        return any(part.started for part in self._parts)

    def end(self) -> None:
        """Ends them side by side and returns when nothing is left. Ctrl-C meanwhile takes away their grace."""
        while any(part.started and part.state is not State.STOPPED for part in self._parts):
            try:
                for part in self._parts:
                    part.stop()
                for part in self._parts:
                    part.wait()
            except KeyboardInterrupt:
                for part in self._parts:
                    part.hurry()


def _in_words(status: int) -> str:
    if status < 0 or status > 128:
        number = -status if status < 0 else status - 128
        with contextlib.suppress(ValueError):
            name = signal.Signals(number).name
            return f"by {name}" + (" (was memory short?)" if name == "SIGKILL" else "")
    return f"with status {status}"
