"""Bearer keys: the /v1 routes need one; the node WebSocket proves a key of its own kind."""

import hashlib
import hmac
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from shared.errors import Unauthorized


class KeyRing:
    """Known keys, kept as SHA-256 digests and compared in constant time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key.encode()) for key in keys)

    def knows(self, key: bytes) -> bool:
        digest = _digest(key)
        # All are compared, so that the time tells nothing about which one came close.
        return bool(sum(hmac.compare_digest(digest, known) for known in self._digests))


class Auth:
    """Asks for a key on /v1, and on `also` (paths) when the gateway is open to the network."""

    def __init__(self, app: ASGIApp, keys: KeyRing, also: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._keys = keys
        self._also = also

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._needs_key(scope["path"]):
            self._check(scope)
        await self._app(scope, receive, send)

    def _needs_key(self, path: str) -> bool:
        return path == "/v1" or path.startswith("/v1/") or path in self._also

    def _check(self, scope: Scope) -> None:
        value = next((v for n, v in scope["headers"] if n == b"authorization"), b"")
        scheme, _, key = value.partition(b" ")
        if scheme.lower() != b"bearer" or not key.strip():
            raise Unauthorized("No API key given: send it as `Authorization: Bearer <key>`.")
        if not self._keys.knows(key.strip()):
            raise Unauthorized("This API key is not known here. Check the key and the address it is for.")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
