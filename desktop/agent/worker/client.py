"""The agent's end: starts the worker in a process group of its own, talks to it, and ends it."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from typing import IO, Final, Self

from desktop.agent.worker.frames import agent_side, encode
from desktop.agent.worker.messages import FromWorker, Start, ToWorker

_STDERR: Final = 2


class WorkerClient:
    """One worker process. Call from one event loop; `close` (or `kill` and `wait`) when done.

    The worker dies with this process, however it ends. On Linux that binds it to the thread which called
    `spawn`, so call it from one that lasts, as the event loop's own does.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def spawn(
        cls,
        start: Start,
        *,
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
        log: IO[bytes] | int | None = None,
    ) -> Self:
        """Start a worker and tell it what to load; its first messages are `Loading`, then `Ready` or `Failed`.

        `env` is added to this process's environment (CUDA_VISIBLE_DEVICES, for one). What the engine
        prints goes to `log`, or to this process's error output.
        """
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                python,
                "-m",
                "desktop.agent.worker",
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_STDERR if log is None else log,
                stderr=log,
                env={**os.environ, **(env or {})},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        client = cls(process, reader, writer)
        await client.send(start)
        return client

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, message: ToWorker) -> None:
        """Queue a message and wait while the pipe is full. A worker that is gone is not an error here:
        `messages` ends and `wait` says how it went."""
        data = encode(message)
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._writer.write(data)
            await self._writer.drain()

    async def messages(self) -> AsyncIterator[FromWorker]:
        """Everything the worker says, until its end of the pipe closes. Read by one task only."""
        reader = agent_side()
        while data := await self._read():
            for message in reader.feed(data):
                yield message

    def __aiter__(self) -> AsyncIterator[FromWorker]:
        return self.messages()

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(1 << 16)
        except ConnectionError:
            return b""

    def kill(self) -> None:
        """End the whole process group at once."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """The exit status, negative for a signal; returns when the process has ended."""
        return await self._process.wait()

    async def close(self) -> int:
        """Kill, wait and free the pipe; the exit status. Safe to call twice."""
        self.kill()
        status = await self.wait()
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        return status


def describe_exit(status: int) -> str:
    """How a worker ended, in words."""
    if status == 0:
        return "The draft worker ended as asked."
    if status == -signal.SIGKILL:
        return "The draft worker was killed; if nobody did so on purpose, the machine ran out of memory."
    if status < 0:
        return f"The draft worker crashed with {signal.Signals(-status).name}. Its log says more."
    return f"The draft worker ended with status {status}. Its log says more."
