"""The answer to bytes that are no HTTP request: our error object, where the server would send text."""

import asyncio
import secrets
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from cloud.api.errors import error_object
from cloud.api.openai import sse
from shared.errors import InvalidInput

_Base: Any = AutoHTTPProtocol
_WORDS = "This is no valid HTTP request: its method, address, headers or body coding cannot be read."


class JsonHttpProtocol(_Base):  # type: ignore[misc]
    """uvicorn's HTTP protocol, whichever of its two is in use."""

    transport: asyncio.Transport

    def send_400_response(self, msg: str) -> None:
        """Called for what cannot be parsed; `msg` is uvicorn's own text. The connection ends."""
        body = sse.body(error_object(InvalidInput(_WORDS)))
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"content-length: {len(body)}\r\nx-request-id: req_{secrets.token_hex(16)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
