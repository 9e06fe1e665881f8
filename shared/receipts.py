"""Receipts: what an owner earned, piece by piece, signed by the coordinator and chained so that none can be lost.

A receipt's canonical form is one MessagePack array of its fields in the order of the class. Its digest is the SHA-256
of that, and the next receipt of the same owner names it. The coordinator signs label and digest (Ed25519, RFC 8032):
whoever has its public key and the file needs nobody else to check it (`check`).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, NewType

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shared.errors import InvalidInput
from shared.keys import PrivateKey

KeyName = NewType("KeyName", str)
"""A coordinator's key: `rk_` and the first 16 hexadecimal digits of the SHA-256 of its public key."""

RECEIPT_LABEL: Final = b"nexus receipt 1\x00"
STATEMENT_LABEL: Final = b"nexus receipts statement 1\x00"
"""Keep the two kinds of signatures apart from each other and from any other; the numbers change with the form."""
BEGINNING: Final = bytes(32)
"""What the first receipt of an owner names as the one before it."""
_PICO_PER_NANO: Final = 1000
_encoder = msgspec.msgpack.Encoder()


class Receipt(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One piece of work of one node for one request, or an adjustment, whose `amount` may be negative.

    Amounts are nano-dollars, prices pico-dollars for one marginal token, times seconds since 1970 (UTC).
    """

    id: str
    key: KeyName
    """Which of the coordinator's keys signs it."""
    owner: str
    sequence: int
    """1 for the first of an owner, then without a gap."""
    previous: bytes
    """Digest of the owner's receipt before this one; `BEGINNING` for the first."""
    kind: Literal["work", "adjustment"]
    node: str
    request: str
    model: str
    """The target: the model that checked the drafts."""
    first: int
    last: int
    """Positions, absolute."""
    drafted: int
    accepted: int
    marginal: int
    price: int
    price_version: str
    amount: int
    at: int
    reason: str = ""
    """Of an adjustment, in words."""

    def canonical(self) -> bytes:
        return _encoder.encode(self)

    def digest(self) -> bytes:
        return hashlib.sha256(self.canonical()).digest()

    def is_sound(self) -> bool:
        """Whether its numbers can be: counts within each other, and no more paid than the price says."""
        if self.kind == "adjustment":
            return True
        counted = 0 <= self.marginal <= self.accepted <= self.drafted and 0 <= self.first <= self.last
        return counted and 0 <= self.amount <= self.marginal * self.price // _PICO_PER_NANO


class Statement(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How far an owner's chain goes: without it nobody could tell whether its end was cut off."""

    key: KeyName
    owner: str
    count: int
    head: bytes
    """Digest of the last receipt; `BEGINNING` when there is none."""
    total: int
    """Sum of all amounts, nano-dollars."""
    at: int

    def digest(self) -> bytes:
        return hashlib.sha256(_encoder.encode(self)).digest()


@dataclass(frozen=True, slots=True)
class SignedReceipt:
    """A receipt with the digest that was signed: if the two disagree, the contents were changed afterwards."""

    receipt: Receipt
    digest: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class SignedStatement:
    statement: Statement
    signature: bytes


class ReceiptKey(PrivateKey):
    """The coordinator's key for receipts."""

    kind = "receipt key"

    @property
    def name(self) -> KeyName:
        return key_name(self.public)

    def sign_receipt(self, receipt: Receipt) -> SignedReceipt:
        digest = receipt.digest()
        return SignedReceipt(receipt, digest, self.sign(RECEIPT_LABEL + digest))

    def sign_statement(self, statement: Statement) -> SignedStatement:
        return SignedStatement(statement, self.sign(STATEMENT_LABEL + statement.digest()))


def key_name(public: bytes) -> KeyName:
    return KeyName(f"rk_{hashlib.sha256(public).hexdigest()[:16]}")


def keyring(publics: Iterable[bytes]) -> dict[KeyName, bytes]:
    """Public keys by name. Raises `InvalidInput` for what is none."""
    found = {}
    for public in publics:
        if len(public) != 32:
            raise InvalidInput("A public key of the coordinator has 32 bytes, 64 hexadecimal digits.")
        found[key_name(public)] = public
    return found


class Fault(StrEnum):
    """What can be wrong with a receipt."""

    UNREADABLE = "unreadable"
    FORGED = "forged"
    ALTERED = "altered"
    FOREIGN = "foreign"
    REPLAYED = "replayed"
    REORDERED = "reordered"
    MISSING = "missing"
    FORKED = "forked"
    UNSOUND = "unsound"


_WORDS: Final[Mapping[Fault, str]] = {
    Fault.UNREADABLE: "It is no receipt: {}.",
    Fault.FORGED: "The coordinator never signed this: {}.",
    Fault.ALTERED: "Its contents are not those that the coordinator signed: something was changed afterwards.",
    Fault.FOREIGN: "It belongs to another owner, {}.",
    Fault.REPLAYED: "It is here twice: {} was counted already.",
    Fault.REORDERED: "It stands in the wrong place: {}.",
    Fault.MISSING: "Receipts are missing: {}.",
    Fault.FORKED: "The coordinator signed two different histories: {}. Show it both files.",
    Fault.UNSOUND: "It is signed, but its numbers cannot be: {}. Show it to the coordinator.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, and where: `line` counts from 1, none is the file as a whole."""

    fault: Fault
    line: int | None
    message: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What a file of receipts comes to. `total` counts what the coordinator signed for this owner, each once."""

    owner: str
    count: int
    first: int
    last: int
    total: int
    complete: bool
    """Whether a statement says that nothing was cut off at the end."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no receipt, and why."""

    reason: str


Entry = SignedReceipt | SignedStatement | Unreadable


def check(entries: Sequence[Entry], keys: Mapping[KeyName, bytes], owner: str | None = None) -> Checked:
    """Judge a file of receipts, line by line, with nothing but the coordinator's public keys.

    Without `owner` it is the one of the statement, else of the first genuine receipt.
    """
    return _Check(entries, keys, owner).result()


class _Check:
    def __init__(self, entries: Sequence[Entry], keys: Mapping[KeyName, bytes], owner: str | None) -> None:
        self._keys = keys
        self._findings: list[Finding] = []
        self._genuine: list[tuple[int, SignedReceipt]] = []
        self._statements: list[tuple[int, SignedStatement]] = []
        self._spoiled: set[int] = set()
        """Numbers that a line has which is not genuine: of those it is said already that something is wrong."""
        for line, entry in enumerate(entries, 1):
            self._read(line, entry)
        self._owner = owner or self._first_owner()
        self._mine = self._without_foreign()

    def result(self) -> Checked:
        by_sequence = self._walk()
        self._check_links(by_sequence)
        self._check_gaps(by_sequence)
        complete = self._check_statements(by_sequence)
        order = sorted(by_sequence)
        return Checked(
            owner=self._owner,
            count=len(order),
            first=order[0] if order else 0,
            last=order[-1] if order else 0,
            total=sum(signed.receipt.amount for _, signed in by_sequence.values()),
            complete=complete,
            findings=tuple(sorted(self._findings, key=lambda found: (found.line is None, found.line or 0))),
        )

    def _find(self, fault: Fault, line: int | None, detail: str = "") -> None:
        self._findings.append(Finding(fault, line, _WORDS[fault].format(detail)))

    def _read(self, line: int, entry: Entry) -> None:
        match entry:
            case Unreadable(reason):
                self._find(Fault.UNREADABLE, line, reason)
            case SignedReceipt(receipt, digest, signature):
                if not self._is_signed(line, receipt.key, RECEIPT_LABEL + digest, signature):
                    self._spoiled.add(receipt.sequence)
                elif receipt.digest() != digest:
                    self._find(Fault.ALTERED, line)
                    self._spoiled.add(receipt.sequence)
                else:
                    self._genuine.append((line, entry))
            case SignedStatement(statement, signature):
                if self._is_signed(line, statement.key, STATEMENT_LABEL + statement.digest(), signature):
                    self._statements.append((line, entry))

    def _is_signed(self, line: int, key: KeyName, payload: bytes, signature: bytes) -> bool:
        public = self._keys.get(key)
        if public is None:
            self._find(Fault.FORGED, line, f"its key {key} is none of the coordinator's")
            return False
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, payload)
        except InvalidSignature:
            self._find(Fault.FORGED, line, f"the signature is not one of its key {key}")
            return False
        return True

    def _first_owner(self) -> str:
        for _, told in self._statements:
            return told.statement.owner
        return self._genuine[0][1].receipt.owner if self._genuine else ""

    def _without_foreign(self) -> list[tuple[int, SignedReceipt]]:
        mine = []
        for line, signed in self._genuine:
            if signed.receipt.owner == self._owner:
                mine.append((line, signed))
            else:
                self._find(Fault.FOREIGN, line, signed.receipt.owner)
        return mine

    def _walk(self) -> dict[int, tuple[int, SignedReceipt]]:
        """Receipts by sequence number, each once, in whatever order they stand."""
        found: dict[int, tuple[int, SignedReceipt]] = {}
        work: dict[tuple[str, str], int] = {}
        highest = 0
        for line, signed in self._mine:
            receipt = signed.receipt
            if (known := found.get(receipt.sequence)) is not None:
                if known[1].digest == signed.digest:
                    self._find(Fault.REPLAYED, line, f"receipt {receipt.sequence} of line {known[0]}")
                else:
                    self._find(Fault.FORKED, line, f"lines {known[0]} and {line} are both number {receipt.sequence}")
                continue
            place = (receipt.request, receipt.node)
            if receipt.kind == "work" and (other := work.setdefault(place, receipt.sequence)) != receipt.sequence:
                self._find(Fault.REPLAYED, line, f"request {receipt.request}, by receipt {other},")
                continue
            if receipt.sequence < highest:
                self._find(Fault.REORDERED, line, f"number {receipt.sequence} comes after number {highest}")
            if not receipt.is_sound():
                self._find(Fault.UNSOUND, line, f"{receipt.marginal} of {receipt.drafted} tokens for {receipt.amount}")
            highest = max(highest, receipt.sequence)
            found[receipt.sequence] = line, signed
        return found

    def _check_links(self, found: Mapping[int, tuple[int, SignedReceipt]]) -> None:
        for sequence, (line, signed) in found.items():
            before = found.get(sequence - 1)
            expected = BEGINNING if sequence == 1 else before[1].digest if before else None
            if expected is not None and signed.receipt.previous != expected:
                self._find(
                    Fault.FORKED, line, f"number {sequence} does not follow the number {sequence - 1} shown here"
                )

    def _check_gaps(self, found: Mapping[int, tuple[int, SignedReceipt]]) -> None:
        expected = 1
        for sequence in sorted(found):
            if not self._spoiled.issuperset(range(expected, sequence)):
                self._find(Fault.MISSING, found[sequence][0], _span(expected, sequence - 1))
            expected = sequence + 1

    def _check_statements(self, found: Mapping[int, tuple[int, SignedReceipt]]) -> bool:
        """Also whether one of them vouches for the end."""
        complete = False
        last = max(found, default=0)
        for line, told in self._statements:
            statement = told.statement
            if statement.owner != self._owner:
                self._find(Fault.FOREIGN, line, statement.owner)
            elif statement.count > last:
                if not self._spoiled.issuperset(range(last + 1, statement.count + 1)):
                    self._find(Fault.MISSING, line, f"{_span(last + 1, statement.count)}, at the end")
            else:
                head = found[statement.count][1].digest if statement.count in found else BEGINNING
                if (statement.count in found or statement.count == 0) and head != statement.head:
                    self._find(Fault.FORKED, line, f"its statement names another number {statement.count}")
                else:
                    complete = complete or statement.count == last
        return complete


def _span(first: int, last: int) -> str:
    return f"number {first}" if first == last else f"numbers {first} to {last}"


def to_line(entry: SignedReceipt | SignedStatement) -> bytes:
    """As one line of a file of receipts (JSON, without the line's end)."""
    signature = entry.signature.hex()
    if isinstance(entry, SignedStatement):
        return msgspec.json.encode({"statement": _object(entry.statement), "signature": signature})
    data = {"receipt": _object(entry.receipt), "digest": entry.digest.hex(), "signature": signature}
    return msgspec.json.encode(data)


def from_line(line: bytes) -> Entry:
    """Read what `to_line` wrote, or say why that cannot be done."""
    try:
        data = msgspec.json.decode(line, type=dict[str, Any])
        signature = bytes.fromhex(data["signature"])
        if "statement" in data:
            return SignedStatement(_struct(data["statement"], Statement), signature)
        return SignedReceipt(_struct(data["receipt"], Receipt), bytes.fromhex(data["digest"]), signature)
    except KeyError as error:
        return Unreadable(f"`{str(error.args[0])[:40]}` is not there")
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return Unreadable("it is damaged, or of another program")


def read_lines(data: bytes) -> list[Entry]:
    """A whole file; empty lines are passed over."""
    return [from_line(line) for line in data.splitlines() if line.strip()]


_HEXADECIMAL = ("previous", "head")


def _object(struct: Receipt | Statement) -> dict[str, Any]:
    """By name, for people who read the file; digests in hexadecimal digits."""
    values = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {name: value.hex() if name in _HEXADECIMAL else value for name, value in values.items()}


def _struct(data: dict[str, Any], kind: type[Any]) -> Any:
    values = []
    for name in kind.__struct_fields__:
        value = data[name]
        values.append(bytes.fromhex(value) if name in _HEXADECIMAL else value)
    if len(data) != len(values):
        raise ValueError("fields that are not known")
    return msgspec.convert(values, kind)
