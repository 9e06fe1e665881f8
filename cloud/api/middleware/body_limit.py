"""Refuses a body that is too large, by its declared length or as soon as too much has come."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.errors import PayloadTooLarge


class BodyLimit:
    """`limit` in bytes. Decided before anything is parsed."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._limit:
                raise self._refusal()
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self._limit:
                    raise self._refusal()
            return message

        await self._app(scope, receive_counted, send)

    def _refusal(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"The request body is larger than the {self._limit} bytes that are accepted.")
