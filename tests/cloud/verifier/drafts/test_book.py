"""The draft side of the scheduler: whom to wait for, what to verify, what to count."""

import pytest

from cloud.api.settings import BrokerOptions
from cloud.verifier.drafts.book import Book, Offer, Plan
from cloud.verifier.drafts.stream import LOOKUP, WAIT_LIMIT_S
from cloud.verifier.policy.cost import StepCost
from shared.draftport.messages import DropTape, Policy, PortDraft


@pytest.fixture
def committed() -> list[int]:
    return [1, 2, 3]


@pytest.fixture
def book(committed: list[int]) -> Book:
    book = Book(vocabulary=100_000, cost=StepCost({1: 1.0, 100: 1.1}))
    book.open("s", "gateway", committed)
    return book


def offer(book: Book, limit: int) -> Offer | None:
    """What the stream would verify in a step of its own now."""
    return book.plan({"s": limit}, 0, 0.0).offers.get("s")


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
    assert offer(book, 4) is None


def test_a_draft_is_offered_up_to_the_limit(book: Book) -> None:
    """The engine says how many it can take."""
    book.receive(draft(3, 7, 8, 9), 0.0)
    assert offer(book, 2) == Offer([7, 8], "t")


def test_the_longest_tape_is_used(book: Book) -> None:
    """Two nodes draft for one stream; a rejection of one leaves the other's tape."""
    book.receive(draft(3, 7, tape="a"), 0.0)
    book.receive(draft(3, 8, 9, tape="b"), 0.0)
    assert offer(book, 4) == Offer([8, 9], "b")


@pytest.mark.parametrize("token", [-1, 100_000, 2**31])
def test_an_id_outside_the_vocabulary_never_reaches_the_engine(book: Book, token: int) -> None:
    """It would kill the engine and every request with it."""
    book.receive(draft(3, 7, token), 0.0)
    assert offer(book, 4) is None
    assert book.tally.invalid == 2


def test_a_draft_for_nobody_is_counted(book: Book) -> None:
    """The stream may just have ended."""
    book.receive(draft(3, 7, stream="other"), 0.0)
    assert book.tally.unknown_stream == 1


def test_late_and_stale_drafts_are_counted(book: Book, committed: list[int]) -> None:
    """A late draft for a position already passed is ignored and counted."""
    commit(book, committed, [4, 5])
    book.receive(draft(3, 4), 0.0)
    book.receive(draft(4, 9, 9), 0.0)
    assert (book.tally.late, book.tally.stale) == (2, 1)


def fresh(committed: list[int], count: int) -> list[int]:
    """Tokens that the stream has not had, so that prompt lookup finds nothing."""
    return list(range(1000 + len(committed), 1000 + len(committed) + count))


def open_with_history(book: Book, committed: list[int], response_s: float) -> float:
    """A node that has answered each divergence after `response_s`, and has just been called; returns the time."""
    book.receive(Policy(stream="s", wait_ms=5000, k=4), 0.0)
    now = 0.0
    for epoch in range(8):
        right = fresh(committed, 5)
        book.receive(draft(len(committed), *right[:4], epoch=epoch), now)
        commit(book, committed, right, draft=tuple(right[:4]), now=now + 0.5)
        book.receive(draft(len(committed), 1, epoch=epoch), now + 0.5)
        commit(book, committed, fresh(committed, 1), draft=(1,), now=now + 1.0)
        now += 1.0 + response_s
    return now - response_s


def test_a_stream_waits_for_a_draft_that_is_near(book: Book, committed: list[int]) -> None:
    """And is planned again when it has come."""
    now = open_with_history(book, committed, 0.1)
    plan = book.plan({"s": 4}, 0, now)
    assert plan.until is not None
    assert now < plan.until <= now + 0.5
    assert book.tally.holds == 1
    book.receive(draft(len(committed), 5, 6, 7, 8, epoch=9), now + 0.1)
    assert book.plan({"s": 4}, 0, now + 0.1) == Plan({"s": Offer([5, 6, 7, 8], "t")})
    assert book.tally.hold_misses == 0


def test_a_draft_that_does_not_come_is_a_miss(book: Book, committed: list[int]) -> None:
    """The stream decodes plainly; how long its source takes is not forgotten."""
    now = open_with_history(book, committed, 0.1)
    assert book.plan({"s": 4}, 0, now).until is not None
    assert book.plan({"s": 4}, 0, now + 0.5) == Plan({})
    assert book.tally.hold_misses == 1


def test_a_node_that_is_always_late_is_not_waited_for(book: Book, committed: list[int]) -> None:
    """Its answers come two steps after the divergence: decoding plainly is the better use of that time."""
    now = open_with_history(book, committed, 2.0)
    assert book.plan({"s": 4}, 0, now) == Plan({})


def test_before_a_node_has_answered_it_is_not_waited_for(book: Book, committed: list[int]) -> None:
    """A dead node costs nothing at all."""
    book.receive(Policy(stream="s", wait_ms=5000, k=4), 0.0)
    commit(book, committed, [4], now=1.0)
    assert book.plan({"s": 4}, 0, 1.0) == Plan({})


def test_a_stream_whose_node_died_waits_once(book: Book, committed: list[int]) -> None:
    """Longer than it has ever taken, nobody waits for an answer."""
    now, waited = open_with_history(book, committed, 0.1), 0
    for _ in range(200):
        waited += book.plan({"s": 4}, 0, now).until is not None
        assert book.plan({"s": 4}, 0, now + 0.2).until is None
        now += 1.0
        commit(book, committed, fresh(committed, 1), now=now)
    assert waited == 1


def test_a_node_that_teases_is_waited_for_ever_more_rarely(book: Book, committed: list[int]) -> None:
    """It answers at once whenever nobody waits, and not while somebody does."""
    now, waited, start = open_with_history(book, committed, 0.1), [], len(committed)
    for epoch in range(9, 209):
        if book.plan({"s": 4}, 0, now).until is not None:
            waited.append(len(committed) - start)
            book.plan({"s": 4}, 0, now + 1.0)
        book.receive(draft(len(committed), 1, epoch=epoch), now + 1.0)
        commit(book, committed, fresh(committed, 1), draft=(1,), now=now + 2.0)
        now += 2.0
        book.receive(draft(len(committed) - 1, committed[-1], epoch=epoch + 1000), now + 0.1)
    assert len(waited) < 12


def test_the_gateway_bounds_the_hold(book: Book, committed: list[int]) -> None:
    """Its policy is the caller's and the operator's word."""
    now = open_with_history(book, committed, 0.1)
    book.receive(Policy(stream="s", wait_ms=50, k=4), now)
    assert book.plan({"s": 4}, 0, now) == Plan({})


def test_a_draft_that_no_step_has_room_for_is_left_out(committed: list[int]) -> None:
    """Under load the best length is 0."""
    busy = Book(vocabulary=100, cost=StepCost({1: 1.0, 2: 2.0}))
    busy.open("s", "gateway", committed)
    busy.receive(draft(3, 7, 8, 9), 0.0)
    assert busy.plan({"s": 4}, 0, 0.0) == Plan({})


def test_prompt_lookup_drafts_where_no_node_has_anything() -> None:
    """It costs nothing; a node's draft goes first."""
    book = Book(vocabulary=100)
    book.open("s", "g", [5, 6, 7, 8, 9, 5, 6])
    assert book.plan({"s": 3}, 0, 0.0) == Plan({"s": Offer([7, 8, 9], LOOKUP)})
    book.receive(draft(7, 1), 0.0)
    assert book.plan({"s": 3}, 0, 0.0) == Plan({"s": Offer([1], "t")})


def test_what_prompt_lookup_drafted_is_counted_apart() -> None:
    """It is nobody's merit."""
    book, tokens = Book(vocabulary=100), [5, 6, 7, 8, 9, 5, 6]
    book.open("s", "g", tokens)
    tokens += [7, 8, 1]
    verified = book.commit("s", 7, [7, 8, 1], draft=[7, 8, 9], source=LOOKUP, step=1, step_ms=1.0, now=0.0)
    assert (verified.source, verified.accepted, verified.baseline) == (LOOKUP, 2, 2)
    assert (book.tally.lookup_scheduled, book.tally.lookup_accepted) == (3, 2)


def test_a_source_that_is_wrong_gets_no_slots(book: Book, committed: list[int]) -> None:
    """Whatever it sends; and it is found out without being verified, by what the target says."""
    for epoch in range(40):
        book.receive(draft(len(committed), 1, 1, 1, 1, epoch=epoch), 0.0)
        commit(book, committed, fresh(committed, 1), now=0.0)
    book.receive(draft(len(committed), 1, 1, 1, 1, epoch=50), 0.0)
    offer = book.plan({"s": 4}, 0, 0.0).offers.get("s")
    assert offer is None or len(offer.tokens) <= 1


def test_a_candidate_is_used_where_the_main_line_has_nothing(book: Book, committed: list[int]) -> None:
    """The target took the runner-up: the continuation is there, with no round trip."""
    book.receive(draft(3, 10, 11, 12, 13), 0.0)
    book.receive(draft(3, 10, 21, 22, 23, tape="t/1"), 0.0)
    assert offer(book, 4) == Offer([10, 11, 12, 13], "t")
    commit(book, committed, [10, 21], draft=(10, 11, 12, 13))
    assert offer(book, 4) == Offer([22, 23], "t/1")


def test_a_candidates_misses_are_no_evidence_against_its_node(book: Book, committed: list[int]) -> None:
    """Most of them are wrong where they leave the main line, which they only do where it is unsure."""
    for epoch in range(50):
        right = fresh(committed, 2)
        book.receive(draft(len(committed), *right, epoch=epoch), 0.0)
        book.receive(draft(len(committed), 1, 2, 3, tape="t/1", epoch=epoch), 0.0)
        commit(book, committed, right, draft=(right[0],))
    book.receive(draft(len(committed), 5, 6, tape="t/1", epoch=60), 0.0)
    assert offer(book, 4) == Offer([5, 6], "t/1")


def test_nobody_waits_for_a_candidate_but_for_its_main_line(committed: list[int]) -> None:
    """A candidate that the target contradicted has no successor of its own; the node's answer is the main line's."""
    book = Book(vocabulary=100_000, cost=StepCost({1: 1.0, 100: 1.1}), wait_price=0.0)
    book.open("s", "gateway", committed)
    book.receive(draft(3, 10, 11, tape="t/1"), 0.0)
    now = open_with_history(book, committed, 0.1)
    book.receive(draft(len(committed), 21, tape="t/1", epoch=1), now)
    until = book.plan({"s": 4}, 0, now).until
    assert until is not None
    assert now + 0.1 < until < now + 1.0
    book.receive(DropTape(stream="s", tape="t"), now)
    assert book.plan({"s": 4}, 0, now) == Plan({"s": Offer([21], "t/1")})


def test_a_dropped_tape_is_gone(book: Book) -> None:
    """The node behind it left."""
    book.receive(draft(3, 7), 0.0)
    book.receive(DropTape(stream="s", tape="t"), 0.0)
    assert offer(book, 4) is None


def test_policy_bounds_the_draft(book: Book) -> None:
    """k of 0 turns drafts off for the stream."""
    book.receive(draft(3, 7, 8), 0.0)
    book.receive(Policy(stream="s", wait_ms=0, k=1), 0.0)
    assert offer(book, 4) == Offer([7], "t")
    book.receive(Policy(stream="s", wait_ms=0, k=0), 0.0)
    assert offer(book, 4) is None


def test_a_commit_says_what_was_accepted_and_what_was_free(committed: list[int]) -> None:
    """Acceptance is the target's alone; the baseline is what prompt lookup would have had."""
    book = Book(vocabulary=100)
    tokens = [5, 6, 7, 8, 9, 5, 6]
    book.open("s", "g", tokens)
    book.receive(draft(7, 7, 8, 1), 0.0)
    assert offer(book, 4) == Offer([7, 8, 1], "t")
    tokens += [7, 8, 2]
    verified = book.commit("s", 7, [7, 8, 2], draft=[7, 8, 1], source="t", step=4, step_ms=2.5, now=0.0)
    assert (verified.accepted, verified.drafted, verified.baseline) == (2, 3, 2)
    assert (book.tally.accepted, book.tally.rejected, book.tally.scheduled) == (2, 1, 3)


def test_a_tape_rewritten_while_its_draft_is_verified_does_not_change_the_verdict(
    book: Book, committed: list[int]
) -> None:
    """While a step waits for others, a node may replace what it sent; what was checked is what counts."""
    book.receive(draft(3, 7, 8), 0.0)
    offered = offer(book, 4)
    assert offered is not None
    book.receive(draft(3, 1, 2, 3, epoch=1), 0.0)
    committed += [7, 8, 9]
    verified = book.commit("s", 3, [7, 8, 9], draft=offered.tokens, source="t", step=1, step_ms=1.0, now=0.0)
    assert (verified.drafted, verified.accepted) == (2, 2)


def test_a_closed_stream_leaves_nothing(book: Book) -> None:
    """Tapes end with their stream."""
    book.close("s")
    assert "s" not in book
    assert len(book) == 0


@pytest.mark.parametrize("wait_ms", [1e12, float("inf"), float("nan"), -1.0])
def test_no_policy_lets_a_stream_stand_still(book: Book, committed: list[int], wait_ms: float) -> None:
    """Whatever a gateway asks for, a stream goes on after the longest hold."""
    book.receive(Policy(stream="s", wait_ms=wait_ms, k=4), 0.0)
    commit(book, committed, [4], now=1.0)
    assert book.plan({"s": 4}, 0, 1.0 + WAIT_LIMIT_S).until is None


def test_as_many_nodes_as_a_gateway_may_ask_are_listened_to(book: Book) -> None:
    """And no more: each tape takes memory."""
    nodes, candidates = (
        next(m.le for m in BrokerOptions.model_fields[name].metadata if hasattr(m, "le"))
        for name in ("tapes_per_stream", "candidates")
    )
    most = nodes * candidates
    for node in range(most):
        book.receive(draft(3, *range(1, 2 + node), tape=str(node)), 0.0)
    assert book.tally.overflow == 0
    offered = offer(book, 99)
    assert offered is not None
    assert offered.source == str(most - 1)
    book.receive(draft(3, *range(1, 90), tape="one more"), 0.0)
    assert book.tally.overflow == 89
