"""Bearer keys: the /v1 and /admin routes need one, each with its scope; the node WebSocket has keys of its own kind."""

from starlette.types import ASGIApp, Receive, Scope, Send

from cloud.api.accounts import keys
from cloud.api.accounts.keys import ApiKey
from cloud.api.accounts.ring import KeyRing
from shared.errors import Forbidden, Unauthorized

SCOPES: dict[str, keys.Scope] = {
    "/v1/models": "models",
    "/v1/chat/completions": "inference",
    "/v1/completions": "inference",
    "/admin": "admin",
}
"""The scope that an address and everything below it needs. Other addresses under /v1 need a key and no scope."""


class Auth:
    """Sets `scope["state"]["api_key"]`. Also asks for a key at `guarded` (paths), where one of the settings will do, or
    one with the scope admin.
    """

    def __init__(self, app: ASGIApp, ring: KeyRing, guarded: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._ring = ring
        self._guarded = guarded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            needed = next((needed for root, needed in SCOPES.items() if _below(path, root)), None)
            if needed is not None or path in self._guarded or _below(path, "/v1"):
                key = await self._identify(scope)
                if needed is not None:
                    _check(key, needed)
                elif path in self._guarded and not key.in_settings:
                    _check(key, "admin")
        await self._app(scope, receive, send)

    async def _identify(self, scope: Scope) -> ApiKey:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        method, _, secret = (values[0] if len(values) == 1 else b"").partition(b" ")
        if method.lower() != b"bearer" or not secret.strip():
            raise Unauthorized("No API key given: send it as `Authorization: Bearer <key>`.")
        key = await self._ring.identify(secret.strip())
        scope.setdefault("state", {})["api_key"] = key
        return key


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")


def _check(key: ApiKey, needed: keys.Scope) -> None:
    if not key.allows(needed):
        raise Forbidden(f"This API key does not have the scope `{needed}`, which this address needs.")
