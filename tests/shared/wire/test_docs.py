"""docs/protocol.md says what the code does."""

import dataclasses
import re
from pathlib import Path

import msgspec
import pytest

from shared import errors
from shared.sampling import Sampling
from shared.wire.diagram import mermaid
from shared.wire.limits import Limits
from shared.wire.messages import (
    PROTOCOL_VERSIONS,
    DemandReason,
    HoldReason,
    ModelOffer,
    NodeStats,
    Receipt,
)
from shared.wire.states import SENDS, TABLE, Role, State

DOC = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
TYPES = sorted(SENDS[Role.NODE] | SENDS[Role.CLOUD], key=lambda kind: kind.__name__)


@pytest.mark.parametrize("role", Role)
def test_the_diagram_is_the_table(role: Role) -> None:
    """Copy the output of `mermaid(role)` into the document when the table changes."""
    assert f"```mermaid\n{mermaid(role)}\n```" in DOC


@pytest.mark.parametrize("role", Role)
def test_the_diagram_holds_every_row(role: Role) -> None:
    """Each legal message appears at its edge, signed by direction."""
    drawn = {
        (before, after, label)
        for before, after, labels in re.findall(r"(\w+) --> (\w+): (.*)", mermaid(role))
        for label in labels.split(", ")
    }
    assert drawn == {
        (before.name, after.name, ("+" if kind in SENDS[role] else "-") + kind.__name__)
        for (of, before, kind), after in TABLE.items()
        if of is role
    }
    assert all(state.name in mermaid(role) for state in State)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_every_message_has_its_line_with_all_fields(kind: type[msgspec.Struct]) -> None:
    """Tag and fields, in the order of the code."""
    line = next(line for line in DOC.splitlines() if line.startswith(f"| `{kind.__name__}` |"))
    _, _, tag, fields, meaning, _ = line.split("|")
    assert tag.strip() == f"`{kind.__struct_config__.tag}`"
    assert meaning.strip()
    top_level = re.sub(r"\{.*?\}", "", fields)
    assert tuple(re.findall(r"`(\w+)`: ?", top_level))[: len(kind.__struct_fields__)] == tuple(
        name for name in kind.__struct_fields__
    )


@pytest.mark.parametrize("kind", [ModelOffer, NodeStats, Receipt, Sampling], ids=lambda kind: kind.__name__)
def test_nested_structs_are_written_out(kind: type[msgspec.Struct]) -> None:
    """In braces, in the order of the code."""
    assert kind.__struct_fields__ in [
        tuple(re.findall(r"`(\w+)`:", braces)) for braces in re.findall(r"\{(.*?)\}", DOC)
    ]


@pytest.mark.parametrize("reason", [*HoldReason, *DemandReason])
def test_every_reason_is_named(reason: str) -> None:
    """Someone with another language needs the list."""
    assert f"`{reason}`" in DOC


@pytest.mark.parametrize("field", dataclasses.fields(Limits), ids=lambda field: field.name)
def test_every_limit_is_listed_with_its_default(field: dataclasses.Field[object]) -> None:
    """Name and value."""
    assert f"| `{field.name}` | {field.default} |" in DOC


def test_close_codes_match_the_errors() -> None:
    """Each row is an error class, and every wire error has its row."""
    classes = {
        value.code: value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.NexusError)
    }
    rows = re.findall(r"^\| (\d{4}) \| `(\w+)` \| .+ \| (yes|no) \|$", DOC, re.MULTILINE)
    assert rows
    for close_code, code, retry in rows:
        assert classes[code].close_code == int(close_code)
        assert classes[code].retry_helps is (retry == "yes")
    wire = {errors.ProtocolError.code, *(kind.code for kind in errors.ProtocolError.__subclasses__())}
    assert wire <= {code for _, code, _ in rows}


def test_the_version_is_named() -> None:
    """The document describes the newest version."""
    assert f"Protocol version: **{max(PROTOCOL_VERSIONS)}**" in DOC
