"""Money as integers, to and from dollars as people write them. No floats."""

import re
from decimal import Decimal
from typing import NewType

Nano = NewType("Nano", int)
"""Nano-dollars, 10⁻⁹ of a dollar: what an answer costs and what a budget holds."""
Pico = NewType("Pico", int)
"""Pico-dollars, 10⁻¹²: what a token costs."""

NOTHING = Nano(0)
NANO_PLACES = 9
PICO_PLACES = 12
MOST_DOLLARS = 1_000_000_000
_DOLLARS = re.compile(r"\d{1,10}(\.\d+)?", re.ASCII)


def parse_dollars(text: str, places: int) -> int:
    """Whole units of 10^-places dollars. Raises `ValueError` that says what a price or budget looks like."""
    if not _DOLLARS.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no amount of dollars: write it like 12.50 or 0.0000005")
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    if len(fraction) > places:
        raise ValueError(f"{text[:40]} is finer than {places} decimal places")
    if int(whole) > MOST_DOLLARS:
        raise ValueError(f"{text[:40]} is more than {MOST_DOLLARS} dollars")
    return int(whole + fraction.ljust(places, "0"))


def nano(text: str) -> Nano:
    return Nano(parse_dollars(text, NANO_PLACES))


def pico(text: str) -> Pico:
    return Pico(parse_dollars(text, PICO_PLACES))


def dollars(amount: int, places: int = NANO_PLACES) -> str:
    """As decimal text without an exponent; exact."""
    text = f"{Decimal(amount).scaleb(-places):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
