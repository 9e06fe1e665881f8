"""The generated pages, and what the written ones claim."""

import importlib.util
import re
from pathlib import Path

import pytest

from cloud.api.openai.chat import ChatRequest
from cloud.api.openai.completions import CompletionRequest
from cloud.api.openapi.document import document
from cloud.api.openapi.operations import OPERATIONS
from cloud.api.openapi.words import words
from cloud.conformance.suite import chosen

ROOT = Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location("nexus_pages", ROOT / "tools/pages.py")
assert _spec is not None
assert _spec.loader is not None
nexus_pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(nexus_pages)


def test_the_pages_are_up_to_date() -> None:
    """Mend with `make pages`."""
    assert [str(path.relative_to(ROOT)) for path in nexus_pages.stale(ROOT)] == []


def test_a_change_makes_them_old(tmp_path: Path) -> None:
    """Also a page too many."""
    for path, text in nexus_pages.fresh(ROOT).items():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
    assert nexus_pages.stale(tmp_path) == []
    health = tmp_path / "docs/api/health.md"
    health.write_text(health.read_text() + "more\n")
    (tmp_path / "docs/api/old.md").write_text("# Old\n")
    assert {path.name for path in nexus_pages.stale(tmp_path)} == {"health.md", "old.md"}
    (tmp_path / "docs/conformance.md").write_text("no markers")
    with pytest.raises(nexus_pages.PageError, match="cases"):
        nexus_pages.stale(tmp_path)


def test_every_endpoint_has_its_page() -> None:
    """With its address, every status and every example."""
    texts = {path.name: text for path, text in nexus_pages.fresh(ROOT).items() if path.parent.name == "api"}
    assert len(texts) == len(OPERATIONS) + 1
    made = document()
    for each in OPERATIONS:
        [page] = [text for text in texts.values() if f"\n    {each.method.upper()} {each.path}\n" in text]
        for status in made["paths"][each.path][each.method]["responses"]:
            assert f"| {status} |" in page or f"## Answer {status}" in page, (each.name, status)
        assert all(example["summary"] in page for example in each.requests.values())


def test_the_compatibility_table_names_cases_and_tests_that_exist() -> None:
    """And every row of it names one."""
    page = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
    section = page.partition("## Behaviours")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[-1] for line in section.split("\n") if line.startswith("| ")][1:]
    names = {case.name for case in chosen()}
    assert len(rows) > 15
    for row in rows:
        held_up = re.findall(r"`([a-z_.]+)`", row)
        tests = re.findall(r"tests/[\w/]+\.py", row)
        assert held_up or tests, row
        assert set(held_up) <= names, set(held_up) - names
        assert all((ROOT / test).exists() for test in tests), tests


def test_what_the_migration_page_calls_refused_is_no_parameter() -> None:
    """By the request models, of either endpoint."""
    page = (ROOT / "docs/migration.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.split("\n") if line.startswith("| ")]
    told = [left for left, right, *_ in rows if right.startswith("400")]
    told += re.findall(r"((?:`\w+`(?:, | and )?)+) (?:is|are) 400", page)
    names = {name for text in told for name in re.findall(r"`(\w+)`", text)}
    assert {"best_of", "top_a", "transforms"} <= names
    taken = {*ChatRequest.model_fields, *CompletionRequest.model_fields}
    assert names & taken == set()


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "integer", "minimum": -1, "exclusiveMaximum": 2**31}, "integer, -1 or more"),
        ({"type": "integer", "exclusiveMaximum": 10}, "integer, at most 9"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, "number above 0, at most 1"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 4}, "list of 1 to 4 strings"),
        ({"enum": ["auto", None, False]}, '`"auto"`, `false`'),
        ({"enum": [None]}, "leave it out"),
        ({"$ref": "#/components/schemas/Tool"}, "[`Tool`](#tool)"),
        ({}, "anything"),
    ],
)
def test_schemas_in_words(schema: dict[str, object], told: str) -> None:
    """Ranges, lengths, choices and references."""
    assert words(schema) == told
