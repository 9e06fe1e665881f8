"""JSON Schema in words, for tables that people read."""

import json
from typing import Any

Json = dict[str, Any]
_NAMES = {"string": "string", "number": "number", "integer": "integer", "boolean": "`true`, `false`", "null": "`null`"}
_PLURALS = {"string": "strings", "number": "numbers", "integer": "integers"}


def words(schema: Json) -> str:
    """What a value may be, without `null` where it only means that the field is not there."""
    if "$ref" in schema:
        return f"[`{name_of(schema)}`](#{name_of(schema).lower()})"
    if "const" in schema:
        return _value(schema["const"])
    if "enum" in schema:
        return ", ".join(_value(each) for each in schema["enum"] if each is not None) or "leave it out"
    if "anyOf" in schema:
        branches = [words(each) for each in schema["anyOf"] if each != {"type": "null"}]
        return " or ".join(dict.fromkeys(branches))
    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object":
            return _object(schema)
        case "integer" | "number":
            return _NAMES[schema["type"]] + _range(schema)
        case str(kind):
            return _NAMES[kind] + _length(schema)
    return "anything"


def name_of(schema: Json) -> str:
    """Of the component that it refers to."""
    return str(schema["$ref"].rsplit("/", 1)[-1])


def _value(value: Any) -> str:
    return f"`{json.dumps(value)}`"


def _range(schema: Json) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMaximum" in schema and schema.get("type") == "integer":
        high = schema["exclusiveMaximum"] - 1
    above = schema.get("exclusiveMinimum")
    high_words = "" if high is None or high >= 2**31 - 1 else _number(high)
    if above is not None:
        return f" above {_number(above)}" + (f", at most {high_words}" if high_words else "")
    if low is None:
        return f", at most {high_words}" if high_words else ""
    return f", {_number(low)} to {high_words}" if high_words else f", {_number(low)} or more"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _length(schema: Json) -> str:
    most = schema.get("maxLength")
    return f" of at most {most} characters" if most else ""


def _list(schema: Json) -> str:
    items = schema["items"]
    what = _PLURALS.get(items.get("type", ""), words(items)) if "enum" not in items else words(items)
    low, high = schema.get("minItems", 0), schema.get("maxItems")
    if low == high == 1:
        return f"list of one {words(items)}"
    if high is None:
        return f"list of {what}"
    return f"list of {low} to {high} {what}" if low else f"list of at most {high} {what}"


def _object(schema: Json) -> str:
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        most = f" of at most {schema['maxProperties']} values" if "maxProperties" in schema else " of values"
        return f"object{most}, each {words(values)}"
    return "object"
