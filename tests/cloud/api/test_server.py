"""The server around the application."""

import asyncio
import socket

import pytest
from support.waiting import until

from cloud.api.server import Server, uvicorn_config
from cloud.api.settings import GatewaySettings, VerifierSettings

BLOCK = b"x" * (1 << 20)


class Nothing:
    """No work that would have to end."""

    def drain(self) -> None:
        pass

    async def idle(self) -> None:
        pass


async def endless(scope, receive, send):
    """Gives up in the middle of a body that nobody takes, as a stream with a stalled caller does."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        async with asyncio.timeout(0.2):
            while True:
                await send({"type": "http.response.body", "body": BLOCK, "more_body": True})
    except TimeoutError:
        pass


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
async def test_the_connection_of_a_stalled_caller_is_dropped(capsys):
    """What was written for a caller who takes nothing does not keep its connection, and the memory in it, for ever."""
    verifiers = [VerifierSettings(url="http://127.0.0.1:1", draft_ports=["ipc:///nowhere"])]
    settings = GatewaySettings(port=0, api_keys=["test-key-0123456789"], verifiers=verifiers)
    server = Server(uvicorn_config(endless, settings), Nothing(), stalled_s=0.5)
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.setblocking(False)
            await asyncio.get_running_loop().sock_connect(caller, (host, port))
            await asyncio.get_running_loop().sock_sendall(caller, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await until(lambda: bool(server.server_state.connections))
            await until(lambda: not server.server_state.connections)
    finally:
        server.should_exit = True
        await serving
    assert "ready" in capsys.readouterr().out
