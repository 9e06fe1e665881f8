"""A uvicorn server in the test's own event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import uvicorn


@contextlib.asynccontextmanager
async def serving(config: uvicorn.Config) -> AsyncIterator[str]:
    """Run a uvicorn server in this loop; gives its base URL."""
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    ready = asyncio.Event()
    startup = server.startup

    async def startup_and_tell(sockets: Any = None) -> None:
        await startup(sockets)
        ready.set()

    server.startup = startup_and_tell  # type: ignore[method-assign]
    task = asyncio.create_task(server._serve())
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task
