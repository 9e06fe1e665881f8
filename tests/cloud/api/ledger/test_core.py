"""The pure core: rules of events, lives of reservations, and names."""

import itertools
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ledger import ALICE, BOB, NOW, OWNER, Maker

from cloud.api.accounts.money import Nano
from cloud.api.ledger import entries, places
from cloud.api.ledger.audit import Audit
from cloud.api.ledger.events import KINDS, Entry, EventId, EventIds, WrongEntry, check
from cloud.api.ledger.places import Sort, account_of, sort_of
from cloud.api.ledger.posting import Extract, NotCovered, Posting
from cloud.api.ledger.purse import FRESH_S, Purse
from cloud.api.ledger.reservations import STEPS, State, advance


def test_every_place_says_whose_it_is():
    """The name gives sort and account back."""
    for place in places.of_account(ALICE):
        assert account_of(place) == ALICE and not sort_of(place).startswith("house")
    assert {sort_of(p) for p in places.of_account(ALICE)} == {s for s in Sort if not s.startswith("house")}
    for place in (places.REVENUE, places.CASH, places.USE, places.ADJUSTMENTS):
        assert account_of(place) is None and type(place) is str
    with pytest.raises(ValueError, match="elsewhere"):
        sort_of(places.Place("customer:acct_alice:elsewhere"))


AMOUNT = Nano(5)
RIGHT = [
    entries.top_up(ALICE, AMOUNT, "x"),
    entries.refund(ALICE, AMOUNT, "x", reason="r"),
    entries.adjustment(places.pending(OWNER), Nano(-5), "x", reason="r"),
    entries.mature(OWNER, AMOUNT, EventId("evt_1")),
    entries.payout_asked(OWNER, AMOUNT, "pay_1"),
    entries.payout_sent(OWNER, AMOUNT, "pay_1"),
    entries.payout_failed(OWNER, AMOUNT, "pay_1"),
]


def test_what_people_and_payouts_enter_is_right():
    """Every entry passes its kind's rule, under a key that names its kind."""
    for entry in RIGHT:
        check(entry)
        assert entry.key.startswith(f"{entry.kind}:")


@pytest.mark.parametrize(
    ("kind", "postings", "reason"),
    [
        ("top_up", {places.CASH: -5, places.available(ALICE): 6}, ""),
        ("top_up", {places.CASH: 5, places.available(ALICE): -5}, ""),
        ("payout_sent", {places.payable(OWNER): -5, places.paid(OWNER): 5}, ""),
        ("mature", {places.REVENUE: -5, places.payable(OWNER): 5}, ""),
        ("adjustment", {places.ADJUSTMENTS: -5, places.available(ALICE): 5}, " "),
        ("adjustment", {places.ADJUSTMENTS: -5, places.paid(ALICE): 5}, "r"),
        ("adjustment", {places.ADJUSTMENTS: 0}, "r"),
        ("adjustment", {places.ADJUSTMENTS: -5, places.available(ALICE): 5}, "r" * 501),
    ],
)
def test_what_breaks_a_rule_is_refused(kind, postings, reason):
    """Not balanced, from or to the wrong place, without a reason, about nothing, too long."""
    with pytest.raises(WrongEntry):
        check(Entry(key="x", kind=kind, postings=postings, reason=reason))


def test_only_a_settlement_may_overdraw():
    """And only what is available to a customer."""
    assert {kind: rule.overdraws for kind, rule in KINDS.items() if rule.overdraws} == {"settle": {Sort.AVAILABLE}}


def test_the_table_of_reservations():
    """Nothing leaves `settled`, nothing comes back to `held`, and a release is never final."""
    assert {state for state, _ in STEPS} == {State.UNKNOWN, State.HELD, State.RELEASED}
    assert [state for (state, _), to in STEPS.items() if to is State.HELD] == [State.UNKNOWN]
    for state in (State.UNKNOWN, State.HELD, State.RELEASED):
        assert advance(state, "settle") is State.SETTLED
    for step in ("reserve", "release", "settle"):
        assert advance(State.SETTLED, step) is None


def test_names_of_events_are_in_order():
    """Also when the clock stands still or goes back."""
    times = iter([5_000, 5_000, 9_000, 2_000, 10_000_000])
    ids = EventIds(clock_ns=lambda: next(times))
    made = [ids() for _ in range(5)]
    assert made == sorted(set(made)) and all(len(name) <= 40 for name in made)


def test_what_goes_ahead_is_bounded():
    """By a part of what is known, and by how old the knowledge is."""
    purse = Purse()
    assert not purse.covers(0, 0.0)
    purse.learn(400, 10.0)
    assert purse.covers(100, 10.0) and not purse.covers(101, 10.0)
    purse.outstanding = 60
    assert purse.covers(40, 10.0 + FRESH_S) and not purse.covers(40, 10.1 + FRESH_S)
    purse.learn(-5, 50.0)
    assert not purse.covers(1, 50.0)


def test_an_audit_names_every_difference():
    """Each kind of fault is told in words, and none when there is none."""
    mine, hers = places.reserved(ALICE), places.pending(OWNER)
    good = {mine: 5, hers: 7, places.REVENUE: -12}
    fine = {"sums": good, "cached": good, "held": {mine: 5}, "maturing": {hers: 8}}
    assert Audit(events=1, postings=3, **fine).problems() == []
    for change, words in (
        ({"unbalanced": {EventId("evt_1"): 4}}, "sums to 4"),
        ({"sums": good | {mine: 6}}, "all postings sum to 1"),
        ({"cached": good | {places.CASH: 3}}, "is kept as 3"),
        ({"held": {mine: 4}}, "reservations held sum to 4"),
        ({"held": {mine: 5, places.reserved(BOB): 2}}, "customer:acct_bob:reserved has 0"),
        ({"maturing": {hers: 6}}, "only 6 has a day"),
        ({"sums": {**good, places.payable(BOB): -1, places.REVENUE: -11}}, "is below zero"),
        ({"unsettled": 2}, "2 settlements"),
    ):
        problems = Audit(events=1, postings=3, **(fine | change)).problems()
        assert any(words in problem for problem in problems), words
    owing = {places.available(ALICE): -9, places.USE: 9}
    audit = Audit(events=1, postings=2, sums=owing, cached=owing)
    assert audit.problems() == [] and audit.owed == 9


STEP = st.tuples(
    st.sampled_from(["top_up", "refund", "reserve", "settle", "release", "mature", "asked", "sent", "failed"]),
    st.sampled_from([ALICE, BOB]),
    st.integers(0, 4),
    st.integers(1, 60),
    st.integers(0, 60),
)


@given(st.lists(STEP, max_size=40))
def test_any_history_is_balanced(history):
    """Whatever is told in whatever order: events sum to zero, and nothing but a settlement takes a place below zero."""
    make, numbers = Maker(), itertools.count()
    posting = Posting(Extract(), at=NOW, new_id=EventIds(), hold_days=7)
    for what, account, request, amount, other in history:
        name = f"req_{request}_{account}"
        before = len(posting.events)
        try:
            match what:
                case "top_up":
                    posting.post(entries.top_up(account, Nano(amount), str(request)))
                case "refund":
                    posting.post(entries.refund(account, Nano(amount), str(request), reason="r"))
                case "reserve":
                    posting.reserve(make.reservation(amount, account, name))
                case "settle":
                    share = min(amount, other)
                    posting.settle(make.settlement(amount, account, name, ((OWNER, share),) if share else ()))
                case "release":
                    posting.release(name)
                case "mature":
                    posting.mature(OWNER, amount)
                case "asked":
                    posting.post(entries.payout_asked(OWNER, Nano(amount), f"pay_{next(numbers)}"))
                case "sent":
                    posting.post(entries.payout_sent(OWNER, Nano(amount), f"pay_{next(numbers)}"))
                case "failed":
                    posting.post(entries.payout_failed(OWNER, Nano(amount), f"pay_{next(numbers)}"))
        except NotCovered:
            assert len(posting.events) == before
    sums = Counter()
    for event in posting.events:
        assert sum(event.entry.postings.values()) == 0
        for place, amount in event.entry.postings.items():
            sums[place] += amount
            if amount < 0 and not place.startswith("house"):
                assert sums[place] >= 0 or (event.entry.kind == "settle" and sort_of(place) is Sort.AVAILABLE)
    assert sums == posting.moves and len({e.entry.key for e in posting.events}) == len(posting.events)
    assert all(set(event.id) <= set(string.ascii_lowercase + string.digits + "_") for event in posting.events)
    held = Counter()
    for each in posting.changed.values():
        held[each.account] += each.amount if each.state is State.HELD else 0
    assert all(sums[places.reserved(account)] == held[account] for account in (ALICE, BOB))
