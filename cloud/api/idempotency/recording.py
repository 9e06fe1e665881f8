"""An answer while it is being made: what has been sent of it, and everybody who reads it."""

import asyncio
from collections.abc import Callable

from starlette.types import Message, Send

from cloud.api.idempotency.answers import Header
from cloud.api.openai import sse
from cloud.api.openai.objects import Json
from shared.errors import Unavailable

REPLAYED: Header = (b"idempotency-replayed", b"true")
TOO_LARGE_RETRY_S = 5.0


class Recording:
    """Written by the exchange that makes the answer, read from the start by others that ask for the same one.

    `limit` in bytes bounds what is remembered; of a longer answer nothing is, and nobody can join it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: list[Message] = []
        self._published = 0
        self._ended = False
        self._size = 0
        self._more = asyncio.Event()
        self._readers = 0
        self._delivery: asyncio.Timeout | None = None
        self._given_up_at = 0.0
        self.deserted = asyncio.Event()
        """Set when the last reader has left."""
        self.too_large = False
        self.complete = False
        self.error: Exception | None = None
        """Why there is no answer, or no end of one."""

    def enter(self) -> None:
        """One more reads it. Raises `Unavailable` when it is too large to be remembered."""
        if self.too_large:
            raise Unavailable(
                "This answer is still being made, and too long to be followed by a second request. Try again later.",
                retry_after_s=TOO_LARGE_RETRY_S,
            )
        self._readers += 1
        if self._delivery is not None and self._delivery.when() is None:
            self._delivery.reschedule(self._given_up_at)

    def leave(self) -> None:
        """One fewer."""
        self._readers -= 1
        if not self._readers:
            self.deserted.set()

    @property
    def readers(self) -> int:
        return self._readers

    @property
    def delivering(self) -> bool:
        """A message waits to be taken by the caller for whom the answer is made."""
        return self._delivery is not None

    async def deliver(self, message: Message, send: Send, patience_s: float) -> bool:
        """Send it to the caller for whom the answer is made. False when it is not taken in `patience_s` and others
        read: they wait no longer, and that caller's connection lacks the message.
        """
        self._given_up_at = asyncio.get_running_loop().time() + patience_s
        try:
            async with asyncio.timeout(patience_s if self._readers > 1 else None) as self._delivery:
                await send(message)
        except TimeoutError:
            return False
        finally:
            self._delivery = None
        return True

    def add(self, message: Message) -> bool:
        """Remember the next message of the answer, which nobody reads before `publish`; true for its last one.

        Comments that keep a connection alive are not part of it.
        """
        body = message.get("body", b"")
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if body == sse.KEEP_ALIVE or self.too_large:
            return last
        self._size += len(body)
        if self._size > self._limit:
            self.too_large = True
            self._messages.clear()
            self.fail(Unavailable("The answer became too long to be followed by a second request."))
            return last
        self._messages.append(message)
        self._ended = last
        return last

    def publish(self) -> None:
        """Let everybody read what was added."""
        self._published = len(self._messages)
        self.complete = self._ended
        self._more.set()

    def fail(self, error: Exception) -> None:
        """There will be no more."""
        if not self.complete:
            self.error = error
            self._more.set()

    def headers(self) -> tuple[Header, ...]:
        """Of the answer; none before it has begun."""
        return tuple(self._messages[0]["headers"]) if self._messages else ()

    def whole(self) -> bytes | None:
        """The body, once a good answer is complete; none for any other. A stream is good when it ends as streams do."""
        if not self._ended or self.too_large or self._messages[0]["status"] != 200:
            return None
        body = b"".join(message.get("body", b"") for message in self._messages)
        return body if not _streamed(self.headers()) or body.endswith(sse.DONE) else None

    async def follow(self, send: Send, told: Callable[[Exception], Json], *, keep_alive_s: float) -> None:
        """Send it from its start to its end, as it comes, and comments of its own in silence. Raises what ended it
        early; a stream that has begun sends what `told` makes of that as its last event.
        """
        at, streamed = 0, False
        while True:
            if at < self._published:
                streamed = streamed or (at == 0 and _streamed(self.headers()))
                await send(_replayed(self._messages[at]))
                at += 1
            elif self.error is not None:
                if not streamed:
                    raise self.error
                await send(_body(sse.event(told(self.error)), more=False))
                return
            elif self.complete:
                return
            else:
                self._more.clear()
                try:
                    async with asyncio.timeout(keep_alive_s):
                        await self._more.wait()
                except TimeoutError:
                    if streamed:
                        await send(_body(sse.KEEP_ALIVE, more=True))


async def replay(headers: tuple[Header, ...], content: bytes, send: Send) -> None:
    """Send a stored answer; a streamed one event by event."""
    await send(_replayed({"type": "http.response.start", "status": 200, "headers": list(headers)}))
    events = [content]
    if _streamed(headers):
        events = [event + b"\n\n" for event in content.removesuffix(b"\n\n").split(b"\n\n")]
    for number, event in enumerate(events, 1):
        await send(_body(event, more=number < len(events)))


def _streamed(headers: tuple[Header, ...]) -> bool:
    return dict(headers).get(b"content-type", b"").startswith(b"text/event-stream")


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def _replayed(message: Message) -> Message:
    if message["type"] != "http.response.start":
        return message
    return {**message, "headers": [*message["headers"], REPLAYED]}


def bounded(send: Send, seconds: float, stalled: Callable[[], Exception]) -> Send:
    """`send` that raises `stalled()` when a message is not taken in time."""

    async def send_bounded(message: Message) -> None:
        try:
            async with asyncio.timeout(seconds):
                await send(message)
        except TimeoutError:
            raise stalled() from None

    return send_bounded
