#!/usr/bin/env python3
"""Keeps the generated pages equal to the code (`make pages`, checked by tests/test_pages.py).

They are docs/api, one page for each endpoint; the table of parameters in docs/compatibility.md; and the table of cases
in docs/conformance.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cloud.api.openapi import pages, tables  # noqa: E402
from cloud.api.openapi.document import document  # noqa: E402
from cloud.conformance.suite import chosen  # noqa: E402


class PageError(Exception):
    """A page has lost its markers."""


def region(page: str, name: str, content: str) -> str:
    """The page with what stands between its markers `name` made anew."""
    begin, end = f"<!-- {name}: begin (make pages) -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise PageError(f"A page must hold the lines {begin!r} and {end!r}.")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def cases() -> str:
    """Every case of the conformance suite with its rule."""
    rows = [f"| `{case.name}` | {case.rule} |" for case in chosen()]
    return "\n".join(["| case | rule |", "|---|---|", *rows])


def fresh(root: Path) -> dict[Path, str]:
    """Every generated file as it should be."""
    made = document()
    found = {root / "docs/api" / name: text for name, text in pages.pages(made).items()}
    for name, marker, content in (
        ("compatibility", "parameters", tables.parameters(made)),
        ("conformance", "cases", cases()),
    ):
        path = root / f"docs/{name}.md"
        found[path] = region(path.read_text(encoding="utf-8"), marker, content)
    return found


def stale(root: Path) -> list[Path]:
    """Files that differ from what they should be, or should not be there."""
    wanted = fresh(root)
    left = [path for path in (root / "docs/api").glob("*.md") if path not in wanted]
    return left + [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]


def main() -> int:
    """Exit status 1 when something is out of date and `--write` was not given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the pages instead of comparing")
    write = parser.parse_args().write
    wanted = fresh(ROOT)
    old = stale(ROOT)
    if not write:
        for path in old:
            print(f"{path.relative_to(ROOT)} is out of date: run `make pages`.", file=sys.stderr)
        return 1 if old else 0
    (ROOT / "docs/api").mkdir(exist_ok=True)
    for path in old:
        if path in wanted:
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
