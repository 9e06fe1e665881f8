"""The base of everything that is read from a request's body."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from shared.errors import InvalidInput


class Strict(BaseModel):
    """Unknown fields are refused, null means absent, and a string is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data


def refuse_not_yet(data: dict[str, Any], names: dict[str, tuple[Any, ...]], prefix: str = "") -> None:
    """Refuse known parameters that Nexus cannot honour yet, unless the value is the neutral one; drop those."""
    for name, neutral in names.items():
        if (value := data.get(name)) is None:
            continue
        if not any(type(value) is type(n) and value == n for n in neutral):
            raise InvalidInput(f"`{prefix}{name}` is not supported by Nexus yet; leave it out.", param=prefix + name)
        del data[name]
