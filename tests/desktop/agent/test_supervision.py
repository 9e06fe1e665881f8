"""The worker's life cycle: every legal step, and what the cloud is told on the way."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from desktop.agent.supervision import STABLE_S, TRANSITIONS, Action, Supervision, WorkerEvent, WorkerState
from shared.errors import LocalMisuse

E, S = WorkerEvent, WorkerState


class Doubling:
    """Back-off without jitter."""

    def __init__(self, first: float) -> None:
        self.first = self.ceiling = first

    def next(self) -> float:
        delay, self.ceiling = self.ceiling, min(self.ceiling * 2, 32.0)
        return delay

    def reset(self) -> None:
        self.ceiling = self.first


def test_a_crash_holds_restarts_and_resumes() -> None:
    """READY → FAILED says Hold once; the next READY says Resume once."""
    worker = Supervision(delays=Doubling(1))
    assert worker.on(E.START, 0) == (Action.SPAWN,)
    assert worker.on(E.LOADED, 1) == ()
    assert worker.on(E.EXITED, 5) == (Action.HOLD,)
    assert worker.retry_at == 6
    assert worker.on(E.RETRY, 6) == (Action.SPAWN,)
    assert worker.on(E.EXITED, 7) == ()
    assert worker.retry_at == 9
    assert worker.on(E.RETRY, 9) == (Action.SPAWN,)
    assert worker.on(E.LOADED, 10) == (Action.RESUME,)


def test_a_worker_that_lasted_starts_the_back_off_again() -> None:
    """A crash after a good while is retried as fast as the first."""
    worker = Supervision(delays=Doubling(1))
    worker.on(E.START, 0)
    for _ in range(3):
        worker.on(E.EXITED, 0)
        worker.on(E.RETRY, 0)
    worker.on(E.LOADED, 0)
    worker.on(E.EXITED, STABLE_S)
    assert worker.retry_at == STABLE_S + 1


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("event", list(E))
def test_only_the_table_moves_it(state: WorkerState, event: WorkerEvent) -> None:
    """What the table does not name is refused and changes nothing."""
    worker = Supervision(delays=Doubling(1), state=state)
    if (state, event) in TRANSITIONS:
        worker.on(event, 0)
        assert worker.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(LocalMisuse):
            worker.on(event, 0)
        assert worker.state is state


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens, in any order, the actions make sense together."""

    def __init__(self) -> None:
        super().__init__()
        self.worker = Supervision(delays=Doubling(1))
        self.now = 0.0
        self.alive = False
        self.told_hold = False

    @rule(event=st.sampled_from(E), wait=st.floats(0, 100))
    def happens(self, event: WorkerEvent, wait: float) -> None:
        if (self.worker.state, event) not in TRANSITIONS:
            return
        self.now += wait
        if event is E.EXITED:
            self.alive = False
        for action in self.worker.on(event, self.now):
            match action:
                case Action.SPAWN:
                    assert not self.alive
                    self.alive = True
                case Action.HOLD:
                    assert not self.told_hold
                    self.told_hold = True
                case Action.RESUME:
                    assert self.told_hold
                    self.told_hold = False
                case Action.TERMINATE:
                    assert self.alive

    @precondition(lambda self: self.worker.state is S.FAILED)
    @rule()
    def retries(self) -> None:
        assert self.worker.retry_at is not None
        self.happens(E.RETRY, max(0.0, self.worker.retry_at - self.now))

    @invariant()
    def state_and_process_agree(self) -> None:
        assert self.alive == (self.worker.state in (S.STARTING, S.READY, S.STOPPING))
        assert (self.worker.retry_at is not None) == (self.worker.state is S.FAILED)
        assert self.worker.held == self.told_hold
        if self.worker.state is S.READY:
            assert not self.told_hold
        if self.worker.state is S.FAILED:
            assert self.told_hold


TestAnyHistory = AnyHistory.TestCase
