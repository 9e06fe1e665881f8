"""Schemas of answers that OpenAI has none for: health, API keys, and this document itself."""

from cloud.api.accounts.keys import SCOPES
from cloud.api.openapi.money_schemas import MONEY_SCHEMAS
from cloud.api.openapi.people_schemas import PEOPLE_SCHEMAS
from cloud.conformance.schemas.shapes import BOOLEAN, COUNT, STRING, Schema, array, choice, const, nullable, record, ref

_TIME: Schema = {"type": "integer", "description": "Unix time, seconds."}
_DOLLARS: Schema = {"type": "string", "description": "Dollars, as a decimal number."}
_KEY: dict[str, Schema] = {
    "id": STRING,
    "object": const("api_key"),
    "name": STRING,
    "start": {"type": "string", "description": "The first characters of the secret."},
    "state": choice("active", "expired", "revoked"),
    "in_settings": {**BOOLEAN, "description": "Given in the settings, not in the database."},
    "scopes": array(choice(*SCOPES)),
    "created_at": nullable(_TIME),
    "expires_at": nullable(_TIME),
    "revoked_at": nullable(_TIME),
    "requests_per_minute": nullable(COUNT),
    "tokens_per_minute": nullable(COUNT),
    "concurrent_streams": nullable(COUNT),
    "monthly_budget": nullable(_DOLLARS),
    "spent_this_month": _DOLLARS,
    "privacy": nullable(STRING),
    "account": nullable({"type": "string", "description": "Whose it is; null: the deployment's own."}),
}

EXTRAS: dict[str, Schema] = {
    **PEOPLE_SCHEMAS,
    **MONEY_SCHEMAS,
    "ApiKey": record(_KEY),
    "NewApiKey": record({**_KEY, "key": {"type": "string", "description": "The secret, shown this once."}}),
    "ApiKeyList": record({"object": const("list"), "data": array(ref("ApiKey"))}),
    "Health": record(
        {
            "status": choice("ok", "degraded", "unavailable"),
            "verifiers": record({"configured": COUNT, "reachable": COUNT}),
            "draft_ports": record({"configured": COUNT, "attached": COUNT}),
            "nodes": COUNT,
        },
    ),
    "Document": {"type": "object", "description": "An OpenAPI 3.1 document."},
}
