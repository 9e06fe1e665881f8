"""The books as text for other programs: CSV, and Beancount's language (https://beancount.github.io). Pure.

Beancount counts what is owed as negative, so that every amount has the opposite sign there.
"""

import csv
import io
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Final

from cloud.api.accounts.money import dollars
from cloud.api.ledger.events import Event
from cloud.api.ledger.places import Place, Sort, account_of, sort_of

COLUMNS: Final = ("event", "kind", "key", "at", "place", "nano_dollars", "dollars", "reason", "actor")
_DAY_S: Final = 86400
_NAMES: Final[Mapping[Sort, str]] = {
    Sort.AVAILABLE: "Liabilities:Customers:{}:Available",
    Sort.RESERVED: "Liabilities:Customers:{}:Reserved",
    Sort.PENDING: "Liabilities:Owners:{}:Pending",
    Sort.PAYABLE: "Liabilities:Owners:{}:Payable",
    Sort.PAYING: "Liabilities:Owners:{}:Paying",
    Sort.PAID: "Assets:Paid:{}",
    Sort.REVENUE: "Income:Revenue",
    Sort.CASH: "Assets:Cash",
    Sort.USE: "Expenses:Use",
    Sort.ADJUSTMENTS: "Expenses:Adjustments",
}


async def csv_lines(events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """A header, then a line for each posting; times are UTC (RFC 3339), amounts exact."""
    yield _csv(*COLUMNS)
    async for event in events:
        entry, at = event.entry, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.at))
        for place, amount in entry.postings.items():
            told = (event.id, entry.kind, entry.key, at, place, str(amount), dollars(amount))
            yield _csv(*told, entry.reason, entry.actor)


async def beancount_lines(events: AsyncIterator[Event], balances: Mapping[Place, int]) -> AsyncIterator[str]:
    """Transactions, and at the end the balances that the books keep, as assertions that Beancount checks."""
    yield 'option "title" "Nexus"\noption "operating_currency" "USD"\n'
    opened: set[Place] = set()
    sums: Counter[Place] = Counter()
    last = 0
    async for event in events:
        last = max(last, event.at)
        for place, amount in event.entry.postings.items():
            sums[place] += amount
            if place not in opened:
                opened.add(place)
                yield f"1970-01-01 open {beancount_name(place)} USD\n"
        if event.entry.postings:
            entry = event.entry
            text = f"{entry.kind}: {entry.reason}" if entry.reason else entry.kind
            yield f'{_day(event.at)} * {_quoted(text)}\n  event: "{event.id}"\n  key: {_quoted(entry.key)}\n'
            for place, amount in entry.postings.items():
                yield f"  {beancount_name(place)}  {_amount(-amount)} USD\n"
    for place in sorted(opened):
        # One of which nothing is kept fails here, as it should.
        yield f"{_day(last + _DAY_S)} balance {beancount_name(place)}  {_amount(-balances.get(place, 0))} USD\n"


def beancount_name(place: Place) -> str:
    """Parts of Beancount's names begin with a capital or a digit and hold letters, digits and hyphens."""
    account = account_of(place)
    return _NAMES[sort_of(place)].format("" if account is None else account.replace("_", "-").capitalize())


def _amount(nano: int) -> str:
    """With all nine places: Beancount tells the tolerance of a check by them."""
    sign, size = "-" if nano < 0 else "", abs(nano)
    return f"{sign}{size // 10**9}.{size % 10**9:09d}"


def _day(at: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + " ".join(escaped.split()) + '"'


def _csv(*cells: str) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
