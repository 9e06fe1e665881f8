"""The connection's life cycle: back-off, refusals, and that it never gives up."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from desktop.agent.link import (
    HOPELESS,
    LASTING_S,
    SLOW_RETRY_S,
    TRANSITIONS,
    Link,
    LinkEvent,
    LinkState,
    error_code_of,
    refusal_in_words,
)
from shared.errors import LocalMisuse, TokenizerMismatch

E, S = LinkEvent, LinkState


class Doubling:
    """Back-off without jitter."""

    def __init__(self, first: float) -> None:
        self.first = self.ceiling = first

    def next(self) -> float:
        delay, self.ceiling = self.ceiling, min(self.ceiling * 2, 32.0)
        return delay

    def reset(self) -> None:
        self.ceiling = self.first


def link(*gateways: str) -> Link:
    return Link(gateways or ("ws://a",), delays=Doubling(0.5))


def online(it: Link, now: float) -> None:
    for event in (E.DIAL, E.CONNECTED, E.WELCOMED):
        it.on(event, now)


def test_each_failure_waits_longer_and_a_lasting_session_starts_over() -> None:
    """0.5 s, 1 s, 2 s …, and 0.5 s again after a session of LASTING_S."""
    it = link()
    for attempt, wait in enumerate((0.5, 1.0, 2.0)):
        it.on(E.DIAL, attempt)
        it.on(E.LOST, attempt)
        assert it.retry_at == attempt + wait
    online(it, 10)
    it.on(E.LOST, 11)
    assert it.retry_at == 11 + 4.0
    online(it, 20)
    it.on(E.LOST, 20 + LASTING_S)
    assert it.retry_at == 20 + LASTING_S + 0.5


@pytest.mark.parametrize("code", sorted(HOPELESS))
def test_a_refusal_that_a_retry_cannot_help_is_retried_slowly(code: str) -> None:
    """The process stays and asks again, a minute later at the earliest."""
    it = link()
    it.on(E.DIAL, 0)
    it.on(E.CONNECTED, 0)
    assert it.on(E.REFUSED, 0, code=code) is S.WAITING
    assert it.retry_at is not None and it.retry_at >= SLOW_RETRY_S


def test_another_refusal_is_an_ordinary_failure() -> None:
    """A gateway without capacity is asked again soon."""
    it = link()
    it.on(E.DIAL, 0)
    it.on(E.REFUSED, 0, code="unavailable")
    assert it.retry_at == 0.5


def test_the_next_gateway_gets_its_turn_when_one_cannot_be_reached() -> None:
    """A lost session goes back to the same gateway first."""
    it = link("ws://a", "ws://b")
    it.on(E.DIAL, 0)
    it.on(E.LOST, 0)
    assert it.gateway == "ws://b"
    online(it, 1)
    it.on(E.LOST, 2)
    assert it.gateway == "ws://b"


def test_a_refusal_is_said_with_what_to_do() -> None:
    """The cloud's words come first; the remedy follows where there is one."""
    said = refusal_in_words(TokenizerMismatch.code, "Yours is 1, ours is 2.")
    assert said.startswith("Yours is 1, ours is 2. ") and "--model" in said
    assert refusal_in_words("unavailable", "Full.") == "Full."
    assert error_code_of(4004) == "tokenizer_mismatch"
    assert error_code_of(1006) is None
    assert error_code_of(4006) == "node_unpaired" and error_code_of(4007) == "node_revoked"
    assert refusal_in_words("node_unpaired", "Run `nexus agent pair`.") == "Run `nexus agent pair`."


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("event", list(E))
def test_only_the_table_moves_it(state: LinkState, event: LinkEvent) -> None:
    """What the table does not name is refused and changes nothing."""
    it = link()
    it.state = state
    if (state, event) in TRANSITIONS:
        assert it.on(event, 0) is TRANSITIONS[state, event]
    else:
        with pytest.raises(LocalMisuse):
            it.on(event, 0)
        assert it.state is state


class AnyHistory(RuleBasedStateMachine):
    """Whatever the network does, there is always a next attempt until STOP."""

    def __init__(self) -> None:
        super().__init__()
        self.link = link("ws://a", "ws://b", "ws://c")
        self.now = self.moved = 0.0

    @rule(
        event=st.sampled_from(E),
        wait=st.floats(0, 100),
        code=st.sampled_from([None, "unavailable", *HOPELESS]),
    )
    def happens(self, event: LinkEvent, wait: float, code: str | None) -> None:
        self.now += wait
        if (self.link.state, event) in TRANSITIONS:
            self.link.on(event, self.now, code=code)
            self.moved = self.now

    @invariant()
    def waiting_has_an_end(self) -> None:
        assert (self.link.retry_at is not None) == (self.link.state is S.WAITING)
        if self.link.retry_at is not None:
            assert self.moved <= self.link.retry_at <= self.moved + SLOW_RETRY_S + 32
        assert self.link.gateway in self.link.gateways


TestAnyHistory = AnyHistory.TestCase
