"""Runs the gateway's application under uvicorn until it is told to stop."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from cloud.api.settings import GatewaySettings
from shared.wire.limits import Limits as WireLimits


def uvicorn_config(app: ASGIApp, settings: GatewaySettings) -> uvicorn.Config:
    """WebSocket frames are bounded by the node protocol's limit and are not compressed."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ws="websockets-sansio",
        ws_max_size=WireLimits().node_frame,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.limits.shutdown_s,
        lifespan="on",
    )


class Server(uvicorn.Server):
    """Prints one line with the address once it serves; port 0 becomes the real port."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(f"Nexus gateway ready: {self.url()}", flush=True)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the process ends with 0 after a graceful stop instead of dying by the signal."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def url(self) -> str:
        """Address of the API, for a client's `base_url`."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
