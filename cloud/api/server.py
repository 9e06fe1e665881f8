"""Runs the gateway's application under uvicorn until it is told to stop."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp

from cloud.api.malformed import JsonHttpProtocol
from cloud.api.settings import GatewaySettings
from shared.wire.limits import Limits as WireLimits


def uvicorn_config(app: ASGIApp, settings: GatewaySettings) -> uvicorn.Config:
    """WebSocket frames are bounded by the node protocol's limit and are not compressed."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=JsonHttpProtocol,
        ws="websockets-sansio",
        ws_max_size=WireLimits().node_frame,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.limits.shutdown_s,
        lifespan="on",
    )


class Draining(Protocol):
    """What has to come to an end before the server does; `cloud.api.admission.gate` is one."""

    def drain(self) -> None:
        """Take nothing new on."""
        ...

    async def idle(self) -> None:
        """Wait until nothing is at work."""
        ...


class Server(uvicorn.Server):
    """Prints one line with the address once it serves; port 0 becomes the real port.

    The first signal drains: the server keeps answering, new work is refused with 503, and it ends when running answers
    have, or after `limits.shutdown_s`. A second signal ends it without waiting.
    """

    def __init__(self, config: uvicorn.Config, work: Draining, *, stalled_s: float = 60.0) -> None:
        """`stalled_s`: a connection whose caller takes nothing for so long is dropped, with all that waits for it."""
        super().__init__(config)
        self._work = work
        self._stalled_s = stalled_s
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._drop_stalled_connections()
            print(f"Nexus gateway ready: {self.url()}", flush=True)

    def _drop_stalled_connections(self) -> None:
        """Leave it to the system (RFC 5482): closing a connection waits for what was written, and that may never go
        out. Accepted connections inherit the option.
        """
        if (option := getattr(socket, "TCP_USER_TIMEOUT", None)) is None:
            return
        for server in self.servers:
            for listening in server.sockets:
                if listening.family in (socket.AF_INET, socket.AF_INET6):
                    with socket.socket(fileno=os.dup(listening.fileno())) as same:
                        same.setsockopt(socket.IPPROTO_TCP, option, round(self._stalled_s * 1000))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the process ends with 0 after a graceful stop instead of dying by the signal."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            if self._drain is not None:
                self._drain.cancel()
            for number in signals:
                loop.remove_signal_handler(number)

    def _signalled(self, number: signal.Signals) -> None:
        if self._drain is None:
            self._work.drain()
            self._drain = asyncio.create_task(self._end_when_idle(number))
        else:
            self.handle_exit(number, None)

    async def _end_when_idle(self, number: signal.Signals) -> None:
        began = time.monotonic()
        allowed = self.config.timeout_graceful_shutdown or 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(allowed):
                await self._work.idle()
        # What is left of the time is for the last bytes of answers to go out.
        self.config.timeout_graceful_shutdown = max(1, round(allowed - (time.monotonic() - began)))
        self.handle_exit(number, None)

    def url(self) -> str:
        """Address of the API, for a client's `base_url`."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
