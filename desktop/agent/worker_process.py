"""`DraftWorker` on a real worker process: the pipe's messages on one side, the wire's on the other."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from desktop.agent.ports import Loaded
from desktop.agent.processes import end_group, members
from desktop.agent.report import Log
from desktop.agent.worker.client import WorkerClient, describe_exit
from desktop.agent.worker.messages import (
    AdvanceStream,
    CloseStream,
    DraftBlock,
    Failed,
    FromWorker,
    Loading,
    OpenStream,
    Ready,
    Shutdown,
    Start,
    StopAll,
    ToWorker,
)
from shared.errors import ConfigError, EngineError, LocalMisuse, ModelError, NexusError, ProtocolError
from shared.wire.messages import Advance, Draft, ModelOffer, Open

LOG_LIMIT: Final = 8 << 20
"""Bytes of the engine's log; a longer one is started anew."""


class ProcessWorker:
    """See `DraftWorker`. What the engine prints is appended to `log_file`."""

    def __init__(self, start: Start, env: Mapping[str, str], log_file: Path, log: Log) -> None:
        self._start = start
        self._env = env
        self._log_file = log_file
        self._log = log
        self._spawning: asyncio.Task[WorkerClient] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._messages: AsyncIterator[FromWorker] | None = None
        self._outgoing: asyncio.Queue[ToWorker] = asyncio.Queue()

    @property
    def pid(self) -> int | None:
        """The process's and its group's id, once there is one."""
        client = self._client()
        return client.pid if client is not None else None

    async def start(self) -> Loaded:
        with open_log(self._log_file) as engine_log:
            # Shielded: a process that is being started when this is cancelled must still be known to `stop`.
            self._spawning = asyncio.create_task(WorkerClient.spawn(self._start, env=self._env, log=engine_log))
            try:
                client = await asyncio.shield(self._spawning)
            except OSError as error:
                raise EngineError(f"The draft worker cannot be started: {error.strerror}.") from None
        self._sending = asyncio.create_task(self._send(client))
        self._messages = client.messages()
        async for message in self._read(client, self._messages):
            match message:
                case Ready():
                    offer = ModelOffer(
                        name=message.model, fingerprint=message.fingerprint, vocabulary=message.vocabulary
                    )
                    return Loaded(message.engine, (offer,), message.streams)
                case Loading():
                    self._log.debug("worker_stage", message=f"{message.stage.capitalize()}…")
                case _:
                    pass
        raise EngineError("The draft worker ended while it loaded.")

    async def drafts(self) -> AsyncIterator[Draft]:
        client = self._client()
        if client is None or self._messages is None:
            raise LocalMisuse("A draft worker drafts after it was started.")
        async for message in self._read(client, self._messages):
            match message:
                case DraftBlock():
                    yield Draft(
                        stream=message.stream,
                        epoch=message.epoch,
                        pos=message.pos,
                        tokens=message.tokens,
                        candidate=message.candidate,
                    )
                case Failed():
                    self._log.debug(
                        "stream_failed",
                        message=f"No drafts for stream {message.stream}: {message.message}",
                        stream=message.stream,
                        reason=message.message,
                    )
                case _:
                    pass

    def open(self, message: Open) -> None:
        self._put(
            OpenStream(
                stream=message.stream,
                tokens=message.tokens,
                sampling=message.sampling,
                seed=message.seed,
                k=message.k,
                ahead=message.ahead,
                candidates=message.candidates,
            )
        )

    def advance(self, message: Advance) -> None:
        self._put(AdvanceStream(stream=message.stream, pos=message.pos, tokens=message.tokens))

    def close(self, stream: str) -> None:
        self._put(CloseStream(stream=stream))

    def stop_all(self) -> None:
        self._put(StopAll())

    async def stop(self, grace_s: float) -> None:
        if self._spawning is None:
            return
        try:
            client = await self._spawning
        except OSError:
            return  # there is no process
        if self._sending is not None:
            self._sending.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await client.send(Shutdown())
                await client.wait()
        await client.close()
        if members(client.pid):  # the leader is gone, children of its engine are not
            await end_group(client.pid, 0.0)

    async def _read(self, client: WorkerClient, messages: AsyncIterator[FromWorker]) -> AsyncIterator[FromWorker]:
        """Messages until the worker ends, which is an error in words."""
        try:
            async for message in messages:
                if isinstance(message, Failed) and message.stream is None:
                    raise _failure(message)
                yield message
        except ProtocolError as error:
            raise EngineError(f"The draft worker wrote nonsense: {error.message}") from None
        client.kill()  # it closed its pipe: whatever still runs is of no use
        raise EngineError(f"{describe_exit(await client.wait())} Log: {self._log_file}")

    async def _send(self, client: WorkerClient) -> None:
        while True:
            await client.send(await self._outgoing.get())

    def _put(self, message: ToWorker) -> None:
        self._outgoing.put_nowait(message)

    def _client(self) -> WorkerClient | None:
        return self._spawning.result() if self._spawning is not None and self._spawning.done() else None


def open_log(path: Path) -> IO[bytes]:
    """The engine's log, to append to. Raises ConfigError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
        if file.tell() > LOG_LIMIT:
            os.truncate(path, 0)
    except OSError as error:
        raise ConfigError(
            f"The worker's log {path} cannot be written: {error.strerror}. Choose another place with --worker-log.",
            param="worker_log",
        ) from None
    return file


def _failure(failed: Failed) -> NexusError:
    kinds: dict[str, Callable[[str], NexusError]] = {
        ConfigError.code: ConfigError,
        ModelError.code: ModelError,
    }
    return kinds.get(failed.code, EngineError)(failed.message)
