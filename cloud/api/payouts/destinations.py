"""Where an owner is paid by hand: a name and a bank account (ISO 13616), checked before any money goes there."""

import re
from dataclasses import asdict, dataclass

import msgspec

from shared.errors import InvalidInput

_IBAN = re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", re.ASCII)
_BIC = re.compile(r"[A-Z]{6}[A-Z0-9]{2}([A-Z0-9]{3})?", re.ASCII)
NAME_MAX = 70
"""As in a SEPA credit transfer."""


@dataclass(frozen=True, slots=True)
class BankAccount:
    name: str
    iban: str
    bic: str = ""

    def to_text(self) -> str:
        """As payouts keep it."""
        return msgspec.json.encode(asdict(self)).decode()

    @classmethod
    def from_text(cls, text: str) -> "BankAccount":
        return cls(**msgspec.json.decode(text, type=dict[str, str]))

    def masked(self) -> str:
        """For people who know it: nothing of it can be used."""
        return f"{self.name}, {self.iban[:4]}…{self.iban[-4:]}"


def bank_account(name: str, iban: str, bic: str = "") -> BankAccount:
    """Raises `InvalidInput` that names the field."""
    name, iban, bic = name.strip(), re.sub(r"\s", "", iban).upper(), bic.strip().upper()
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        raise InvalidInput(f"`name` must have 1 to {NAME_MAX} visible characters.", param="name")
    if not _IBAN.fullmatch(iban) or _remainder(iban) != 1:
        raise InvalidInput("`iban` is no IBAN: check it for a slip of the pen.", param="iban")
    if bic and not _BIC.fullmatch(bic):
        raise InvalidInput("`bic` must have 8 or 11 letters and digits.", param="bic")
    return BankAccount(name, iban, bic)


def _remainder(iban: str) -> int:
    """ISO 7064 MOD 97-10: 1 for an IBAN without a slip."""
    turned = iban[4:] + iban[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97
