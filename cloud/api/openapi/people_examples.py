"""Examples of what is asked and answered about accounts, pairing and nodes; a test checks that they fit."""

from typing import Any

Json = dict[str, Any]
_ACCOUNT: Json = {
    "id": "acct_5a1e0c9d7b3f2468",
    "object": "account",
    "email": "alice@example.com",
    "name": "Alice",
    "roles": ["developer", "owner"],
    "state": "active",
    "created_at": 1764547200,
}
_SESSION: Json = {
    "id": "sess_0f1e2d3c4b5a6978",
    "object": "session",
    "client": "Mozilla/5.0",
    "created_at": 1764547200,
    "expires_at": 1765152000,
    "ended_at": None,
    "current": True,
}
_NODE: Json = {
    "id": "3d2c1b0a99887766554433221100ffee",
    "object": "node",
    "name": "tower under the desk",
    "owner": "acct_5a1e0c9d7b3f2468",
    "public_key": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    "state": "paired",
    "paired_at": 1764547300,
    "revoked_at": None,
}
_PAIRING: Json = {
    "object": "pairing",
    "user_code": "WDJB-MJHT",
    "node": _NODE["id"],
    "name": "tower",
    "address": "203.0.113.7",
    "state": "approved",
    "created_at": 1764547200,
    "expires_at": 1764548100,
}
_PAGE: Json = {"object": "list", "has_more": False, "last": None}
_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


def _one(value: Json, summary: str | None = None) -> dict[str, Json]:
    return {"one": {"value": value} if summary is None else {"summary": summary, "value": value}}


SIGN_UPS = _one(
    {"email": "alice@example.com", "password": "correct horse battery", "roles": ["developer", "owner"]},
    "A developer who also has nodes",
)
SIGN_IN_REQUESTS = _one({"email": "alice@example.com", "password": "correct horse battery"}, "E-mail and password")
SIGN_INS = _one({"object": "sign_in", "token": "nxs_4kq9…", "session": _SESSION, "account": _ACCOUNT})
ACCOUNTS = _one(_ACCOUNT)
ACCOUNT_LISTS = _one({**_PAGE, "data": [_ACCOUNT]})
ACCOUNT_REQUESTS = _one({"email": "alice@example.com", "name": "Alice", "roles": ["developer"]}, "A developer")
ACCOUNT_CHANGES: dict[str, Json] = {
    "roles": {"summary": "Other roles", "value": {"roles": ["developer", "owner"]}},
    "disable": {"summary": "Shut out", "value": {"disabled": True}},
}
PASSWORDS = _one({"current": "correct horse battery", "password": "staple under the bridge"}, "A new password")
SESSIONS = _one({**_SESSION, "ended_at": 1764550000})
SESSION_LISTS = _one({"object": "list", "data": [_SESSION]})
DEVICE_CODE_FORMS = _one(
    {"client_id": "nexus-agent", "public_key": _NODE["public_key"], "name": "tower"}, "The node asks"
)
DEVICE_CODES = _one(
    {
        "device_code": "Y2Fubm90IGJlIGd1ZXNzZWQ",
        "user_code": "WDJB-MJHT",
        "verification_uri": "https://nexus.example/device",
        "verification_uri_complete": "https://nexus.example/device?user_code=WDJB-MJHT",
        "expires_in": 900,
        "interval": 5,
    }
)
DEVICE_TOKEN_FORMS = _one(
    {
        "client_id": "nexus-agent",
        "grant_type": _GRANT,
        "device_code": "Y2Fubm90IGJlIGd1ZXNzZWQ",
        "signature": "5VZDAMNgrHKQhuLMgG6CioSHfx64Z1wR",
    },
    "The node asks again",
)
PAIRED = _one(
    {"access_token": _NODE["id"], "token_type": "node_key", "name": "tower", "owner": "acct_5a1e0c9d7b3f2468"}
)
DEVICE_CODE_ERRORS = _one(
    {"error": "invalid_request", "error_description": "The field `public_key` is missing."}, "Something is missing"
)
DEVICE_TOKEN_ERRORS: dict[str, Json] = {
    code: {"summary": summary, "value": {"error": code, "error_description": words}}
    for code, summary, words in (
        ("authorization_pending", "Ask again", "The owner has not decided yet. Ask again after the interval."),
        ("slow_down", "Ask less often", "Asked too soon: wait 5 s longer between questions from now on."),
        ("access_denied", "Give up", "The owner has denied this node."),
        ("expired_token", "Begin anew", "The code has expired. Ask for a new one."),
    )
}
PAIRINGS = _one(_PAIRING)
DENIED = _one({**_PAIRING, "state": "denied"})
USER_CODES = _one({"user_code": "wdjb mjht"}, "As somebody typed it")
NODES = _one(_NODE)
REVOKED = _one({**_NODE, "state": "revoked", "revoked_at": 1764560000})
NODE_NAMES = _one({"name": "tower under the desk"}, "A name")
NODE_LISTS = _one({**_PAGE, "data": [_NODE]})
AUDIT_LISTS = _one(
    {
        "object": "list",
        "data": [
            {
                "seq": 17,
                "object": "audit_entry",
                "at": 1764547300,
                "actor": "node:3d2c1b0a99887766554433221100ffee",
                "action": "node.paired",
                "subject": "3d2c1b0a99887766554433221100ffee",
                "detail": {"owner": "acct_5a1e0c9d7b3f2468", "name": "tower"},
            }
        ],
        "has_more": True,
        "last": 17,
    }
)
