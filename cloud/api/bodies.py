"""Request bodies as JSON, and the words in which errors speak of what is wrong there."""

from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shared.errors import InvalidInput

M = TypeVar("M", bound=BaseModel)
NAME_MAX = 64
"""Characters of an unknown field's name that an error repeats."""


def json_object(body: bytes) -> dict[str, Any]:
    """Raises `InvalidInput`."""
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(f"The request body is not valid JSON: {reason}.") from None
    if not isinstance(data, dict):
        raise InvalidInput("The request body must be a JSON object.")
    return data


def validated(model: type[M], data: dict[str, Any]) -> M:
    """Raises `InvalidInput` that names the first field that is wrong, or that the model does not have."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = shown(str(first["loc"][0]))
        if first["type"] == "extra_forbidden":
            raise InvalidInput(f"Unknown parameter: `{name}`.", param=name) from None
        raise InvalidInput(f"Invalid value for `{name}`: {words(first)}", param=name) from None


def words(detail: ErrorDetails) -> str:
    """What pydantic says, as the end of a sentence of ours."""
    message = detail["msg"].removeprefix("Value error, ")
    return message[0].lower() + message[1:] + ("" if message.endswith(".") else ".")


def shown(name: str) -> str:
    """The name of a field that nobody knows: it is the caller's, of any length and any characters."""
    short = "".join(c if c.isprintable() and c != "`" else "?" for c in name[:NAME_MAX])
    return short + ("…" if len(name) > NAME_MAX else "")
