"""Pieces to write the schemas with, and the looser reading of a schema.

A schema is JSON Schema 2020-12, closed: what is not named is not allowed. Three keywords of ours say how far a server
may stray before an unchanged client stumbles; they are annotations, which a validator passes over.
"""

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]

SPARED = "x-spared"
"""Required by the published schema, but clients do without: names of properties."""
EXTENSION = "x-extension"
"""Properties that only Nexus has: names."""
LOOSE = "x-loose"
"""What this place looks like in the looser reading."""

STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
BYTES: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}


def ref(name: str) -> Schema:
    """A schema by its name in the catalogue."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def array(items: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits}


def const(value: str) -> Schema:
    return {"type": "string", "const": value}


def choice(*values: str) -> Schema:
    return {"type": "string", "enum": [*values]}


def record(
    required: dict[str, Schema],
    optional: dict[str, Schema] | None = None,
    *,
    spared: Iterable[str] = (),
    extensions: dict[str, Schema] | None = None,
    description: str = "",
) -> Schema:
    """An object with these properties and no others; `spared` are those required ones that clients can do without."""
    schema: Schema = {"description": description} if description else {}
    schema |= {
        "type": "object",
        "properties": {**required, **(optional or {}), **(extensions or {})},
        "required": [*required],
        "additionalProperties": False,
    }
    if spared := [*spared]:
        schema[SPARED] = spared
    if extensions:
        schema[EXTENSION] = [*extensions]
    return schema


def loosened(schema: Any) -> Any:
    """The looser reading: more properties may be there, spared ones may be missing, optional ones may be null."""
    if isinstance(schema, list):
        return [loosened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if LOOSE in schema:
        return schema[LOOSE]
    looser = {key: loosened(value) for key, value in schema.items() if key not in (SPARED, EXTENSION)}
    if schema.get("additionalProperties") is False:
        del looser["additionalProperties"]
        required = [name for name in schema["required"] if name not in schema.get(SPARED, ())]
        looser["required"] = required
        looser["properties"] = {
            name: value if name in required else nullable(value) for name, value in looser["properties"].items()
        }
    return looser


def plain(schema: Any) -> Any:
    """The same schema without the annotations of ours, for publication."""
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: plain(value) for key, value in schema.items() if key not in (SPARED, EXTENSION, LOOSE)}
