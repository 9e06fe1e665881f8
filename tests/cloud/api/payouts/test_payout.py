"""The life of a payout: the table, and who may do what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.api.payouts.payout import (
    CENT,
    MOVES,
    TRANSITIONS,
    Approve,
    Cancel,
    Fail,
    Move,
    Pay,
    Postpone,
    Send,
    State,
    Try,
    advance,
    new_payout,
)
from shared.errors import Conflict, Forbidden, InvalidInput, NexusError

EVENTS = st.one_of(
    st.builds(Approve, st.sampled_from(["owner", "alice", "bob"]), service=st.booleans()),
    st.builds(Cancel, st.just("alice"), st.just("why")),
    st.builds(Try, st.integers(0, 99)),
    st.builds(Postpone, st.just("why"), st.integers(0, 99), known=st.booleans()),
    st.builds(Send, st.sampled_from(["ref", "other"])),
    st.builds(Pay, st.just("ref")),
    st.builds(Fail, st.just("why")),
)


def asked():
    return new_payout("owner", 5 * CENT, "manual", "there", 1)


def approved(service=False):
    return advance(advance(asked(), Approve("alice", service), 2), Approve("bob", service), 3)


def test_the_whole_way():
    """Asked, approved by two, sent, paid; each with its time and its people."""
    payout = advance(advance(approved(), Send("ref", "batch_1"), 4), Pay(), 5)
    assert (payout.state, payout.reviewed_by, payout.approved_by) == (State.PAID, "alice", "bob")
    assert (payout.asked_at, payout.approved_at, payout.sent_at, payout.ended_at) == (1, 3, 4, 5)
    assert (payout.reference, payout.batch) == ("ref", "batch_1")


def test_four_eyes():
    """The owner never, the same operator never twice; one approval alone does not do."""
    with pytest.raises(Forbidden, match="themselves"):
        advance(asked(), Approve("owner", False), 2)
    once = advance(asked(), Approve("alice", False), 2)
    assert once.state is State.ASKED
    with pytest.raises(Forbidden, match="Another operator"):
        advance(once, Approve("alice", False), 3)
    with pytest.raises(Forbidden):
        advance(once, Approve("owner", False), 3)
    with pytest.raises(Conflict):
        advance(once, Send("ref"), 3)


def test_what_has_happened_already_changes_nothing():
    """A rail may tell a thing twice, or late."""
    sent = advance(approved(), Send("ref"), 4)
    assert advance(sent, Send("ref"), 9) == sent
    with pytest.raises(Conflict):
        advance(sent, Send("another"), 9)
    paid = advance(sent, Pay(), 5)
    assert advance(paid, Pay("ref"), 9) == paid and advance(paid, Send("ref"), 9) == paid
    failed = advance(sent, Fail("closed"), 5)
    assert advance(failed, Fail("again"), 9) == failed
    with pytest.raises(Conflict):
        advance(paid, Fail("late"), 9)


def test_a_try_in_doubt_cannot_be_cancelled():
    """The money may have gone; once the rail has said that it did not, it can."""
    tried = advance(approved(service=True), Try(60), 4)
    for payout in (tried, advance(tried, Postpone("no answer", 100, known=False), 5)):
        with pytest.raises(Conflict, match="may have gone"):
            advance(payout, Cancel("alice", "why"), 6)
    refused = advance(tried, Postpone("no money", 100, known=True), 5)
    assert advance(refused, Cancel("alice", "why"), 6).state is State.CANCELLED


def test_the_idempotency_key_changes_only_when_nothing_was_done():
    """The same for every try whose outcome is not known, another after a refusal."""
    payout = approved(service=True)
    first = payout.idempotency_key
    payout = advance(advance(payout, Try(60), 4), Postpone("no answer", 100, known=False), 5)
    assert payout.idempotency_key == first
    payout = advance(advance(payout, Try(160), 101), Postpone("no money", 200, known=True), 102)
    assert payout.idempotency_key != first


@pytest.mark.parametrize("amount", [0, -CENT, CENT + 1, 1])
def test_amounts_are_whole_cents(amount):
    """More precise than that no rail pays."""
    with pytest.raises(InvalidInput, match="whole cents"):
        new_payout("owner", amount, "manual", "there", 1)


@given(st.lists(EVENTS, max_size=12))
def test_no_history_leaves_the_table(events):
    """Whatever is told in whatever order, every step is in the table, and money moves out of paying at most once."""
    payout = asked()
    entered = [payout.state]
    for now, event in enumerate(events, 2):
        before = payout
        try:
            payout = advance(payout, event, now)
        except NexusError:
            assert payout is before
        if payout.state is not before.state:
            assert payout.state in TRANSITIONS[before.state]
            entered.append(payout.state)
        if payout.state not in (State.ASKED, State.CANCELLED):
            assert payout.reviewed_by and payout.approved_by and payout.reviewed_by != payout.approved_by
            assert payout.owner not in (payout.reviewed_by, payout.approved_by)
        assert payout.errand is None or payout.state is State.APPROVED
    moves = [MOVES[state] for state in entered if MOVES[state]]
    assert moves[0] is Move.ASKED and len(moves) <= 2 and moves[1:] in ([], [Move.SENT], [Move.FAILED])
