"""An httpx2 transport for many long streams: HTTP/1.1 straight on the event loop's own transports.

The usual one spends most of the gateway's time for a chunk on layers that these streams do not need. Here, what has
come since the last look is one block, however many chunks it is, so the busier the gateway, the less a chunk costs.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx2

from cloud.api.upstream.http1 import Head, Malformed, ResponseReader

HIGH_WATER = 256 << 10
"""Bytes of a body that wait for the reader before the connection is held back."""
IDLE_S = 2.0
"""How long a connection is kept for another request: shorter than servers keep theirs, so that none ends under one."""
IDLE_LIMIT = 64
"""Connections kept to each server."""
_Origin = tuple[str, str, int]


class StreamTransport(httpx2.AsyncBaseTransport):
    """Raises httpx2's own errors. Closing a response before its end closes its connection at once."""

    def __init__(self) -> None:
        self._idle: dict[_Origin, list[_Connection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        limits = request.extensions.get("timeout", {})
        message = _encode(request, await request.aread())
        url = request.url
        origin = (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        connection = self._kept(origin) or await self._connect(origin, limits.get("connect"))
        try:
            head = await connection.ask(message, limits.get("read"))
        except BaseException:
            connection.abort()
            raise
        return httpx2.Response(
            head.status, headers=head.headers, stream=_Body(self, origin, connection, limits.get("read"))
        )

    async def aclose(self) -> None:
        """Closes the connections that are kept; those in use end with their responses."""
        for connection in [each for kept in self._idle.values() for each in kept]:
            connection.abort()
        self._idle.clear()

    def keep(self, origin: _Origin, connection: "_Connection") -> None:
        """Takes back a connection whose response has ended, for another request or not."""
        kept = self._idle.setdefault(origin, [])
        if connection.reusable and len(kept) < IDLE_LIMIT:
            kept.append(connection)
            connection.rest(IDLE_S, lambda: self._forget(origin, connection))
        else:
            connection.abort()

    def _kept(self, origin: _Origin) -> "_Connection | None":
        kept = self._idle.get(origin)
        while kept:
            connection = kept.pop()
            if connection.wake():
                return connection
        return None

    def _forget(self, origin: _Origin, connection: "_Connection") -> None:
        with contextlib.suppress(ValueError):
            self._idle[origin].remove(connection)
        connection.abort()

    async def _connect(self, origin: _Origin, timeout_s: float | None) -> "_Connection":
        scheme, host, port = origin
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    _Connection, host, port, ssl=self._context() if scheme == "https" else None
                )
        except TimeoutError:
            raise httpx2.ConnectTimeout("no connection in time") from None
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from None
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class _Connection(asyncio.Protocol):
    """One connection, one request at a time. A body's bytes wait here, bounded, until they are read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._response: ResponseReader | None = None
        self._blocks: list[bytes] = []
        self._size = 0
        self._held = self._lost = False
        self._error: httpx2.HTTPError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def reusable(self) -> bool:
        response = self._response
        return not self._lost and self._error is None and response is not None and response.done and response.reusable

    async def ask(self, message: bytes, timeout_s: float | None) -> Head:
        """Send a request; the head of its answer. Raises httpx2's errors."""
        if self._lost or self._error is not None:  # nothing will wake a waiter any more
            raise httpx2.ConnectError("the connection ended before it was used")
        response = self._response = ResponseReader()
        self._transport.write(message)
        while response.head is None:
            await self._wait(timeout_s)
        return response.head

    async def read(self, timeout_s: float | None) -> bytes:
        """All of the body that has come since the last call, at least a byte; none of it at the end."""
        assert self._response is not None, "nothing was asked"
        while not self._blocks:
            if self._response.done:
                return b""
            await self._wait(timeout_s)
        data = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks)
        self._blocks.clear()
        self._size = 0
        if self._held and not self._lost:
            self._held = False
            self._transport.resume_reading()
        return data

    def rest(self, seconds: float, over: Callable[[], None]) -> None:
        """Call `over` after so long, unless it is woken before."""
        self._response = None
        self._timer = self._loop.call_later(seconds, over)

    def wake(self) -> bool:
        """Whether it still can be used."""
        if self._timer is not None:
            self._timer.cancel()
        return not self._lost and self._error is None

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()

    async def _wait(self, timeout_s: float | None) -> None:
        if self._error is not None:
            raise self._error
        waiter = self._waiter = self._loop.create_future()
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._fail, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    @staticmethod
    def _fail(waiter: "asyncio.Future[None]") -> None:
        if not waiter.done():
            waiter.set_exception(httpx2.ReadTimeout("nothing came in time"))

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            if self._error is not None:
                self._waiter.set_exception(self._error)
            else:
                self._waiter.set_result(None)

    # --- what the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            self._error = httpx2.RemoteProtocolError("something came that was not asked for")
            self._transport.abort()
            return
        try:
            body = self._response.feed(data)
        except Malformed as error:
            self._error = httpx2.RemoteProtocolError(str(error))
            self._transport.abort()
        else:
            if body:
                self._blocks.append(body)
                self._size += len(body)
                if self._size >= HIGH_WATER and not self._held:
                    self._held = True
                    self._transport.pause_reading()
        self._notify()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._response is not None and self._error is None:
            try:
                self._response.eof()
            except Malformed as error:
                self._error = httpx2.ReadError(str(exc)) if exc else httpx2.RemoteProtocolError(str(error))
        self._notify()


class _Body(httpx2.AsyncByteStream):
    """The body of one response."""

    def __init__(
        self, transport: StreamTransport, origin: _Origin, connection: _Connection, timeout_s: float | None
    ) -> None:
        self._owner, self._origin, self._connection, self._timeout_s = transport, origin, connection, timeout_s
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while block := await self._connection.read(self._timeout_s):
            yield block

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._owner.keep(self._origin, self._connection)


def _encode(request: httpx2.Request, body: bytes) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    for name, value in request.headers.raw:
        if b"\r" in value or b"\n" in value or b"\0" in value:
            raise httpx2.LocalProtocolError(f"the header {name.decode('latin-1')} holds a line end")
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", body])
