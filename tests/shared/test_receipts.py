"""Receipts: their exact bytes, and what a check says about every way to spoil a file of them."""

import dataclasses
import random
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import InvalidInput
from shared.receipts import (
    BEGINNING,
    Checked,
    Fault,
    Receipt,
    ReceiptKey,
    SignedReceipt,
    SignedStatement,
    Statement,
    check,
    from_line,
    keyring,
    read_lines,
    to_line,
)

KEY = ReceiptKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
STRANGER = ReceiptKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
KEYS = keyring([KEY.public])


def receipt(number: int = 1, previous: bytes = BEGINNING, **changes: Any) -> Receipt:
    given = {
        "id": f"rcpt_{number:016x}",
        "key": KEY.name,
        "owner": "acct_0123456789abcdef",
        "sequence": number,
        "previous": previous,
        "kind": "work",
        "node": "0f" * 16,
        "request": f"req_{number}",
        "model": "qwen2.5-coder-1.5b",
        "first": 100,
        "last": 180,
        "drafted": 80,
        "accepted": 60,
        "marginal": 50,
        "price": 120_000,
        "price_version": "spot-1",
        "amount": 6000,
        "at": 1_796_000_000 + number,
    }
    return Receipt(**given | changes)


def chain(count: int, key: ReceiptKey = KEY, **changes: Any) -> list[SignedReceipt]:
    signed: list[SignedReceipt] = []
    for number in range(1, count + 1):
        previous = signed[-1].digest if signed else BEGINNING
        signed.append(key.sign_receipt(receipt(number, previous, key=key.name, **changes)))
    return signed


def statement(signed: list[SignedReceipt]) -> SignedStatement:
    total = sum(each.receipt.amount for each in signed)
    head = signed[-1].digest if signed else BEGINNING
    told = Statement(
        key=KEY.name, owner="acct_0123456789abcdef", count=len(signed), head=head, total=total, at=1_796_100_000
    )
    return KEY.sign_statement(told)


def faults(checked: Checked) -> list[tuple[int | None, Fault]]:
    return [(each.line, each.fault) for each in checked.findings]


def test_golden_bytes() -> None:
    """Whoever checks receipts in another language has these to compare with."""
    signed = KEY.sign_receipt(receipt())
    assert signed.receipt.canonical().hex() == (
        "dc0013b5726370745f30303030303030303030303030303031b3726b5f353634373561613735343633343734"
        "63b5616363745f30313233343536373839616263646566"
        "01c4200000000000000000000000000000000000000000000000000000000000000000"
        "a4776f726bd9203066306630663066306630663066306630663066306630663066306630663066"
        "a57265715f31b27177656e322e352d636f6465722d312e356264ccb4503c32ce0001d4c0a673706f742d31cd1770"
        "ce6b0cc901a0"
    )
    assert signed.digest.hex() == "60acd372c195cf0d0f5e27cef5e2f4f5f82b4a40a0c0a4cc63617a34e4f66a45"
    assert signed.signature.hex() == (
        "45c99f09e5da245f0697a1dcb613bef4c58a4f9681f919b5378728ca994be552"
        "fed48fc057271aacb557d4c7688fda1154e468443b070ad78c424cb78f1a3104"
    )
    assert KEY.name == "rk_56475aa75463474c"


def test_a_whole_file_is_good() -> None:
    """Counted, added up, and complete by its statement; an adjustment may take away."""
    signed = chain(4)
    taken = receipt(5, signed[-1].digest, kind="adjustment", amount=-2500, reason="dispute 7", request="", node="")
    signed.append(KEY.sign_receipt(taken))
    data = b"\n".join([*map(to_line, [*signed, statement(signed)]), b""])
    checked = check(read_lines(data), KEYS)
    assert checked == Checked("acct_0123456789abcdef", 5, 1, 5, 4 * 6000 - 2500, True, ())
    assert not check(signed, KEYS).complete and not check(signed, KEYS).findings
    assert check([statement([])], KEYS).complete and check([], KEYS).count == 0


def test_altered() -> None:
    """Any field that is changed after signing is found, and does not count."""
    for name in Receipt.__struct_fields__:
        signed = chain(3)
        old = getattr(signed[1].receipt, name)
        if name in ("key", "kind"):
            continue
        new = old + 1 if isinstance(old, int) else old + (b"x" if isinstance(old, bytes) else "x")
        signed[1] = dataclasses.replace(signed[1], receipt=msgspec.structs.replace(signed[1].receipt, **{name: new}))
        checked = check(signed, KEYS)
        assert (2, Fault.ALTERED) in faults(checked), name
        assert checked.total == 12000


def test_forged() -> None:
    """By a key of somebody else, under its own name or the coordinator's, or with digest and contents both changed."""
    assert faults(check(chain(1, STRANGER), KEYS)) == [(1, Fault.FORGED)]
    in_our_name = receipt(key=KEY.name)
    digest = in_our_name.digest()
    assert faults(check([STRANGER.sign_receipt(in_our_name)], KEYS)) == [(1, Fault.FORGED)]
    mine = dataclasses.replace(KEY.sign_receipt(receipt(amount=1)), receipt=in_our_name, digest=digest)
    assert faults(check([mine], KEYS)) == [(1, Fault.FORGED)]
    assert faults(check([STRANGER.sign_statement(statement([]).statement)], KEYS)) == [(1, Fault.FORGED)]


def test_a_statement_is_no_receipt() -> None:
    """The signature of one kind does not do for the other, whatever the bytes."""
    body = receipt()
    other = KEY.sign(b"nexus receipts statement 1\x00" + body.digest())
    assert faults(check([SignedReceipt(body, body.digest(), other)], KEYS)) == [(1, Fault.FORGED)]


def test_missing() -> None:
    """At the beginning, in the middle, and at the end if a statement says how many there are."""
    signed = chain(6)
    end = statement(signed)
    checked = check([*signed[1:3], *signed[4:5], end], KEYS)
    assert faults(checked) == [(1, Fault.MISSING), (3, Fault.MISSING), (4, Fault.MISSING)]
    messages = [each.message for each in checked.findings]
    assert "number 1." in messages[0] and "number 4." in messages[1] and "number 6, at the end" in messages[2]
    assert not checked.complete


def test_replayed() -> None:
    """The same receipt again, or the same work under another number, counts once."""
    signed = chain(3)
    checked = check([signed[0], signed[1], signed[1], signed[2]], KEYS)
    assert faults(checked) == [(3, Fault.REPLAYED)] and checked.total == 18000
    again = KEY.sign_receipt(receipt(4, signed[2].digest, request="req_2"))
    assert faults(check([*signed, again], KEYS)) == [(4, Fault.REPLAYED)]


def test_reordered() -> None:
    """All are there, so nothing is missing, but the order is told."""
    one, two, three = chain(3)
    checked = check([one, three, two], KEYS)
    assert faults(checked) == [(3, Fault.REORDERED)] and checked.total == 18000


def test_foreign() -> None:
    """Another owner's receipts do not count, nor does another owner's statement."""
    signed = chain(2)
    [other] = chain(1, owner="acct_ffffffffffffffff")
    checked = check([*signed, other, statement(signed)], KEYS)
    assert faults(checked) == [(3, Fault.FOREIGN)] and checked.total == 12000
    assert [fault for _, fault in faults(check(signed, KEYS, owner="acct_ffffffffffffffff"))] == [Fault.FOREIGN] * 2


def test_forked() -> None:
    """Two histories of one owner, both signed: by number, by link, and by statement."""
    signed = chain(2)
    other = KEY.sign_receipt(receipt(2, signed[0].digest, amount=1))
    assert faults(check([*signed, other], KEYS)) == [(3, Fault.FORKED)]
    third = KEY.sign_receipt(receipt(3, other.digest))
    assert faults(check([*signed, third], KEYS)) == [(3, Fault.FORKED)]
    assert faults(check([signed[0], other, statement(signed)], KEYS)) == [(3, Fault.FORKED)]


@pytest.mark.parametrize(
    "changes", [{"amount": 6001}, {"marginal": 61}, {"accepted": 81}, {"last": 99}, {"amount": -1}]
)
def test_unsound(changes: dict[str, int]) -> None:
    """Signed nonsense is not passed over: the coordinator has a fault then."""
    assert faults(check(chain(1, **changes), KEYS)) == [(1, Fault.UNSOUND)]


def test_unreadable_lines_are_named() -> None:
    """Whatever stands in a file, the check goes on and says which line it was."""
    good = to_line(chain(1)[0])
    spoiled = [b"{", b"[]", b"{}", b"\xff", good.replace(b'"at":', b'"then":'), good.replace(b"6000", b'"6000"')]
    spoiled += [good.replace(b'"reason":""', b'"reason":"","more":1'), good[:-5] + b'xyz"}', b"[" * 5000]
    checked = check(read_lines(b"\n".join([*spoiled, good])), KEYS)
    assert faults(checked) == [(line, Fault.UNREADABLE) for line in range(1, len(spoiled) + 1)] and checked.count == 1


def test_keys() -> None:
    """A key is known by a name made from itself; several may be good at once, after a rotation."""
    with pytest.raises(InvalidInput, match="32 bytes"):
        keyring([b"short"])
    first = chain(1)[0]
    second = STRANGER.sign_receipt(receipt(2, first.digest, key=STRANGER.name))
    assert not check([first, second], keyring([KEY.public, STRANGER.public])).findings


@given(st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.text(max_size=20))
def test_files_keep_everything(number: int, amount: int, text: str) -> None:
    """What is written to a line comes back the same."""
    signed = KEY.sign_receipt(receipt(number, amount=amount, reason=text, model=text))
    assert from_line(to_line(signed)) == signed


@given(st.randoms(use_true_random=False))
def test_no_spoiled_file_passes(chance: random.Random) -> None:
    """Lines dropped, doubled, swapped or changed in one bit: it is noticed, and what is counted was earned."""
    signed = chain(6)
    lines = [bytearray(to_line(entry)) for entry in [*signed, statement(signed)]]
    match chance.choice(["drop", "double", "swap", "flip"]):
        case "drop":
            del lines[chance.randrange(6)]
        case "double":
            place = chance.randrange(6)
            lines.insert(chance.randrange(7), lines[place])
        case "swap":
            one, two = chance.sample(range(6), 2)
            lines[one], lines[two] = lines[two], lines[one]
        case "flip":
            line = chance.choice(lines[:6])
            line[chance.randrange(len(line))] ^= 1 << chance.randrange(7)
    checked = check([from_line(bytes(line)) for line in lines], KEYS)
    before = check([from_line(to_line(entry)) for entry in [*signed, statement(signed)]], KEYS)
    assert checked.total <= 36000
    assert checked.findings or checked == before
