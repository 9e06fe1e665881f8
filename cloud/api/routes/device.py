"""`/v1/device`: pairing of nodes by device code, as RFC 8628 has it, in its forms and with its errors."""

import base64
import binascii
from typing import Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.bodies import json_object, validated
from cloud.api.identity.bodies import UserCodeInput, pairing_object
from cloud.api.identity.grant import GrantEvent
from cloud.api.identity.identity import Identity
from cloud.api.identity.oauth import OAuthError
from cloud.api.openai import sse
from cloud.api.routes.pages import answer
from cloud.api.routes.signed_in import address_of, signed_in

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_TYPE = "node_key"
"""What a paired node proves itself with from then on: its own Ed25519 key."""
PAGE = "/device"
FIELDS_MAX = 20
PAGE_MAX = 300
router = APIRouter(prefix="/v1/device")


@router.post("/code")
async def device_code(request: Request) -> Response:
    """RFC 8628, 3.1 and 3.2, with the node's public key and name."""
    identity: Identity = request.app.state.identity
    form = _form(await request.body(), "client_id", "public_key")
    page = page_url(request, identity.settings.public_url)
    new = await identity.pairings.ask(
        form["public_key"], form.get("name", ""), page=page, address=address_of(request)[:64]
    )
    grant = new.grant
    return answer(
        {
            "device_code": new.device_code,
            "user_code": grant.user_code,
            "verification_uri": grant.page,
            "verification_uri_complete": f"{grant.page}?user_code={grant.user_code}",
            "expires_in": grant.expires_at - grant.created_at,
            "interval": grant.interval_s,
        }
    )


@router.post("/token")
async def device_token(request: Request) -> Response:
    """RFC 8628, 3.4 and 3.5, with the node's signature."""
    identity: Identity = request.app.state.identity
    form = _form(await request.body(), "client_id", "grant_type", "device_code", "signature")
    if form["grant_type"] != GRANT_TYPE:
        raise OAuthError("unsupported_grant_type", f"`grant_type` must be {GRANT_TYPE}.")
    node = await identity.pairings.redeem(
        form["device_code"], _signature(form["signature"]), address=address_of(request)
    )
    return answer({"access_token": node.id, "token_type": TOKEN_TYPE, "name": node.name, "owner": node.owner})


@router.post("/approve")
async def approve(request: Request) -> Response:
    return await _decide(request, GrantEvent.APPROVE)


@router.post("/deny")
async def deny(request: Request) -> Response:
    return await _decide(request, GrantEvent.DENY)


async def _decide(request: Request, event: Literal[GrantEvent.APPROVE, GrantEvent.DENY]) -> Response:
    identity: Identity = request.app.state.identity
    who = signed_in(request, "owner")
    given = validated(UserCodeInput, json_object(await request.body()))
    return answer(pairing_object(await identity.pairings.decide(given.user_code, event, who.account.id)))


async def handle_oauth_error(_: Request, error: Exception) -> Response:
    """Status 400 and the shape of RFC 6749, 5.2."""
    if not isinstance(error, OAuthError):
        raise error
    body = {"error": error.code, "error_description": error.description}
    return Response(sse.body(body), 400, {"cache-control": "no-store"}, media_type="application/json")


def page_url(request: Request, public_url: str | None) -> str:
    """Where a person types the code in. Raises `OAuthError` where the caller's `Host` makes no address."""
    base = public_url or str(request.base_url)
    page = base.rstrip("/") + PAGE
    if len(page) > PAGE_MAX or not page.isprintable():
        raise OAuthError("invalid_request", "The `Host` header is no address of this gateway.")
    return page


def _form(body: bytes, *needed: str) -> dict[str, str]:
    """`application/x-www-form-urlencoded`; a field that comes twice is refused (RFC 6749, 3.2)."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError:
        raise OAuthError("invalid_request", "The body is no form (`application/x-www-form-urlencoded`).") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        raise OAuthError("invalid_request", "A field is there twice.")
    for name in needed:
        if not form.get(name):
            raise OAuthError("invalid_request", f"The field `{name}` is missing.")
    return form


def _signature(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise OAuthError("invalid_request", "`signature` is no base64url.") from None
