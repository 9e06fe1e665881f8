"""Money is whole numbers everywhere: in annotations, in expressions, and in the tables."""

import ast
from pathlib import Path

import pytest
from sqlalchemy import Float, Numeric

from cloud.api.store.schema import METADATA

API = Path(__file__).parents[4] / "cloud" / "api"
MARKET = ("bound", "cost", "pricebook", "spot", "value")
PLACES = ("accounts/*.py", "ledger/*.py", "payouts/**/*.py", *(f"market/{name}.py" for name in MARKET))
MONEY_FILES = sorted(path for place in PLACES for path in API.glob(place))
TIMES = {"clock", "monotonic", "now", "as_of", "used_at", "at", "since"}
"""Names of moments and of clocks. A length of time ends in `_s` or `_S`."""
MEASURED = {"joules"}
"""What nodes report, shown and never paid by."""


def measures_time(name: str) -> bool:
    return name.lower().endswith("_s") or name.lstrip("_") in TIMES | MEASURED


def floats(node: ast.AST | None) -> bool:
    return node is not None and any(isinstance(part, ast.Name) and part.id == "float" for part in ast.walk(node))


def faults(source: str) -> list[str]:
    """Lines on which something that is no time is a float, or becomes one."""
    found = []
    tree = ast.parse(source)
    times: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)) if measures_time(name):
                times.update(ast.walk(node))
            case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)]) if measures_time(name):
                times.update(ast.walk(node.value))
            case ast.arg(arg=name) if measures_time(name):
                times.update(ast.walk(node))
            case ast.FunctionDef(name=name) if measures_time(name):
                times.update(ast.walk(node.returns) if node.returns else ())
            case ast.BinOp(op=ast.Div(), left=ast.Attribute(attr=name)) if measures_time(name):
                times.add(node)
    for node in ast.walk(tree):
        if node in times:
            continue
        match node:
            case ast.Constant(value=float()):
                found.append(f"{node.lineno}: a literal")
            case ast.BinOp(op=ast.Div(), left=left) if not isinstance(left, ast.Name | ast.Call) or not _path(left):
                found.append(f"{node.lineno}: a division")
            case ast.Call(func=ast.Name(id="float"), args=args) if not _infinity(args):
                found.append(f"{node.lineno}: float()")
            case ast.arg(annotation=annotation) if floats(annotation):
                found.append(f"{node.lineno}: an argument")
            case ast.AnnAssign(annotation=annotation) if floats(annotation):
                found.append(f"{node.lineno}: a field")
            case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns) if floats(returns):
                found.append(f"{node.lineno}: a result")
    return found


def _path(left: ast.expr) -> bool:
    """`folder / "name"` joins paths."""
    name = left.id if isinstance(left, ast.Name) else ast.unparse(left)
    return any(word in name for word in ("folder", "path", "dir"))


def _infinity(args: list[ast.expr]) -> bool:
    return [ast.unparse(arg) for arg in args] in (["'-inf'"], ["'inf'"])


@pytest.mark.parametrize("path", MONEY_FILES, ids=lambda path: str(path.relative_to(API)))
def test_no_float_in_the_code_of_money(path):
    """Clocks and lengths of time alone are floats."""
    assert faults(path.read_text(encoding="utf-8")) == []


def test_the_check_finds_floats():
    """Each form of them, and nothing in what is right."""
    wrong = ["x = 0.5", "def f(x: float): ...", "y = a / b", "z = float(a)", "def f() -> float: ..."]
    wrong.append("class A:\n    b: float | None")
    assert all(faults(text) for text in wrong)
    assert not faults("RETRY_S = 1.0\nclass A:\n    joules: float | None\ndef f(now: float, x: int): return x // 2")


def test_no_float_in_the_tables():
    """Every column that is a number is a whole one."""
    columns = [column for table in METADATA.tables.values() for column in table.columns]
    wrong = [column for column in columns if isinstance(column.type, Numeric | Float)]
    assert len(columns) > 50 and [f"{column.table.name}.{column.name}" for column in wrong] == []
