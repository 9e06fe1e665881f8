"""`python -m cloud.terminal.keeper GRACE COMMAND…`: runs a command and sees to it that nothing of it is left.

Not meant to be run by hand. It ends the command and all processes that come from it, in whatever session or process
group they are, when its standard input closes (whoever started it is gone, however that happened), on SIGTERM, and
when the command itself ends. SIGINT skips the grace. Its exit status is the command's (128 + n for signal n).
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05


class Keeper:
    """One command. Descendants whose parents have died become this process's children, so that none is lost
    (on Linux; elsewhere those in the same process group are found)."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._child = 0
        self._status: int | None = None
        self._at_once = False
        self._stop = False

    def run(self, command: list[str]) -> int:
        wake_r, wake_w = os.pipe()
        os.set_blocking(wake_w, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._asked(at_once=False))
        signal.signal(signal.SIGINT, lambda *_: self._asked(at_once=True))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        prctl = _Prctl()
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            )
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
            return 127
        self._child = child.pid
        while not self._stop and self._status is None:
            ready, _, _ = select.select([0, wake_r], [], [])
            if wake_r in ready:
                os.read(wake_r, 512)
                self._reap()
            if 0 in ready and not os.read(0, 512):
                self._stop = True
        self._end()
        child.returncode = self._status or 0
        return child.returncode

    def _asked(self, *, at_once: bool) -> None:
        self._stop = True
        self._at_once |= at_once

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._child:
                    code = os.waitstatus_to_exitcode(status)
                    self._status = code if code >= 0 else 128 - code

    def _end(self) -> None:
        """SIGTERM to the command, or to what it left; SIGKILL to everything after the grace."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGTERM)
        else:
            self._signal(signal.SIGTERM)
        until = time.monotonic() + self._grace_s
        while self._left() and not self._at_once and time.monotonic() < until:
            time.sleep(_POLL_S)
        while self._left():
            self._signal(signal.SIGKILL)
            time.sleep(_POLL_S)

    def _left(self) -> list[psutil.Process]:
        self._reap()
        found = {process.pid: process for process in psutil.Process().children(recursive=True)}
        if sys.platform != "linux":
            found |= {
                p.pid: p for p in psutil.process_iter() if p.pid != os.getpid() and _group(p.pid) == os.getpgid(0)
            }
        return [process for process in found.values() if _alive(process)]

    def _signal(self, number: int) -> None:
        for process in self._left():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


class _Prctl:
    """The system call on Linux, nothing elsewhere; looked up once, before any fork."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def __call__(self, option: int, value: int) -> None:
        if self._call is not None:
            self._call(option, value, 0, 0, 0)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(Keeper(float(sys.argv[1])).run(sys.argv[2:]))
