"""The draft side of the scheduler: whom to wait for, what to verify, what to count."""

import pytest

from cloud.api.settings import BrokerOptions
from cloud.verifier.drafts.book import Book, Offer, Wait
from cloud.verifier.drafts.stream import REJECTIONS_UNTIL_NO_HOLD, WAIT_LIMIT_S
from shared.draftport.messages import DropTape, Policy, PortDraft


@pytest.fixture
def committed() -> list[int]:
    return [1, 2, 3]


@pytest.fixture
def book(committed: list[int]) -> Book:
    book = Book(vocabulary=100)
    book.open("s", "gateway", committed)
    return book


def draft(pos: int, *tokens: int, stream: str = "s", tape: str = "t", epoch: int = 0) -> PortDraft:
    return PortDraft(stream=stream, tape=tape, epoch=epoch, pos=pos, tokens=tokens)


def commit(
    book: Book, committed: list[int], tokens: list[int], *, draft: tuple[int, ...] = (), now: float = 0.0
) -> None:
    pos = len(committed)
    committed += tokens
    book.commit("s", pos, tokens, draft=draft, source="t" if draft else None, step=1, step_ms=1.0, now=now)


def test_without_a_draft_a_stream_decodes_plainly(book: Book) -> None:
    """No policy, no wait."""
    assert book.next("s", 4, 0.0) is None


def test_a_draft_is_offered_up_to_the_limit(book: Book) -> None:
    """The engine says how many it can take."""
    book.receive(draft(3, 7, 8, 9))
    assert book.next("s", 2, 0.0) == Offer([7, 8], "t")


def test_the_longest_tape_is_used(book: Book) -> None:
    """Two nodes draft for one stream; a rejection of one leaves the other's tape."""
    book.receive(draft(3, 7, tape="a"))
    book.receive(draft(3, 8, 9, tape="b"))
    assert book.next("s", 4, 0.0) == Offer([8, 9], "b")


@pytest.mark.parametrize("token", [-1, 100, 2**31])
def test_an_id_outside_the_vocabulary_never_reaches_the_engine(book: Book, token: int) -> None:
    """It would kill the engine and every request with it."""
    book.receive(draft(3, 7, token))
    assert book.next("s", 4, 0.0) is None
    assert book.tally.invalid == 2


def test_a_draft_for_nobody_is_counted(book: Book) -> None:
    """The stream may just have ended."""
    book.receive(draft(3, 7, stream="other"))
    assert book.tally.unknown_stream == 1


def test_late_and_stale_drafts_are_counted(book: Book, committed: list[int]) -> None:
    """A late draft for a position already passed is ignored and counted."""
    commit(book, committed, [4, 5])
    book.receive(draft(3, 4))
    book.receive(draft(4, 9, 9))
    assert (book.tally.late, book.tally.stale) == (2, 1)


def test_a_stream_waits_for_its_draft_and_then_goes_on(book: Book, committed: list[int]) -> None:
    """At most one hold per position, from the moment the last token was committed."""
    book.receive(Policy(stream="s", wait_ms=100, k=4))
    commit(book, committed, [4], now=1.0)
    assert book.next("s", 4, 1.05) == Wait(1.1)
    assert book.next("s", 4, 1.11) is None
    assert (book.tally.holds, book.tally.hold_misses) == (1, 1)


def test_before_the_first_token_nothing_is_waited_for(book: Book) -> None:
    """A prompt is computed at once."""
    book.receive(Policy(stream="s", wait_ms=100, k=4))
    assert book.next("s", 4, 0.0) is None


def test_a_short_draft_waits_for_the_rest_but_is_used_at_the_deadline(book: Book, committed: list[int]) -> None:
    """Blocks arrive one after the other."""
    book.receive(Policy(stream="s", wait_ms=100, k=4))
    commit(book, committed, [4], now=1.0)
    book.receive(draft(4, 7, 8))
    assert book.next("s", 4, 1.05) == Wait(1.1)
    assert book.next("s", 4, 1.2) == Offer([7, 8], "t")
    assert book.tally.hold_misses == 0


def test_after_two_misses_a_stream_waits_no_more_until_a_draft_is_in_time(book: Book, committed: list[int]) -> None:
    """A dead node costs two holds, not one per token."""
    book.receive(Policy(stream="s", wait_ms=100, k=4))
    now = 1.0
    for expected in (Wait, Wait, type(None), type(None)):
        commit(book, committed, [4], now=now)
        assert isinstance(book.next("s", 4, now + 0.05), expected)
        now += 0.2
        book.next("s", 4, now)
    book.receive(draft(len(committed), 5, 6, 7, 8))
    assert book.next("s", 4, now) == Offer([5, 6, 7, 8], "t")
    commit(book, committed, [5, 6, 7, 8, 9], draft=(5, 6, 7, 8), now=now)
    assert isinstance(book.next("s", 4, now + 0.05), Wait)


def test_a_stream_that_waits_no_more_tries_again_ever_more_rarely(book: Book, committed: list[int]) -> None:
    """A node that was slow for a moment is found again; a dead one costs little."""
    book.receive(Policy(stream="s", wait_ms=100, k=4))
    now, waited = 1.0, []
    for _ in range(120):
        commit(book, committed, [4], now=now)
        if isinstance(book.next("s", 4, now + 0.05), Wait):
            waited.append(len(committed))
        now += 0.2
        book.next("s", 4, now)
    assert waited == [4, 5, 21, 53, 117]


def test_a_dropped_tape_is_gone(book: Book) -> None:
    """The node behind it left."""
    book.receive(draft(3, 7))
    book.receive(DropTape(stream="s", tape="t"))
    assert book.next("s", 4, 0.0) is None


def test_policy_bounds_the_draft(book: Book) -> None:
    """k of 0 turns drafts off for the stream."""
    book.receive(draft(3, 7, 8))
    book.receive(Policy(stream="s", wait_ms=0, k=1))
    assert book.next("s", 4, 0.0) == Offer([7], "t")
    book.receive(Policy(stream="s", wait_ms=0, k=0))
    assert book.next("s", 4, 0.0) is None


def test_a_commit_says_what_was_accepted_and_what_was_free(committed: list[int]) -> None:
    """Acceptance is the target's alone; the baseline is what prompt lookup would have had."""
    book = Book(vocabulary=100)
    tokens = [5, 6, 7, 8, 9, 5, 6]
    book.open("s", "g", tokens)
    book.receive(draft(7, 7, 8, 1))
    offer = book.next("s", 4, 0.0)
    assert offer == Offer([7, 8, 1], "t")
    tokens += [7, 8, 2]
    verified = book.commit("s", 7, [7, 8, 2], draft=[7, 8, 1], source="t", step=4, step_ms=2.5, now=0.0)
    assert (verified.accepted, verified.drafted, verified.baseline) == (2, 3, 2)
    assert (book.tally.accepted, book.tally.rejected, book.tally.scheduled) == (2, 1, 3)


def test_a_tape_rewritten_while_its_draft_is_verified_does_not_change_the_verdict(
    book: Book, committed: list[int]
) -> None:
    """While a step waits for others, a node may replace what it sent; what was checked is what counts."""
    book.receive(draft(3, 7, 8))
    offer = book.next("s", 4, 0.0)
    assert isinstance(offer, Offer)
    book.receive(draft(3, 1, 2, 3, epoch=1))
    committed += [7, 8, 9]
    verified = book.commit("s", 3, [7, 8, 9], draft=offer.tokens, source="t", step=1, step_ms=1.0, now=0.0)
    assert (verified.drafted, verified.accepted) == (2, 2)


def test_a_closed_stream_leaves_nothing(book: Book) -> None:
    """Tapes end with their stream."""
    book.close("s")
    assert "s" not in book
    assert len(book) == 0


def test_a_node_that_sends_garbage_just_in_time_is_not_waited_for_for_ever(book: Book, committed: list[int]) -> None:
    """Its drafts end no hold as a miss, yet each would cost the stream a hold per token."""
    book.receive(Policy(stream="s", wait_ms=100, k=4))
    commit(book, committed, [4], now=1.0)
    now, waited = 1.0, 0
    for epoch in range(100):
        waited += isinstance(book.next("s", 4, now + 0.05), Wait)
        book.receive(draft(len(committed), 9, epoch=epoch))
        waited += isinstance(book.next("s", 4, now + 0.05), Wait)
        assert book.next("s", 4, now + 0.2) == Offer([9], "t")
        now += 0.2
        commit(book, committed, [4], draft=(9,), now=now)
    assert 2 * REJECTIONS_UNTIL_NO_HOLD <= waited <= 2 * (REJECTIONS_UNTIL_NO_HOLD + 3)
    book.receive(draft(len(committed), 4, epoch=100))
    commit(book, committed, [4, 4], draft=(4,), now=now)
    assert isinstance(book.next("s", 4, now + 0.05), Wait)


@pytest.mark.parametrize("wait_ms", [1e12, float("inf"), float("nan"), -1.0])
def test_no_policy_lets_a_stream_stand_still(book: Book, committed: list[int], wait_ms: float) -> None:
    """Whatever a gateway asks for, a stream goes on after the longest hold."""
    book.receive(Policy(stream="s", wait_ms=wait_ms, k=4))
    commit(book, committed, [4], now=1.0)
    assert book.next("s", 4, 1.0 + WAIT_LIMIT_S) is None


def test_as_many_nodes_as_a_gateway_may_ask_are_listened_to(book: Book) -> None:
    """And no more: each tape takes memory."""
    most = next(m.le for m in BrokerOptions.model_fields["tapes_per_stream"].metadata if hasattr(m, "le"))
    for node in range(most):
        book.receive(draft(3, *range(1, 2 + node), tape=str(node)))
    assert book.tally.overflow == 0
    assert book.next("s", 99, 0.0) == Offer(list(range(1, most + 1)), str(most - 1))
    book.receive(draft(3, *range(1, 90), tape="one more"))
    assert book.tally.overflow == 89
