#!/usr/bin/env python3
"""Keeps the table of docs/map.md equal to the packages' docstrings (`make map`, checked by tests/test_map.py)."""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = ("shared", "cloud", "desktop")
BEGIN, END = "<!-- packages: begin (make map) -->", "<!-- packages: end -->"


class MapError(Exception):
    """A package has no sentence of its own, or the page has lost its markers."""


def packages(root: Path) -> Iterator[str]:
    """Dotted names of our packages, parents first; a folder with modules and no `__init__.py` is an error."""
    for top in OURS:
        for folder in sorted([root / top, *(path for path in (root / top).rglob("*") if path.is_dir())]):
            if not any(folder.glob("*.py")):
                continue
            name = ".".join(folder.relative_to(root).parts)
            if not (folder / "__init__.py").exists():
                raise MapError(f"{name} holds modules but no __init__.py.")
            yield name


def sentence(root: Path, package: str) -> str:
    """The one sentence in a package's docstring, on one line."""
    source = (root / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    said = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    if not said.endswith(".") or ". " in said:
        raise MapError(f"The docstring of {package}/__init__.py must be one sentence that ends with a full stop.")
    return said


def table(root: Path) -> str:
    """The generated part of the page, markers included."""
    rows = [f"| `{name.replace('.', '/')}` | {sentence(root, name)} |" for name in packages(root)]
    return "\n".join([BEGIN, "", "| package | what it is |", "|---|---|", *rows, "", END])


def updated(page: str, root: Path) -> str:
    """The page with its generated part made anew; everything else stays as it is."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MapError(f"docs/map.md must hold the lines {BEGIN!r} and {END!r}.")
    return before + table(root) + after


def main() -> int:
    """Exit status 1 when the page is out of date and `--write` was not given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/map.md instead of comparing")
    page = ROOT / "docs/map.md"
    write = parser.parse_args().write
    try:
        fresh = updated(page.read_text(encoding="utf-8"), ROOT)
    except MapError as error:
        print(error, file=sys.stderr)
        return 1
    if write:
        page.write_text(fresh, encoding="utf-8")
    elif fresh != page.read_text(encoding="utf-8"):
        print("docs/map.md is out of date: run `make map`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
