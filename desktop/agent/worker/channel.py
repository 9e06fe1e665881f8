"""The worker's end of the pipe, and its promise never to outlive the agent."""

import ctypes
import os
import queue
import signal
import socket
import sys
import threading
from typing import Final

from desktop.agent.worker.frames import encode, worker_side
from desktop.agent.worker.messages import FromWorker, ToWorker
from shared.errors import NexusError

_PR_SET_PDEATHSIG: Final = 1
EXIT_ORPHANED: Final = 3
"""Status of a worker that ended because its agent is gone."""


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when its parent ends. Elsewhere the pipe's end of file does it alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(EXIT_ORPHANED)


class Channel:
    """Messages over one connected socket.

    A thread of its own reads, and ends the process at once at end of file or on a malformed frame, even while
    the engine hangs inside a step.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._inbox: queue.SimpleQueue[ToWorker] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="agent-pipe", daemon=True).start()

    def receive(self, *, wait: bool) -> ToWorker | None:
        """The next message; without `wait`, None when there is none."""
        try:
            return self._inbox.get(block=wait)
        except queue.Empty:
            return None

    def send(self, message: FromWorker) -> None:
        try:
            self._connection.sendall(encode(message))
        except OSError:
            os._exit(EXIT_ORPHANED)

    def _read(self) -> None:
        reader = worker_side()
        try:
            while data := self._connection.recv(1 << 16):
                for message in reader.feed(data):
                    self._inbox.put(message)
        except (OSError, NexusError) as exc:
            print(f"draft worker: the pipe to the agent failed: {exc}", file=sys.stderr, flush=True)
        os._exit(EXIT_ORPHANED)
