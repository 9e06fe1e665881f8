"""Schemas of answers about accounts, pairing and nodes."""

from typing import Any

from cloud.api.identity.account import ROLES, AccountState
from cloud.api.identity.grant import GrantState
from cloud.api.identity.node import NodeState
from cloud.conformance.schemas.shapes import BOOLEAN, COUNT, STRING, Schema, array, choice, const, nullable, record, ref

_TIME: Schema = {"type": "integer", "description": "Unix time, seconds."}
_URL: Schema = {"type": "string", "format": "uri"}


def _page(of: str, last: Schema) -> Schema:
    more = {**BOOLEAN, "description": "Whether there may be another page."}
    begin = {**nullable(last), "description": "What the next page is asked for with."}
    return record({"object": const("list"), "data": array(ref(of)), "has_more": more, "last": begin})


def _told(schema: Schema, description: str) -> dict[str, Any]:
    return {**schema, "description": description}


PEOPLE_SCHEMAS: dict[str, Schema] = {
    "Account": record(
        {
            "id": STRING,
            "object": const("account"),
            "email": STRING,
            "name": STRING,
            "roles": array(choice(*ROLES)),
            "state": choice(*map(str, AccountState)),
            "created_at": _TIME,
        }
    ),
    "AccountList": _page("Account", STRING),
    "Session": record(
        {
            "id": STRING,
            "object": const("session"),
            "client": _told(STRING, "What the client called itself."),
            "created_at": _TIME,
            "expires_at": _TIME,
            "ended_at": nullable(_TIME),
            "current": _told(BOOLEAN, "Whether it is the session that asks."),
        }
    ),
    "SessionList": record({"object": const("list"), "data": array(ref("Session"))}),
    "SignIn": record(
        {
            "object": const("sign_in"),
            "token": _told(STRING, "The session's token, shown this once."),
            "session": ref("Session"),
            "account": ref("Account"),
        }
    ),
    "DeviceCode": record(
        {
            "device_code": _told(STRING, "Only the node learns it."),
            "user_code": _told(STRING, "What the owner types in."),
            "verification_uri": _told(_URL, "Where."),
            "verification_uri_complete": _told(_URL, "The same with the code in it."),
            "expires_in": _told(COUNT, "Seconds."),
            "interval": _told(COUNT, "Seconds between questions."),
        }
    ),
    "PairedNode": record(
        {
            "access_token": _told(STRING, "The node's id. It opens nothing: the node's key does."),
            "token_type": const("node_key"),
            "name": STRING,
            "owner": _told(STRING, "Id of the account that the node belongs to."),
        }
    ),
    "OAuthError": record(
        {
            "error": choice(
                "invalid_request",
                "invalid_grant",
                "unsupported_grant_type",
                "authorization_pending",
                "slow_down",
                "access_denied",
                "expired_token",
            ),
            "error_description": STRING,
        }
    ),
    "Pairing": record(
        {
            "object": const("pairing"),
            "user_code": STRING,
            "node": _told(STRING, "Id of the node."),
            "name": _told(STRING, "What the node calls itself."),
            "address": _told(STRING, "Where it asked from."),
            "state": choice(*map(str, GrantState)),
            "created_at": _TIME,
            "expires_at": _TIME,
        }
    ),
    "Node": record(
        {
            "id": STRING,
            "object": const("node"),
            "name": STRING,
            "owner": _told(STRING, "Id of its account."),
            "public_key": _told(STRING, "Ed25519, hexadecimal."),
            "state": choice(*map(str, NodeState)),
            "paired_at": _TIME,
            "revoked_at": nullable(_TIME),
        }
    ),
    "NodeList": _page("Node", STRING),
    "AuditEntry": record(
        {
            "seq": _told(COUNT, "A later entry has a larger number."),
            "object": const("audit_entry"),
            "at": _TIME,
            "actor": _told(STRING, "An account, an API key, `node:…`, `cli:…` or `system`."),
            "action": STRING,
            "subject": _told(STRING, "Id of what was changed."),
            "detail": {"type": "object"},
        }
    ),
    "AuditList": _page("AuditEntry", COUNT),
}
