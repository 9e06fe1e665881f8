"""The queue is fair between keys."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cloud.api.admission.queue import FairQueue

costs = st.lists(st.integers(1, 50), min_size=1, max_size=40)


@given(costs, costs, st.integers(0, 30))
def test_neither_of_two_busy_keys_gets_ahead(first, second, later):
    """While both wait, what they were served differs by no more than one request of each, also for one that comes
    later: it is not paid for the time in which it wanted nothing.
    """
    queue = FairQueue()
    for cost in first:
        queue.push("a", cost, None)
    for _ in range(min(later, len(first) - 1)):
        queue.pop()
    for cost in second:
        queue.push("b", cost, None)
    served = {"a": 0, "b": 0}
    bound = max(first) + max(second)
    while queue._costs.keys() == {"a", "b"}:
        entry = queue.pop()
        served[entry.key] += entry.cost
        if queue._costs.keys() == {"a", "b"}:
            assert abs(served["a"] - served["b"]) <= bound


def test_many_small_requests_do_not_beat_a_few_large():
    """A thousand requests of one key delay the one request of another by no more than one of them."""
    queue = FairQueue()
    for number in range(1000):
        queue.push("flood", 10, number)
    queue.pop()
    queue.push("single", 10, "mine")
    assert "mine" in [queue.pop().item for _ in range(2)]


def test_removed_entries_cost_nothing():
    """A key whose requests gave up is served as if they had never been."""
    queue = FairQueue()
    entries = [queue.push("a", 50, number) for number in range(5)]
    queue.push("a", 1, "last of a")
    queue.push("b", 1, "b")
    for entry in entries:
        queue.remove(entry)
        queue.remove(entry)
    assert (len(queue), queue.cost) == (2, 2)
    assert [queue.pop().item, queue.pop().item] == ["last of a", "b"]
    assert queue.first() is None
    with pytest.raises(IndexError):
        queue.pop()


def test_the_greediest_goes_first_when_there_are_too_many():
    """The newest entry of the key with most waiting cost."""
    queue = FairQueue()
    assert queue.greediest() is None
    queue.push("a", 5, "a1")
    queue.push("b", 4, "b1")
    last = queue.push("b", 4, "b2")
    assert queue.greediest().item == "b2"
    queue.remove(last)
    assert queue.greediest().item == "a1"


def test_a_flood_that_is_sent_away_leaves_nothing_behind():
    """A key whose requests come and go while its first one waits costs neither memory nor time."""
    queue = FairQueue()
    queue.push("a", 1, "first")
    for number in range(100_000):
        queue.push("a", 1, number)
        queue.remove(queue.greediest())
    assert len(queue._queues["a"]) == len(queue) == 1


class QueueMachine(RuleBasedStateMachine):
    """Against a plain list: nothing is lost or served twice, each key first in, first out."""

    def __init__(self):
        super().__init__()
        self.queue = FairQueue()
        self.waiting = []

    @rule(key=st.sampled_from("abc"), cost=st.integers(1, 9))
    def push(self, key, cost):
        self.waiting.append(self.queue.push(key, cost, None))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def remove(self, data):
        entry = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.queue.remove(entry)

    @precondition(lambda self: self.waiting)
    @rule()
    def pop(self):
        entry = self.queue.pop()
        assert entry is next(e for e in self.waiting if e.key == entry.key)
        self.waiting.remove(entry)

    @invariant()
    def counts(self):
        assert len(self.queue) == len(self.waiting) and self.queue.cost == sum(e.cost for e in self.waiting)
        assert (self.queue.first() is None) == (not self.waiting)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
