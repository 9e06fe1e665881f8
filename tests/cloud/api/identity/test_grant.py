"""Device codes: their form, and their life as a table."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.identity import NOW

from cloud.api.identity.grant import (
    LETTERS,
    SLOWER_S,
    TRANSITIONS,
    GrantEvent,
    GrantState,
    at,
    decide,
    new_grant,
    poll,
    read_user_code,
)
from cloud.api.identity.node import Node, NodeState, pair, refusal, revoke
from shared.errors import Conflict, Forbidden
from shared.ids import AccountId, NodeId

ALICE, BOB = AccountId("acct_a"), AccountId("acct_b")


def a_grant(**changes):
    new = new_grant(b"k" * 32, "tower", "https://x/device", "::1", NOW, lasts_s=900, interval_s=5)
    return replace(new.grant, **changes)


def test_codes_are_random_and_readable():
    """Eight letters that make no words and are not taken for each other; the device code has 256 bits."""
    made = [new_grant(b"k" * 32, "n", "p", "a", NOW, lasts_s=1, interval_s=5) for _ in range(200)]
    assert len({new.device_code for new in made}) == 200 == len({new.digest for new in made})
    for new in made:
        left, hyphen, right = new.grant.user_code.partition("-")
        assert hyphen and len(left) == len(right) == 4 and set(left + right) <= set(LETTERS)
        assert len(new.device_code) == 43 and new.device_code not in repr(new)
    assert not set(LETTERS) & set("AEIOUY0158") and len(LETTERS) == 20


@given(st.text(alphabet=LETTERS, min_size=8, max_size=8), st.sampled_from(["", "-", " ", "  ", "_"]), st.booleans())
def test_however_it_is_typed(letters, between, lower):
    """Case, spaces and hyphens do not count."""
    typed = f" {letters[:4]}{between}{letters[4:]} "
    assert read_user_code(typed.lower() if lower else typed) == f"{letters[:4]}-{letters[4:]}"


@given(st.text(max_size=30))
def test_anything_may_be_typed(text):
    """What can be no code is none, without an error."""
    code = read_user_code(text)
    assert code is None or (read_user_code(code) == code and len(code) == 9)


def test_every_state_and_event():
    """What the table does not have is refused in words; what it has, happens."""
    for state in GrantState:
        grant = a_grant(state=state, account=None if state is GrantState.PENDING else ALICE)
        for event, wanted in ((GrantEvent.APPROVE, GrantState.APPROVED), (GrantEvent.DENY, GrantState.DENIED)):
            if (state, event) in TRANSITIONS:
                assert decide(grant, event, ALICE, NOW).state is TRANSITIONS[state, event] is wanted
            elif state is wanted:
                assert decide(grant, event, ALICE, NOW) == grant
            else:
                with pytest.raises(Conflict):
                    decide(grant, event, ALICE, NOW)
        expired = at(grant, NOW + 900).state
        assert expired is TRANSITIONS.get((state, GrantEvent.EXPIRE), state) and at(grant, NOW + 899) == grant


def test_one_account_decides():
    """Another one can neither take it over nor undo it."""
    approved = decide(a_grant(), GrantEvent.APPROVE, ALICE, NOW)
    for event in (GrantEvent.APPROVE, GrantEvent.DENY):
        with pytest.raises(Conflict):
            decide(approved, event, BOB, NOW)
    assert decide(approved, GrantEvent.DENY, ALICE, NOW).state is GrantState.DENIED


def test_answers_to_the_node():
    """By state; one that asks too soon has to slow down, by five seconds each time."""
    grant, answer = poll(a_grant(), NOW)
    assert answer == "pending"
    grant, answer = poll(grant, NOW + 3)
    assert answer == "slow_down" and grant.interval_s == 5 + SLOWER_S
    grant, answer = poll(grant, NOW + 11)
    assert answer == "slow_down" and grant.interval_s == 5 + 2 * SLOWER_S
    grant, answer = poll(grant, NOW + 26)
    assert answer == "pending"
    grant = decide(grant, GrantEvent.APPROVE, ALICE, NOW + 27)
    grant, answer = poll(grant, NOW + 28)
    assert answer == "slow_down"
    grant, answer = poll(grant, NOW + 48)
    assert answer == "approved" and grant.state is GrantState.PAIRED
    assert poll(grant, NOW + 2000)[1] == "approved"
    assert poll(a_grant(state=GrantState.DENIED), NOW)[1] == "denied"
    assert poll(a_grant(), NOW + 900)[1] == "expired"
    assert poll(decide(a_grant(), GrantEvent.APPROVE, ALICE, NOW), NOW + 900)[1] == "expired"


@given(st.floats(0, 1), st.lists(st.floats(0, 2), max_size=8))
def test_who_keeps_to_the_interval_is_never_told_to_slow_down(begin, more):
    """Whatever the fraction of a second at which it asks, though times are kept in whole seconds."""
    now, grant = NOW + begin, a_grant()
    for wait in (0, *more):
        now += grant.interval_s + wait
        grant, answer = poll(grant, now)
        assert answer == "pending"


def a_node(owner=ALICE, name="n"):
    return Node(id=NodeId("n"), public_key=b"k" * 32, owner=owner, name=name, paired_at=NOW)


def test_the_life_of_a_node():
    """Paired once, again by the same owner; revoked for good, with words for who runs it."""
    node = pair(None, a_node())
    assert node.state is NodeState.PAIRED and refusal(node) is None
    again = pair(node, a_node(name="new"))
    assert again.name == "new" and again.paired_at == NOW
    with pytest.raises(Forbidden, match="another account"):
        pair(node, a_node(owner=BOB))
    gone = revoke(node, NOW + 5)
    assert gone.revoked_at == NOW + 5 and "nexus agent pair" in refusal(gone).message
    for owner in (ALICE, BOB):
        with pytest.raises(Forbidden, match="revoked"):
            pair(gone, a_node(owner=owner))
    with pytest.raises(Conflict):
        revoke(gone, NOW)
