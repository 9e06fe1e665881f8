"""Money is whole numbers, in every type and every column that it passes through."""

import dataclasses
import typing

import msgspec
import pytest
from sqlalchemy import BigInteger, Float, Numeric

from cloud.api.ledger.posting import Posted
from cloud.api.payouts.chain import Adjusted, Head, Written
from cloud.api.payouts.disputes import Dispute
from cloud.api.payouts.payout import Errand, Payout
from cloud.api.payouts.ports import Balance
from cloud.api.reports.ports import Earned, Seen, Used
from cloud.api.store import payout_tables
from cloud.api.store.payout_tables import METADATA
from shared.receipts import Checked, Receipt, Statement
from shared.wire.messages import Earnings
from shared.wire.messages import Receipt as WireReceipt

TYPES = (
    Adjusted,
    Balance,
    Checked,
    Dispute,
    Earned,
    Earnings,
    Errand,
    Head,
    Payout,
    Receipt,
    Seen,
    Posted,
    Statement,
    Used,
    WireReceipt,
    Written,
)
MONEY = {"amount", "total", "nano_per_kwh"}


def parts(hint):
    """A type and all that it is made of."""
    inner = [part for each in typing.get_args(hint) for part in parts(each)]
    base = getattr(hint, "__supertype__", None)
    return {hint, *inner, *(parts(base) if base is not None else ())}


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__qualname__)
def test_no_type_holds_a_float(kind):
    """Nor a decimal, whose precision would depend on a context."""
    hints = typing.get_type_hints(kind)
    assert dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)
    for name, hint in hints.items():
        assert not any(getattr(part, "__name__", "") in ("float", "Decimal") for part in parts(hint)), name


def test_no_column_holds_a_float():
    """Money has 64 bits; a float is told from an integer by the kind of its column."""
    tables = [table for table in vars(payout_tables).values() if getattr(table, "metadata", None) is METADATA]
    assert len(tables) == 9
    found = set()
    for table in tables:
        for column in table.columns:
            assert not isinstance(column.type, Float | Numeric), column
            if column.name in MONEY:
                assert isinstance(column.type, BigInteger), column
                found.add(column.name)
    assert found == MONEY
