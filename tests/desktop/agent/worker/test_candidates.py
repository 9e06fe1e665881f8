"""Candidates: where they leave the main line, when they are sent and dropped, and that they never harm."""

import zlib
from array import array
from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cloud.api.broker.tape import DraftFate
from cloud.api.broker.tape import Tape as BrokerTape
from cloud.verifier.drafts.tape import Tape as VerifierTape
from desktop.agent.engines.port import Drafted
from desktop.agent.worker.candidates import BLOCK_TOKENS, Candidates
from desktop.agent.worker.drafter import Drafter
from desktop.agent.worker.line import Block, GuessLine, StartRound
from desktop.agent.worker.messages import AdvanceStream, DraftBlock, OpenStream
from shared.ids import StreamId
from shared.sampling import Sampling


class Pair:
    """A main line of 1, 2, 3 with `margins` for its guesses 10, 11, 12…, whose runners-up are 110, 111, 112…"""

    def __init__(self, *margins: float, count: int = 2, k: int = 3, ahead: int = 9, limit: int = 100) -> None:
        self.line = GuessLine((1, 2, 3), k=k, ahead=ahead, limit=limit)
        self.candidates = Candidates(count, k=k, ahead=ahead, limit=limit)
        self.line.due()
        self.guess(*margins)

    def guess(self, *margins: float) -> None:
        for margin in margins:
            pos = self.line.committed + self.line.outstanding
            self.line.drafted(pos, pos + 7, False, pos + 107, margin)

    def begin(self) -> tuple[int, StartRound] | None:
        return self.candidates.begin(self.line)

    def draft(self, number: int, pos: int, *tokens: int) -> None:
        for offset, token in enumerate(tokens):
            self.candidates.lines[number - 1].drafted(pos + offset, token, offset == len(tokens) - 1, 0, 9.0)

    def advance(self, pos: int, *tokens: int) -> None:
        self.line.advance(pos, tokens)
        self.candidates.advance(self.line)

    def blocks(self, number: int = 1) -> list[Block]:
        return self.candidates.lines[number - 1].blocks()


def test_a_candidate_leaves_the_main_line_where_it_was_least_sure() -> None:
    """It repeats the guesses before, takes the runner-up, and drafts a block from there."""
    pair = Pair(3.0, 0.5, 0.2, 4.0)
    assert pair.begin() == (1, StartRound((1, 2, 3, 10, 11, 112), 6))
    assert pair.begin() is None, "it is running"


def test_nothing_begins_before_the_main_line_is_a_block_ahead() -> None:
    """The engine's time belongs to the main line first."""
    pair = Pair(3.0, 0.5)
    assert pair.begin() is None
    pair.guess(0.2)
    assert pair.begin() is not None


def test_without_runners_up_there_are_no_candidates() -> None:
    """An engine that cannot say drafts one line."""
    pair = Pair()
    for pos in range(3, 8):
        pair.line.drafted(pos, pos + 7, False)
    assert pair.begin() is None
    assert Pair(1.0, 1.0, 1.0, count=1).begin() is None


def test_several_candidates_leave_at_different_positions() -> None:
    """The second-least sure position is the second one's."""
    pair = Pair(3.0, 0.5, 0.2, count=3)
    begun = [pair.begin(), pair.begin(), pair.begin()]
    assert [each and (each[0], each[1].tokens[-1]) for each in begun] == [(1, 112), (2, 111), None]


def test_an_urgent_candidate_is_sent_as_it_comes() -> None:
    """The next step may be the one that needs it; the runner-up alone would tell the verifier nothing."""
    pair = Pair(9.0, 0.2, 9.0)
    pair.begin()
    assert pair.blocks() == []
    line = pair.candidates.lines[0]
    line.drafted(5, 20, False)
    assert pair.blocks() == [Block(0, 3, (10, 111, 20))]
    line.drafted(6, 21, False)
    assert pair.blocks() == [Block(0, 6, (21,))]
    line.drafted(7, 22, True)
    assert pair.blocks() == [Block(0, 7, (22,))]
    assert pair.blocks() == []


def test_a_candidate_that_is_not_urgent_is_sent_in_one_message() -> None:
    """When it is complete, or when the target comes near its branch; with its prefix from the committed end on, so
    that its tape needs nothing from before."""
    for complete in (True, False):
        pair = Pair(9.0, 9.0, 9.0, 0.2)
        pair.begin()
        pair.candidates.lines[0].drafted(7, 20, complete)
        if not complete:
            assert pair.blocks() == []
            pair.advance(3, 10)
        start = 3 if complete else 4
        assert pair.blocks() == [Block(0, start, (*(10, 11, 12)[start - 3 :], 113, 20))]


def test_a_long_prefix_goes_in_several_messages() -> None:
    """Each fits a frame, and each follows the one before."""
    pair = Pair(*[9.0] * 200, 0.2, ahead=300, limit=1000)
    pair.begin()
    pair.draft(1, 204, 20)
    blocks = pair.blocks()
    assert [len(block.tokens) for block in blocks] == [BLOCK_TOKENS, 202 - BLOCK_TOKENS]
    assert [block.pos for block in blocks] == [3, 3 + BLOCK_TOKENS]


def test_the_main_line_takes_over_a_candidate_that_was_right() -> None:
    """It goes on behind the continuation, in its next epoch, and the candidate is free again."""
    pair = Pair(9.0, 0.2, 9.0, 9.0)
    pair.begin()
    pair.draft(1, 5, 20, 21, 22)
    pair.line.blocks()
    pair.advance(3, 10, 111)
    assert pair.line.epoch == 1
    assert pair.line.blocks() == [Block(1, 5, (20, 21, 22))]
    due = pair.line.due()
    assert isinstance(due, StartRound)
    assert due.tokens == (1, 2, 3, 10, 111, 20, 21, 22)
    assert not pair.candidates.lines[0].holds


def test_what_the_target_passed_of_a_candidate_is_not_taken_over() -> None:
    """Only the rest; and nothing of one that was right too short."""
    pair = Pair(9.0, 0.2, 9.0)
    pair.begin()
    pair.draft(1, 5, 20, 21, 22)
    pair.advance(3, 10, 111, 20)
    assert [guess.token for guess in pair.line.guesses] == [21, 22]
    pair = Pair(9.0, 0.2, 9.0)
    pair.begin()
    pair.draft(1, 5, 20)
    pair.advance(3, 10, 111, 20, 21)
    assert not pair.line.guesses and not pair.candidates.lines[0].holds


@pytest.mark.parametrize("tokens", [(10, 11), (10, 55), (55,), (10, 11, 12, 55)])
def test_a_candidate_that_the_target_contradicts_is_dropped(tokens: tuple[int, ...]) -> None:
    """The main line was right at the branch, or neither was; what it drafts on is ignored and not sent."""
    pair = Pair(9.0, 0.2, 9.0)
    pair.begin()
    line = pair.candidates.lines[0]
    line.drafted(5, 20, False)
    pair.advance(3, *tokens)
    assert not line.holds
    line.drafted(6, 21, False)
    assert pair.blocks() == []


def test_a_new_branch_is_a_new_epoch_from_the_committed_end() -> None:
    """After the old one has become moot."""
    pair = Pair(9.0, 0.2, 9.0)
    pair.begin()
    pair.draft(1, 5, 20, 21, 22)
    pair.advance(3, 10, 11)
    pair.guess(0.4, 0.6, 0.8)
    assert pair.begin() == (1, StartRound((1, 2, 3, 10, 11, 12, 113), 6))
    pair.draft(1, 7, 30, 31, 32)
    assert pair.blocks() == [Block(1, 5, (12, 113, 30, 31, 32))]


def test_a_complete_candidate_is_given_up_for_a_better_branch() -> None:
    """Not for one that is as good, and not while it runs."""
    pair = Pair(9.0, 0.5, 9.0)
    pair.begin()
    pair.guess(0.5, 0.3)
    assert pair.begin() is None
    pair.draft(1, 5, 20, 21, 22)
    assert pair.begin() == (1, StartRound((1, 2, 3, 10, 11, 12, 13, 114), 4))


def test_a_sure_guess_is_no_branch() -> None:
    """What it would take the node to draft is not worth its chance."""
    assert Pair(9.0, 9.0, 5.1).begin() is None
    assert Pair(9.0, 9.0, 4.9).begin() is not None


def test_candidates_keep_to_the_window_and_to_the_context() -> None:
    """A branch without room for a continuation is none."""
    pair = Pair(9.0, 9.0, 9.0, 0.2, 0.1, ahead=5)
    begun = pair.begin()
    assert begun is not None and begun[1] == StartRound((1, 2, 3, 10, 11, 12, 113), 1)
    pair = Pair(9.0, 9.0, 9.0, 0.2, 0.1, limit=8)
    begun = pair.begin()
    assert begun is not None and begun[1] == StartRound((1, 2, 3, 10, 11, 12, 113), 1)


# --- the drafter, on an engine that is a function of the prefix ---------------------------------

VOCABULARY = 4


def chosen(tokens: Sequence[int]) -> tuple[int, int, float]:
    """Token, runner-up and margin after `tokens`."""
    number = zlib.crc32(array("q", tokens).tobytes())
    token = number % VOCABULARY
    return token, (token + 1 + number // 7 % (VOCABULARY - 1)) % VOCABULARY, (number // 101 % 50) / 10


class Oracle:
    """See `DraftEngine`; every round moves one token a step."""

    name, vocabulary, max_model_len = "oracle", VOCABULARY, 200

    def __init__(self, max_streams: int) -> None:
        self.max_streams = max_streams
        self.rounds: dict[StreamId, tuple[list[int], int, bool]] = {}

    @property
    def busy(self) -> bool:
        return bool(self.rounds)

    def start(
        self,
        stream: StreamId,
        tokens: Sequence[int],
        count: int,
        sampling: Sampling,
        seed: int | None,
        runners_up: bool = False,
    ) -> None:
        self.stop(stream)
        assert len(self.rounds) < self.max_streams, "one round too many"
        assert count >= 1
        self.rounds[stream] = (list(tokens), count, runners_up)

    def stop(self, stream: StreamId) -> None:
        self.rounds.pop(stream, None)

    def forget(self, stream: StreamId) -> None:
        self.stop(stream)

    def step(self) -> list[Drafted]:
        out = []
        for stream, (tokens, count, runners_up) in list(self.rounds.items()):
            token, runner_up, margin = chosen(tokens)
            tokens.append(token)
            self.rounds[stream] = (tokens, count - 1, runners_up)
            if count == 1:
                self.stop(stream)
            told = (runner_up, margin) if runners_up else (None, None)
            out.append(Drafted(stream, len(tokens) - 1, token, count == 1, *told))
        return out

    def close(self) -> None:
        self.rounds.clear()


def opened(stream: str, tokens: Sequence[int], candidates: int, k: int = 3, ahead: int = 9) -> OpenStream:
    return OpenStream(
        stream=stream,
        tokens=tuple(tokens),
        sampling=Sampling(),
        seed=None,
        k=k,
        ahead=ahead,
        candidates=candidates,
    )


def continuation(tokens: Sequence[int], count: int) -> list[int]:
    line = list(tokens)
    for _ in range(count):
        line.append(chosen(line)[0])
    return line[len(tokens) :]


def test_no_runner_up_is_asked_for_without_candidates() -> None:
    """Streams that want one line cost what they did."""
    engine = Oracle(4)
    drafter = Drafter(engine)
    drafter.open(opened("a", [1, 2], 1))
    drafter.open(opened("b", [1, 2], 2))
    assert [runners_up for _, _, runners_up in engine.rounds.values()] == [False, True]


def test_a_main_line_takes_the_place_of_a_candidate() -> None:
    """A stream that is opened drafts at once, however many candidates run."""
    engine = Oracle(2)
    drafter = Drafter(engine)
    drafter.open(opened("a", [1, 2], 3))
    for _ in range(3):
        drafter.step()
    assert len(engine.rounds) == 2, "a candidate has the free place"
    drafter.open(opened("b", [3], 2))
    assert set(engine.rounds) == {"a", "b"}
    drafter.close(StreamId("a"))
    drafter.close(StreamId("b"))
    assert not engine.rounds


def test_a_divergence_to_the_runner_up_is_answered_before_it_is_known() -> None:
    """The verifier, which got a candidate's tape, drafts on in the very next step, and the main line behind it."""
    engine = Oracle(4)
    drafter = Drafter(engine)
    prompt = [1, 2, 3]
    drafter.open(opened("s", prompt, 2))
    text = list(prompt)
    tapes = {0: VerifierTape(), 1: VerifierTape()}
    while engine.busy:
        drafter.step()
        deliver(drafter, tapes, text)
    main = tapes[0].peek(3, 9)
    assert main == continuation(prompt, 9)
    [branch] = [
        index for index in range(9) if tapes[1].peek(3, 9)[: index + 1] == [*main[:index], rival(prompt, main, index)]
    ]
    new = [*main[:branch], rival(prompt, main, branch)]
    text += new
    assert not tapes[0].commit(3, new), "the main line was wrong"
    assert tapes[1].commit(3, new)
    expected = continuation(text, 3)
    held = tapes[1].peek(len(text), 3)
    assert held and held == expected[: len(held)]

    drafter.advance(AdvanceStream(stream="s", pos=3, tokens=tuple(new)))
    deliver(drafter, tapes, text)
    assert tapes[0].peek(len(text), 3) == held, "without a decode step"


def rival(prompt: Sequence[int], main: Sequence[int], index: int) -> int:
    """The runner-up of the main line's guess number `index`."""
    return chosen([*prompt, *main[:index]])[1]


def deliver(drafter: Drafter, tapes: dict[int, VerifierTape], text: Sequence[int]) -> None:
    for block in drafter.take_blocks():
        tapes[block.candidate].write(block.epoch, block.pos, block.tokens, text)


class NeverHarms(RuleBasedStateMachine):
    """The same target for a drafter with candidates and one without, step by step on the same engine."""

    @initialize(k=st.integers(1, 4), ahead=st.integers(1, 9), places=st.integers(1, 4), candidates=st.integers(2, 4))
    def begin(self, k: int, ahead: int, places: int, candidates: int) -> None:
        self.ahead = ahead
        self.engines = [Oracle(places), Oracle(places)]
        self.drafters = [Drafter(engine) for engine in self.engines]
        self.text = [0, 1]
        for drafter, count in zip(self.drafters, (candidates, 1), strict=True):
            assert not drafter.open(opened("s", self.text, count, k, ahead))
        self.to_cloud: deque[DraftBlock] = deque()
        self.to_node: deque[tuple[int, list[int]]] = deque()
        self.tapes = {number: VerifierTape() for number in range(candidates)}
        self.broker = BrokerTape.opened(2, k, 0.0)
        self.epochs: dict[int, int] = {}
        self.same = True
        """No candidate has been taken over yet: until then both main lines are one."""
        self.collect()

    @property
    def lines(self) -> list[GuessLine]:
        return [drafter._streams[StreamId("s")].line for drafter in self.drafters]

    def collect(self) -> None:
        with_candidates, without = ([*drafter.take_blocks()] for drafter in self.drafters)
        main = [block for block in with_candidates if not block.candidate]
        if self.same:
            assert main == without, "the main line's drafts differ"
        for block in with_candidates:
            assert block.epoch >= self.epochs.get(block.candidate, 0)
            self.epochs[block.candidate] = block.epoch
            assert block.candidate < len(self.tapes)
        self.to_cloud += with_candidates

    @rule()
    def engine_step(self) -> None:
        for drafter, engine in zip(self.drafters, self.engines, strict=True):
            if engine.busy:
                assert not drafter.step()
        self.collect()

    @precondition(lambda self: self.to_cloud)
    @rule()
    def cloud_hears(self) -> None:
        block = self.to_cloud.popleft()
        assert block.pos + len(block.tokens) - len(self.text) <= self.ahead
        line = self.broker.line(block.candidate, 0.0)
        fate, _ = line.draft(block.epoch, block.pos, block.tokens, self.text, 0.0)
        assert fate is not DraftFate.GAP
        if fate is DraftFate.USABLE:
            self.tapes[block.candidate].write(block.epoch, block.pos, block.tokens, self.text)

    @rule(data=st.data(), kind=st.sampled_from(["agree", "runner-up", "any"]))
    def target_steps(self, data: st.DataObject, kind: str) -> None:
        """Verifies some of a tape, then goes where the node would, to its runner-up, or anywhere."""
        if len(self.text) > 150:
            return
        tape = self.tapes[data.draw(st.sampled_from(sorted(self.tapes)))]
        pos = len(self.text)
        tokens = tape.peek(pos, data.draw(st.integers(0, 4)))
        token, runner_up, _ = chosen([*self.text, *tokens])
        last = {"agree": token, "runner-up": runner_up, "any": data.draw(st.integers(0, VOCABULARY - 1))}[kind]
        new = [*tokens, last]
        self.text += new
        self.broker.advance(tuple(new), 0.0)
        for each in self.tapes.values():
            each.commit(pos, new)
        self.to_node.append((pos, new))

    @precondition(lambda self: self.to_node)
    @rule()
    def node_hears(self) -> None:
        pos, tokens = self.to_node.popleft()
        for drafter in self.drafters:
            assert not drafter.advance(AdvanceStream(stream="s", pos=pos, tokens=tuple(tokens)))
        mine, other = self.lines
        self.same = self.same and len(mine.guesses) == len(other.guesses)
        self.collect()

    @invariant()
    def the_main_line_is_what_the_engine_would_say(self) -> None:
        if hasattr(self, "drafters"):
            for line in self.lines:
                assert [guess.token for guess in line.guesses] == continuation(line.text, line.outstanding)
                assert line.outstanding <= self.ahead

    @invariant()
    def the_main_line_runs_whenever_it_could(self) -> None:
        """Whatever candidates run: no place is kept from it."""
        if hasattr(self, "drafters"):
            line, engine = self.lines[0], self.engines[0]
            room = min(self.ahead - line.outstanding, engine.max_model_len - line.committed - line.outstanding)
            assert StreamId("s") in engine.rounds or line.outstanding > 0 or room <= 0


NeverHarms.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestNeverHarms = NeverHarms.TestCase
