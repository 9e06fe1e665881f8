"""Who a request is made for: the dependency of every route that is a person's or an operator's."""

from starlette.requests import Request

from cloud.api.accounts.keys import ApiKey
from cloud.api.audit.entry import Actor
from cloud.api.identity.account import Role
from cloud.api.identity.people import SignedIn
from shared.errors import Forbidden, SessionOver


def signed_in(request: Request, role: Role | None = None) -> SignedIn:
    """The account and its session. Raises `SessionOver` without a session, and `Forbidden` without the role."""
    found: SignedIn | None = getattr(request.state, "signed_in", None)
    if found is None:
        raise SessionOver("This address is for people who signed in: send a session's token, not an API key.")
    if role is not None and not found.account.may(role):
        raise Forbidden(f"This address is for accounts with the role `{role}`. An operator can give it.")
    return found


def operator(request: Request) -> Actor:
    """Who acts at /admin: an operator who signed in, or an API key with the scope admin, which `Auth` has checked."""
    key: ApiKey | None = getattr(request.state, "api_key", None)
    if key is not None and key.allows("admin"):
        return Actor(key.id)
    return Actor(signed_in(request, "operator").account.id)


def address_of(request: Request) -> str:
    """Where the request comes from, as far as it is known: behind a proxy, what the proxy says."""
    return request.client.host if request.client is not None else "unknown"


def client_of(request: Request) -> str:
    """What the client calls itself."""
    return request.headers.get("user-agent", "")
