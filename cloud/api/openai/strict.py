"""The base of everything that is read from a request's body."""

from itertools import islice
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from shared.errors import InvalidInput

FIELDS_MAX = 128
"""More than any object here knows: of those behind, nothing is read, as one of those before is unknown."""

DEPTH_MAX = 64
"""How deeply JSON of the caller's own making, such as a schema, may be nested."""


class Strict(BaseModel):
    """Unknown fields are refused, null means absent, and a string is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return dict(islice(((k, v) for k, v in data.items() if v is not None), FIELDS_MAX))


def refuse_not_yet(data: dict[str, Any], names: dict[str, tuple[Any, ...]], prefix: str = "") -> None:
    """Refuse known parameters that Nexus cannot honour yet, unless the value is the neutral one; drop those."""
    for name, neutral in names.items():
        if (value := data.get(name)) is None:
            continue
        if not any(type(value) is type(n) and value == n for n in neutral):
            raise InvalidInput(f"`{prefix}{name}` is not supported by Nexus yet; leave it out.", param=prefix + name)
        del data[name]


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        level = [
            each
            for container in level
            for each in (container.values() if isinstance(container, dict) else container)
            if isinstance(each, dict | list)
        ]
        if not level:
            return value
    raise ValueError(f"it is nested more than {DEPTH_MAX} levels deep")


JsonObject = Annotated[dict[str, Any], AfterValidator(_shallow)]
"""JSON of the caller's own making."""
