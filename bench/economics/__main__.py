"""`make economics`: runs the days and writes docs/economics.md's generated part, its plots and its figures."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from bench.economics import plots, report
from bench.economics.suite import suite

DOCS = Path(__file__).resolve().parents[2] / "docs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few scenarios, coarse")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of economics.md")
    options = parser.parse_args()
    began = time.monotonic()
    out = options.docs / "economics"
    out.mkdir(parents=True, exist_ok=True)
    rows, base = [], None
    for found, outcome in suite(lambda line: print(line, file=sys.stderr, flush=True), options.quick):
        rows.append(found)
        base = base or outcome
    assert base is not None
    checks = report.checks()
    figures = {"rows": [asdict(each) for each in rows], "checks": [asdict(check) for check in checks]}
    (out / "figures.json").write_text(json.dumps(_rounded(figures), indent=1) + "\n")
    plots.draw(rows, base, out)
    report.write(options.docs / "economics.md", rows, base, checks)
    print(f"{len(rows)} days in {time.monotonic() - began:.0f} s: {options.docs / 'economics.md'}")
    return 0


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
