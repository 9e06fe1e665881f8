"""Schemas of request bodies: pydantic's, with what its validators do to a body before they check it."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cloud.api.openai.strict import Strict
from cloud.api.openapi.parameters import PARAMETERS

Json = dict[str, Any]
_NULL: Json = {"type": "null"}
_IDS: Json = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, "minItems": 1}
_ONE_OF: Json = {"type": "array", "minItems": 1, "maxItems": 1}
OVERRIDES: dict[str, Json] = {
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]{1,10}$"},
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        "maxProperties": 1024,
    },
    "prompt": {
        "anyOf": [
            {"type": "string"},
            _IDS,
            {**_ONE_OF, "items": {"type": "string"}},
            {**_ONE_OF, "items": _IDS},
        ]
    },
    "store": {"type": "boolean", "enum": [False]},
}
"""Fields whose validators take more, or less, than their type says."""


def schemas(models: Iterable[type[BaseModel]], taken: Iterable[str]) -> tuple[dict[str, str], dict[str, Json]]:
    """The component of each model, by the model's name, and all components that they need; a component whose name is
    among `taken` gets another one."""
    models = list(models)
    _, made = models_json_schema([(model, "validation") for model in models], ref_template="{model}")
    found: dict[str, Json] = made.get("$defs", {})
    fields = {each.__name__: each for each in _with_their_parts(models)}
    names = {name: f"{name}Input" if name in set(taken) else name for name in found}
    parts = {names[name]: _mended(fields.get(name), schema, names) for name, schema in found.items()}
    return {model.__name__: names[model.__name__] for model in models}, parts


def _with_their_parts(models: Iterable[type[BaseModel]]) -> set[type[BaseModel]]:
    found: set[type[BaseModel]] = set()
    waiting: list[Any] = list(models)
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and issubclass(each, BaseModel):
            if each not in found:
                found.add(each)
                waiting += [field.annotation for field in each.model_fields.values()]
        else:
            waiting += getattr(each, "__args__", ())
    return found


def _mended(model: type[BaseModel] | None, schema: Json, names: Mapping[str, str]) -> Json:
    schema = _plain(schema, names)
    not_yet: Mapping[str, tuple[Any, ...]] = getattr(model, "NOT_YET", {})
    schema.pop("description", None)
    if model is not None and model.__doc__ and model.__doc__ != BaseModel.__doc__:
        # What stands behind a semicolon is for those who read the code.
        schema["description"] = " ".join(model.__doc__.split()).partition(";")[0].rstrip(".") + "."
    nulls = model is not None and issubclass(model, Strict)
    properties: dict[str, Json] = {}
    for name, each in schema.get("properties", {}).items():
        told = PARAMETERS.get(_known_as(model, name))
        described = {"description": told} if told is not None else {}
        optional = name not in schema.get("required", ())
        kept = {key: each[key] for key in ("default",) if each.get(key) not in (None, {}) and not _is_object(each[key])}
        value = OVERRIDES.get(name, {key: part for key, part in each.items() if key != "default"})
        properties[name] = {**described, **kept, **(_or_null(value) if nulls and optional else value)}
    for name, neutral in not_yet.items():
        told = "Not supported yet: " + ("accepted with a value that asks for nothing." if neutral else "leave it out.")
        properties[name] = {"description": told, "enum": [*neutral, None]}
    if properties:
        schema["properties"] = properties
    return schema


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _known_as(model: type[BaseModel] | None, name: str) -> str:
    """A field's name in the list of parameters; empty for fields of models that it does not describe."""
    prefix = {"ChatRequest": "", "CompletionRequest": "", "NexusOptions": "nexus."}.get(getattr(model, "__name__", ""))
    return "" if prefix is None else prefix + name


def _or_null(schema: Json) -> Json:
    if _NULL in schema.get("anyOf", ()) or schema.get("type") == "null":
        return schema
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], _NULL]}
    return {"anyOf": [schema, _NULL]}


def _plain(schema: Any, names: Mapping[str, str], *, inside: str = "") -> Any:
    """Without pydantic's titles, and with references into the document."""
    if isinstance(schema, list):
        return [_plain(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = inside in ("properties", "$defs")
    out = {key: _plain(value, names, inside=key) for key, value in schema.items() if named or key != "title"}
    if isinstance(out.get("$ref"), str):
        out["$ref"] = f"#/components/schemas/{names[out['$ref'].rsplit('/', 1)[-1]]}"
    return out
