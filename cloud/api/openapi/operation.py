"""What the document says of one operation, and which errors go with what it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

Json = dict[str, Any]
OF_ALL = (500,)
OF_A_KEY = (401, 403)
OF_A_BODY = (400, 413)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter in the query, never required."""

    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, kw_only=True)
class Told:
    """A successful answer: its schema in the catalogue, examples, and for a stream its chunks."""

    description: str
    schema: str | None = None
    examples: Mapping[str, Json] = field(default_factory=dict)
    chunk: str | None = None
    chunks: tuple[Json, ...] = ()
    headers: tuple[str, ...] = ()
    text: bool = False
    html: bool = False


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method at one address."""

    method: str
    path: str
    name: str
    tag: str
    summary: str
    description: str
    answers: Mapping[int, Told]
    errors: tuple[int, ...] = ()
    key: Literal["needed", "free", "depends"] = "needed"
    """Whether a token is needed; `depends`: on the settings."""
    by: Literal["key", "session", "either"] = "key"
    """What the token is: an API key, or that of a person who signed in."""
    request: type[BaseModel] | None = None
    requests: Mapping[str, Json] = field(default_factory=dict)
    path_parameters: Mapping[str, str] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    query: Mapping[str, Parameter] = field(default_factory=dict)
    form: bool = False
    """The body is a form, not JSON."""
    own_error: str | None = None
    """Schema of answers with status 400, where they have another shape than errors have elsewhere."""
    own_errors: Mapping[str, Json] = field(default_factory=dict)
    """Examples of them."""
