"""Payouts by hand: a batch as CSV for the bank, and the bank's results as CSV back again.

Spreadsheets run cells that begin like a formula (CWE-1236), and names are the owners' own words: `cell` sees to that.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud.api.accounts.money import NANO_PLACES, dollars, parse_dollars
from cloud.api.payouts.destinations import BankAccount
from cloud.api.payouts.payout import Fail, Pay, Payout, PayoutId
from shared.errors import InvalidInput

COLUMNS = ("payout", "amount", "currency", "name", "iban", "bic", "reference")
RESULT_COLUMNS = ("payout", "amount", "result")
"""Those that a file of results must have; `reference` and `reason` are read where they are."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
RESULTS_MAX_BYTES = 4 << 20
REASON_MAX = 200


@dataclass(frozen=True, slots=True)
class Problem:
    """A line of a file of results that cannot be taken; lines count from 1."""

    line: int
    words: str


class WrongResults(InvalidInput):
    """The file is not taken: nothing of it counts until every line is right."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        shown = "; ".join(f"line {each.line}: {each.words}" for each in problems[:10])
        more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
        super().__init__(f"Nothing was taken from this file. {shown}{more}.")
        self.problems = tuple(problems)


def cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe stands before it, which `uncell` takes away."""
    return f"'{text}" if text.startswith((*_FORMULA, "'")) else text


def uncell(text: str) -> str:
    return text[1:] if text.startswith("'") else text


def to_csv(payouts: Sequence[Payout]) -> str:
    """RFC 4180, every field in quotes; the payout's id is what the bank is to quote."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for payout in payouts:
        to = BankAccount.from_text(payout.destination)
        row = (payout.id, _cents(payout), "USD", to.name, to.iban, to.bic, f"Nexus {payout.id}")
        writer.writerow([cell(each) for each in row])
    return out.getvalue()


def read_results(data: bytes, sent: Mapping[PayoutId, Payout]) -> dict[PayoutId, Pay | Fail]:
    """What a bank's file says, checked against the payouts that it may speak of. Raises `WrongResults` with every line
    that is wrong, and `InvalidInput` for what is no such file.
    """
    problems: list[Problem] = []
    found: dict[PayoutId, Pay | Fail] = {}
    for line, row in _rows(data):
        id = PayoutId(uncell(row["payout"]))
        payout = sent.get(id)
        if payout is None:
            problems.append(Problem(line, f"{_short(id)} is no payout that was sent by hand"))
        elif id in found:
            problems.append(Problem(line, f"{id} is here twice"))
        elif not _is_amount(row["amount"], payout):
            problems.append(Problem(line, f"{id} is {_cents(payout)} dollars, not {_short(row['amount'])}"))
        elif (result := row["result"].lower()) not in ("paid", "failed"):
            problems.append(Problem(line, f"the result is `paid` or `failed`, not {_short(result)}"))
        elif result == "paid":
            found[id] = Pay(uncell(row.get("reference", ""))[:REASON_MAX] or None)
        else:
            found[id] = Fail(uncell(row.get("reason", ""))[:REASON_MAX] or "The bank did not make the payment.")
    if problems:
        raise WrongResults(problems)
    return found


def _rows(data: bytes) -> list[tuple[int, dict[str, str]]]:
    try:
        text = data.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"This is no CSV file in UTF-8: {error}.") from None
    header = [name.strip().lower() for name in rows[0]] if rows else []
    if missing := [name for name in RESULT_COLUMNS if name not in header]:
        raise InvalidInput(f"The file of results has no column {', '.join(missing)}.")
    if len(set(header)) < len(header):
        raise InvalidInput("The file of results has two columns of one name.")
    found = []
    for line, row in enumerate(rows[1:], 2):
        if any(value.strip() for value in row):
            values = [value.strip() for value in row] + [""] * (len(header) - len(row))
            found.append((line, dict(zip(header, values, strict=False))))
    return found


def _cents(payout: Payout) -> str:
    """Dollars with two places, as banks write them."""
    whole, _, fraction = dollars(payout.amount).partition(".")
    return f"{whole}.{fraction:0<2}"


def _is_amount(text: str, payout: Payout) -> bool:
    try:
        return parse_dollars(text, NANO_PLACES) == payout.amount
    except ValueError:
        return False


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
