"""Bearer tokens: API keys and sessions. The node WebSocket has keys of its own kind."""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from cloud.api.accounts import keys
from cloud.api.accounts.keys import ApiKey
from cloud.api.accounts.ring import KeyRing
from cloud.api.identity.people import People
from cloud.api.identity.session import PREFIX as SESSION
from shared.errors import Forbidden, Unauthorized

SCOPES: dict[str, keys.Scope] = {
    "/v1/models": "models",
    "/v1/chat/completions": "inference",
    "/v1/completions": "inference",
    "/admin": "admin",
}
"""The scope that an address and everything below it needs of an API key. Other addresses under /v1 need none."""
SESSIONS: Final = (
    "/v1/account",
    "/v1/owner",
    "/v1/developer",
    "/v1/usage",
    "/v1/device/approve",
    "/v1/device/deny",
    "/admin",
)
"""Where sessions are accepted, below these addresses too. What a session may do there is for the routes to say
(`cloud.api.routes.signed_in`), but for /admin: that is for operators.
"""
FREE: Final = frozenset({"/v1/account/sign-up", "/v1/account/sign-in", "/v1/device/code", "/v1/device/token"})
"""Addresses under /v1 for those who have no token yet."""


class Auth:
    """Sets `api_key` or `signed_in` in `scope["state"]`. Also asks for a key at `guarded` (paths), where one of the
    settings will do, or one with the scope admin.
    """

    def __init__(self, app: ASGIApp, ring: KeyRing, people: People, guarded: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._ring = ring
        self._people = people
        self._guarded = guarded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in FREE:
            path: str = scope["path"]
            needed = next((needed for root, needed in SCOPES.items() if _below(path, root)), None)
            if needed is not None or path in self._guarded or _below(path, "/v1"):
                await self._admit(scope, path, needed)
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope, path: str, needed: keys.Scope | None) -> None:
        token = _token(scope)
        state = scope.setdefault("state", {})
        if token.startswith(SESSION.encode()):
            if not any(_below(path, root) for root in SESSIONS):
                raise Unauthorized(
                    "This is a session, which this address does not take. Make an API key with `POST /v1/account/keys`."
                )
            who = await self._people.who(token.decode("latin-1"))
            state["signed_in"] = who
            if needed == "admin" and not who.account.may("operator"):
                raise Forbidden("This address is for operators.")
            return
        key = await self._ring.identify(token)
        state["api_key"] = key
        if needed is not None:
            _check(key, needed)
        elif path in self._guarded and not key.in_settings:
            _check(key, "admin")


def _token(scope: Scope) -> bytes:
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    method, _, token = (values[0] if len(values) == 1 else b"").partition(b" ")
    if method.lower() != b"bearer" or not token.strip():
        raise Unauthorized("No API key given: send it as `Authorization: Bearer <key>`.")
    return token.strip()


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")


def _check(key: ApiKey, needed: keys.Scope) -> None:
    if not key.allows(needed):
        raise Forbidden(f"This API key does not have the scope `{needed}`, which this address needs.")
