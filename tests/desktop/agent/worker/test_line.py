"""The guess line: what is drafted, sent and dropped as the target's tokens come in."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from desktop.agent.worker.line import Block, GuessLine, StartRound, StopRound
from shared.errors import InvalidInput, ProtocolError


def line(tokens: tuple[int, ...] = (1, 2, 3), k: int = 2, ahead: int = 4, limit: int = 100) -> GuessLine:
    return GuessLine(tokens, k=k, ahead=ahead, limit=limit)


def feed(guesses: GuessLine, *tokens: int) -> None:
    for token in tokens:
        guesses.drafted(guesses.committed + guesses.outstanding, token, False)


def test_drafting_starts_at_once_and_the_next_k_positions_go_as_they_come() -> None:
    """The node does not wait for a verification before it drafts or sends on; what lies further goes in blocks."""
    guesses = line()
    due = guesses.due()
    assert isinstance(due, StartRound)
    assert due.tokens == (1, 2, 3)
    feed(guesses, 10)
    assert guesses.blocks() == [Block(0, 3, (10,))]
    feed(guesses, 11)
    assert guesses.blocks() == [Block(0, 4, (11,))]
    feed(guesses, 12)
    assert guesses.blocks() == []
    feed(guesses, 13)
    assert guesses.blocks() == [Block(0, 5, (12, 13))]
    assert guesses.blocks() == []


def test_the_window_stops_the_round_and_an_agreement_opens_it() -> None:
    """At most `ahead` guesses are outstanding."""
    guesses = line()
    guesses.due()
    feed(guesses, 10, 11, 12, 13)
    assert guesses.due() == StopRound()
    assert guesses.due() is None
    assert guesses.advance(3, (10,)) == 1
    assert guesses.due() is None, "a round for one token is not worth its start"
    assert guesses.advance(4, (11,)) == 1
    due = guesses.due()
    assert isinstance(due, StartRound)
    assert due.tokens == (1, 2, 3, 10, 11, 12, 13)


def test_an_agreement_keeps_the_running_round() -> None:
    """Only the window slides."""
    guesses = line()
    guesses.due()
    feed(guesses, 10, 11, 12)
    assert guesses.advance(3, (10, 11)) == 2
    assert guesses.due() is None
    feed(guesses, 13)
    assert guesses.blocks() == [Block(0, 5, (12, 13))]
    assert guesses.epoch == 0


def test_a_divergence_begins_a_new_epoch_at_the_committed_end() -> None:
    """Guesses behind it are dropped, and late tokens of the old round with them."""
    guesses = line()
    guesses.due()
    feed(guesses, 10, 11, 12)
    guesses.blocks()
    assert guesses.advance(3, (10, 77)) == 1
    assert guesses.epoch == 1
    assert guesses.outstanding == 0
    guesses.drafted(6, 13, False)
    assert guesses.outstanding == 0
    due = guesses.due()
    assert isinstance(due, StartRound)
    assert due.tokens == (1, 2, 3, 10, 77)
    feed(guesses, 20, 21)
    assert guesses.blocks() == [Block(1, 5, (20, 21))]


def test_being_overtaken_goes_on_at_the_committed_end_in_the_same_epoch() -> None:
    """What was sent was right, so nothing needs replacing."""
    guesses = line()
    guesses.due()
    feed(guesses, 10, 11, 12)
    assert guesses.blocks() == [Block(0, 3, (10, 11))]
    assert guesses.advance(3, (10, 11, 12, 55, 56)) == 3
    assert guesses.epoch == 0
    due = guesses.due()
    assert isinstance(due, StartRound)
    assert due.tokens == (1, 2, 3, 10, 11, 12, 55, 56)
    feed(guesses, 20, 21)
    assert guesses.blocks() == [Block(0, 8, (20, 21))]


def test_unsent_guesses_that_the_target_passed_are_not_sent() -> None:
    """Sending begins at the committed end."""
    guesses = line(k=4, ahead=8)
    guesses.due()
    feed(guesses, 10, 11, 12)
    guesses.advance(3, (10, 11))
    feed(guesses, 13, 14, 15)
    assert guesses.blocks() == [Block(0, 5, (12, 13, 14, 15))]


def test_the_rest_of_a_block_goes_when_the_round_ends() -> None:
    """A full window or the context's end leaves no guess behind."""
    guesses = line(k=3, ahead=4)
    guesses.due()
    feed(guesses, 10, 11, 12, 13)
    assert guesses.blocks() == [Block(0, 3, (10, 11, 12)), Block(0, 6, (13,))]
    short = line(k=4, ahead=8, limit=5)
    due = short.due()
    assert isinstance(due, StartRound)
    assert due.count == 2
    short.drafted(3, 10, False)
    short.drafted(4, 11, True)
    assert short.blocks() == [Block(0, 3, (10, 11))]
    assert short.due() is None


def test_nothing_is_drafted_beyond_the_context() -> None:
    """A stream that is longer than the engine's context just gets no drafts."""
    guesses = line(limit=3)
    assert guesses.due() is None
    guesses.advance(3, (1, 2))
    assert guesses.due() is None


def test_a_round_that_ends_without_a_token_waits_for_the_target() -> None:
    """Starting again from the same prefix would end the same way."""
    guesses = line()
    guesses.due()
    feed(guesses, 10)
    guesses.drafted(4, None, True)
    assert guesses.blocks() == [Block(0, 3, (10,))]
    assert guesses.due() is None
    guesses.advance(3, (10,))
    assert isinstance(guesses.due(), StartRound)


def test_tokens_that_are_known_already_are_skipped() -> None:
    """A repeated verification changes nothing; a partly new one adds what is new."""
    guesses = line()
    guesses.due()
    feed(guesses, 10, 11)
    assert guesses.advance(1, (2, 3)) == 0
    assert guesses.advance(2, (3, 10)) == 1
    assert guesses.committed == 4
    assert guesses.outstanding == 1
    assert guesses.epoch == 0


def test_a_gap_in_the_targets_tokens_is_refused_in_words() -> None:
    """The line cannot know what lies between."""
    with pytest.raises(ProtocolError, match="position 5, but only 3"):
        line().advance(5, (1,))


@pytest.mark.parametrize(("tokens", "k", "ahead"), [((), 2, 4), ((1,), 0, 4), ((1,), 2, 0)])
def test_a_stream_that_cannot_be_drafted_for_is_refused_in_words(tokens: tuple[int, ...], k: int, ahead: int) -> None:
    """Empty tape, empty block, empty window."""
    with pytest.raises(InvalidInput, match="at least"):
        line(tokens, k=k, ahead=ahead)


class Tape:
    """The verifier's side in its simplest form: one tape of drafts behind the committed tokens."""

    def __init__(self, committed: list[int]) -> None:
        self.committed = committed
        self.epoch = 0
        self.ended = -1
        self.tokens: list[int] = []
        self.gaps = 0

    def put(self, block: Block) -> None:
        base = len(self.committed)
        assert block.epoch >= self.epoch, "epochs never go back"
        if block.epoch <= self.ended:
            return
        if block.epoch > self.epoch:
            self.epoch = block.epoch
            del self.tokens[max(0, block.pos - base) :]
        start = block.pos - base - len(self.tokens)
        if start > 0:
            self.gaps += 1
            return
        fresh = block.tokens[-start:] if start else block.tokens
        self.tokens += fresh

    def commit(self, tokens: list[int]) -> None:
        for token in tokens:
            self.committed.append(token)
            if self.tokens and self.tokens[0] == token:
                del self.tokens[0]
            elif self.tokens:
                self.tokens.clear()
                self.ended = self.epoch


class GuessLineMachine(RuleBasedStateMachine):
    """A node and a target that hear each other late, in order, at whatever pace."""

    @initialize(
        k=st.integers(1, 4), ahead=st.integers(1, 9), prompt=st.lists(st.integers(0, 2), min_size=1, max_size=3)
    )
    def begin(self, k: int, ahead: int, prompt: list[int]) -> None:
        self.k, self.ahead, self.limit = k, ahead, 60
        self.line = GuessLine(prompt, k=k, ahead=ahead, limit=self.limit)
        self.known = list(prompt)
        self.tape = Tape(list(prompt))
        self.round: tuple[list[int], int] | None = None
        self.to_node: deque[tuple[int, list[int]]] = deque()
        self.to_cloud: deque[Block] = deque()
        self.sent: dict[int, dict[int, int]] = {}
        self.end: dict[int, int] = {}
        self.pump()

    def pump(self) -> None:
        """What the worker does after every event."""
        due = self.line.due()
        if isinstance(due, StartRound):
            assert list(due.tokens[: len(self.known)]) == self.known
            assert 1 <= due.count <= self.limit - len(due.tokens)
            self.round = (list(due.tokens), due.count)
        elif isinstance(due, StopRound):
            self.round = None
        for block in self.line.blocks():
            assert 1 <= len(block.tokens) <= self.k
            assert not self.sent or block.epoch >= max(self.sent), "epochs increase"
            on_line = self.sent.setdefault(block.epoch, {})
            assert block.pos >= self.end.get(block.epoch, 0), "no position is sent twice in one epoch"
            for offset, token in enumerate(block.tokens):
                on_line[block.pos + offset] = token
            self.end[block.epoch] = block.pos + len(block.tokens)
            self.to_cloud.append(block)

    @precondition(lambda self: self.round is not None)
    @rule(token=st.integers(0, 2))
    def engine_step(self, token: int) -> None:
        assert self.round is not None
        tokens, count = self.round
        pos = len(tokens)
        tokens.append(token)
        self.round = (tokens, count - 1) if count > 1 else None
        self.line.drafted(pos, token, self.round is None)
        self.pump()

    @rule(pos=st.integers(0, 70), token=st.integers(3, 5))
    def late_token_of_a_stopped_round(self, pos: int, token: int) -> None:
        if self.round is None:
            self.line.drafted(pos, token, False)
            self.pump()

    @precondition(lambda self: self.to_cloud)
    @rule()
    def cloud_hears(self) -> None:
        self.tape.put(self.to_cloud.popleft())

    @rule(data=st.data())
    def target_steps(self, data: st.DataObject) -> None:
        """Accepts some of the tape, then one token of its own."""
        accepted = data.draw(st.integers(0, len(self.tape.tokens)))
        tokens = [*self.tape.tokens[:accepted], data.draw(st.integers(0, 2))]
        self.to_node.append((len(self.tape.committed), tokens))
        self.tape.commit(tokens)

    @precondition(lambda self: self.to_node)
    @rule()
    def node_hears(self) -> None:
        pos, tokens = self.to_node.popleft()
        self.line.advance(pos, tokens)
        self.known += tokens
        self.pump()

    @invariant()
    def window_holds(self) -> None:
        if hasattr(self, "line"):
            assert self.line.outstanding <= self.ahead
            assert self.line.committed == len(self.known)

    @invariant()
    def nothing_sent_leaves_a_gap(self) -> None:
        if hasattr(self, "tape"):
            assert self.tape.gaps == 0

    @invariant()
    def an_ended_epoch_is_left_behind(self) -> None:
        """Once both sides have heard everything, the node no longer drafts on a line that the target left."""
        if hasattr(self, "tape") and not self.to_node and not self.to_cloud:
            assert self.line.epoch > self.tape.ended

    @invariant()
    def a_node_that_knows_all_has_work_or_a_full_window(self) -> None:
        if hasattr(self, "line") and self.round is None and len(self.known) < self.limit:
            assert self.line.outstanding > 0

    @invariant()
    def one_epoch_is_one_line(self) -> None:
        """Within an epoch, what was sent for known positions is the known tokens, up to a first difference
        after which the epoch is over."""
        if not hasattr(self, "sent"):
            return
        for epoch, on_line in self.sent.items():
            wrong = [pos for pos, token in on_line.items() if pos < len(self.known) and self.known[pos] != token]
            if wrong:
                assert epoch < self.line.epoch


GuessLineMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestGuessLine = GuessLineMachine.TestCase


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30), st.integers(1, 4), st.integers(1, 8))
@settings(deadline=None)
def test_a_perfect_node_never_leaves_its_first_epoch(text: list[int], k: int, ahead: int) -> None:
    """Drafts that are always right are all sent once, in order, without a restart from a divergence."""
    guesses = GuessLine([9], k=k, ahead=ahead, limit=1000)
    sent: list[int] = []
    running = False
    while len(sent) < len(text) - 1 and guesses.committed <= len(text):
        due = guesses.due()
        running = isinstance(due, StartRound) or (running and due is None)
        position = guesses.committed + guesses.outstanding
        if running and position <= len(text):
            guesses.drafted(position, text[position - 1], False)
        elif guesses.outstanding:
            guesses.advance(guesses.committed, text[guesses.committed - 1 : guesses.committed])
        else:
            break
        for block in guesses.blocks():
            assert block.epoch == 0
            assert block.pos == 1 + len(sent)
            sent += block.tokens
    assert sent == text[: len(sent)]
    assert guesses.epoch == 0
