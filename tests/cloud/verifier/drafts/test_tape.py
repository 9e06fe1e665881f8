"""Tapes: what agrees with the committed tokens stays, whatever else a node sends."""

from hypothesis import given
from hypothesis import strategies as st

from cloud.verifier.drafts.tape import TAPE_LIMIT, Taken, Tape


def test_a_draft_at_the_committed_end_is_next() -> None:
    """The plain case."""
    tape = Tape()
    assert tape.write(0, 3, [7, 8, 9], [1, 2, 3]) == {}
    assert tape.peek(3, 2) == [7, 8]
    assert tape.peek(4, 2) == []


def test_the_same_epoch_appends_and_a_higher_one_replaces_from_its_position() -> None:
    """Epochs make a re-draft recognisable."""
    tape = Tape()
    tape.write(0, 3, [7, 8], [1, 2, 3])
    tape.write(0, 5, [9], [1, 2, 3])
    assert tape.peek(3, 9) == [7, 8, 9]
    tape.write(1, 4, [5, 6], [1, 2, 3])
    assert tape.peek(3, 9) == [7, 5, 6]
    assert tape.write(0, 6, [1], [1, 2, 3]) == {Taken.STALE: 1}


def test_what_agrees_survives_a_commit_and_the_tail_needs_no_round_trip() -> None:
    """Optimistic drafting: the tail behind the committed end is the next draft."""
    tape = Tape()
    tape.write(0, 3, [7, 8, 9, 10], [1, 2, 3])
    assert tape.commit(3, [7, 8])
    assert tape.peek(5, 9) == [9, 10]


def test_a_contradicted_tape_is_empty_and_its_epoch_dead() -> None:
    """Drafts in flight that rest on the wrong token are recognised."""
    tape = Tape()
    tape.write(2, 3, [7, 8, 9], [1, 2, 3])
    assert not tape.commit(3, [7, 5])
    assert tape.peek(5, 9) == []
    assert tape.write(2, 5, [9], [1, 2, 3, 7, 5]) == {Taken.STALE: 1}
    assert tape.write(3, 5, [6], [1, 2, 3, 7, 5]) == {}
    assert tape.peek(5, 9) == [6]


def test_a_late_draft_that_agrees_is_still_worth_its_tail() -> None:
    """The engine went on plainly; the overlap is compared, the rest kept."""
    tape = Tape()
    assert tape.write(0, 3, [7, 8, 9], [1, 2, 3, 7]) == {Taken.LATE: 1}
    assert tape.peek(4, 9) == [8, 9]


def test_a_late_draft_that_disagrees_is_thrown_away() -> None:
    """Its tail rests on a token that the target did not choose."""
    tape = Tape()
    assert tape.write(0, 3, [7, 8, 9], [1, 2, 3, 4]) == {Taken.LATE: 1, Taken.STALE: 2}
    assert tape.peek(4, 9) == []


def test_a_draft_wholly_in_the_past_is_counted_as_late() -> None:
    """Nothing of it can be used."""
    tape = Tape()
    assert tape.write(0, 1, [2, 3], [1, 2, 3, 4]) == {Taken.LATE: 2}
    assert tape.peek(4, 9) == []


def test_a_gap_is_not_kept() -> None:
    """Guesses for positions whose predecessors nobody guessed cannot be verified."""
    assert Tape().write(0, 9, [1], [1, 2, 3]) == {Taken.OVERFLOW: 1}


def test_a_flood_fills_a_tape_and_no_more() -> None:
    """A node cannot make the verifier remember without limit."""
    tape = Tape()
    assert tape.write(0, 1, [5] * (TAPE_LIMIT + 10), [1]) == {Taken.OVERFLOW: 10}
    assert tape.write(0, 1 + TAPE_LIMIT, [5], [1]) == {Taken.OVERFLOW: 1}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 4), st.integers(0, 14), st.lists(st.integers(0, 2), max_size=5)),
            st.lists(st.integers(0, 2), min_size=1, max_size=4),
        ),
        max_size=30,
    )
)
def test_whatever_arrives_a_tape_holds_tokens_for_the_committed_end(events: list[object]) -> None:
    """Invariant under any mix of drafts and commits: no gap, bounded, and every token is accounted for."""
    tape, committed = Tape(), [0]
    for event in events:
        if isinstance(event, tuple):
            epoch, pos, tokens = event
            before = len(tape.tokens)
            lost = tape.write(epoch, pos, tokens, committed)
            assert all(count > 0 for count in lost.values()) or not tokens
            assert sum(lost.values()) <= len(tokens)
            assert len(tape.tokens) <= before + len(tokens)
        else:
            assert isinstance(event, list)
            pos = len(committed)
            guess = tape.peek(pos, len(event))
            agrees = guess == event[: len(guess)]
            assert tape.commit(pos, event) == agrees
            committed += event
        if tape.tokens:
            assert tape.start == len(committed)
            assert len(tape.tokens) <= TAPE_LIMIT
