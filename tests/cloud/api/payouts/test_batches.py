"""Payouts by hand: what goes to the bank, what comes back, and what a spreadsheet may not make of it."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.api.accounts.money import Nano
from cloud.api.payouts.batches import WrongResults, cell, read_results, to_csv, uncell
from cloud.api.payouts.destinations import BankAccount, bank_account
from cloud.api.payouts.payout import Fail, Pay, new_payout
from shared.errors import InvalidInput

IBAN = "DE89370400440532013000"


def payout(name="Alice", amount=12_340_000_000):
    return new_payout("acct_1", Nano(amount), "manual", bank_account(name, IBAN).to_text(), 1)


def read(text):
    return list(csv.reader(io.StringIO(text)))


def test_a_batch():
    """One line for each, amounts as banks write them."""
    one, two = payout(), payout('Bob, the "builder"', 20 * 10**9)
    header, first, second = read(to_csv([one, two]))
    assert header == ["payout", "amount", "currency", "name", "iban", "bic", "reference"]
    assert first == [one.id, "12.34", "USD", "Alice", IBAN, "", f"Nexus {one.id}"]
    assert second[1:4] == ["20.00", "USD", 'Bob, the "builder"']


@pytest.mark.parametrize("name", ["=cmd()", "+1", "-1", "@SUM(A1)", "|x", "%x", "'=1"])
def test_no_name_is_a_formula(name):
    """Spreadsheets run cells that begin so; the name itself is kept."""
    text = read(to_csv([payout(name)]))[1][3]
    assert text == f"'{name}" and uncell(text) == name


@given(st.text(max_size=20))
def test_cells_can_be_read_back(text):
    """Nothing is lost, and nothing begins like a formula."""
    assert uncell(cell(text)) == text and not cell(text).startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


def test_results():
    """Paid with the bank's reference, or failed with its reason; more columns, another order, empty lines and a byte
    order mark are no trouble.
    """
    one, two, three = payout(), payout(), payout()
    text = (
        "\ufeffresult,Payout,note,amount,reason,reference\r\n"
        f"paid,{one.id},x,12.34,,'-77\r\n\r\n"
        f"FAILED,{two.id},x,12.340,=account closed\r\n"
        f"failed,{three.id},x,12.34\r\n"
    )
    sent = {each.id: each for each in (one, two, three)}
    assert read_results(text.encode(), sent) == {
        one.id: Pay("-77"),
        two.id: Fail("=account closed"),
        three.id: Fail("The bank did not make the payment."),
    }


def test_every_wrong_line_is_named_and_nothing_counts():
    """Unknown, twice, another amount, another word."""
    one, two, three = payout(), payout(), payout()
    lines = [
        "payout,amount,result",
        f"{one.id},12.34,paid",
        "pay_none,12.34,paid",
        f"{one.id},12.34,failed",
        f"{two.id},12.35,paid",
        f"{three.id},12.34,maybe",
    ]
    with pytest.raises(WrongResults) as caught:
        read_results("\n".join(lines).encode(), {each.id: each for each in (one, two, three)})
    assert [each.line for each in caught.value.problems] == [3, 4, 5, 6]
    assert all(f"line {line}" in caught.value.message for line in (3, 4, 5, 6))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no column payout"),
        (b"payout,amount\n", "no column result"),
        (b"payout,amount,result,result\n", "two columns"),
        (b"\xff\xfe", "UTF-8"),
        (b'payout,amount,result\n"x,1,paid', "no CSV"),
        (b"payout,amount,result\nx,1e9,paid", "line 2"),
        (b"payout,amount,result\n", None),
    ],
)
def test_files_that_are_none(data, words):
    """Each is told in words; an empty list of results is one."""
    if words is None:
        assert read_results(data, {}) == {}
        return
    with pytest.raises(InvalidInput, match=words):
        read_results(data, {})


def test_bank_accounts():
    """A slip in an IBAN is found before money goes there, and only a part of it is shown."""
    found = bank_account(" Alice ", "de89 3704 0044 0532 0130 00", "cobadeff")
    assert found == BankAccount("Alice", IBAN, "COBADEFF") == BankAccount.from_text(found.to_text())
    assert found.masked() == "Alice, DE89…3000"
    for name, iban, bic, field in (
        ("", IBAN, "", "name"),
        ("x" * 71, IBAN, "", "name"),
        ("a\nb", IBAN, "", "name"),
        ("Alice", "DE98370400440532013000", "", "iban"),
        ("Alice", "", "", "iban"),
        ("Alice", "DE8937040044053201300\u0660", "", "iban"),
        ("Alice", IBAN, "COBA", "bic"),
    ):
        with pytest.raises(InvalidInput) as caught:
            bank_account(name, iban, bic)
        assert caught.value.param == field
