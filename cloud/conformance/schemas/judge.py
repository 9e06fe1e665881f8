"""Checks a value against a schema of the catalogue, to the letter or in the looser reading."""

from functools import cache
from typing import Any, Literal

from jsonschema import Draft202012Validator

from cloud.conformance.schemas.catalogue import SCHEMAS
from cloud.conformance.schemas.shapes import loosened, ref

Level = Literal["strict", "compatible"]


def problems(name: str, value: Any, level: Level = "strict") -> list[str]:
    """What is wrong with `value` as the schema `name`, one line each with its place; nothing when it is right."""
    return sorted(_line(error) for error in _validator(name, level).iter_errors(value))


@cache
def _validator(name: str, level: Level) -> Draft202012Validator:
    schemas = dict(SCHEMAS) if level == "strict" else loosened(dict(SCHEMAS))
    return Draft202012Validator({**ref(name), "components": {"schemas": schemas}})


def _line(error: Any) -> str:
    """The place, and what is wrong there: of the branches of a choice, what the most telling one says."""
    while error.context:
        error = max(error.context, key=lambda each: (len(each.absolute_path), each.validator != "type"))
    message = error.message if len(error.message) < 200 else error.message[:200] + "…"
    return f"{error.json_path}: {message}"
