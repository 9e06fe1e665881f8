"""How a step waits for drafts: the scheduler's own loop, without an engine behind it."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from cloud.verifier.drafts.book import Book
from cloud.verifier.policy.cost import StepCost
from cloud.verifier.port.mailbox import Letter
from shared.draftport.messages import Policy, PortDraft

pytest.importorskip("vllm")

from cloud.verifier.engine.scheduler import DraftScheduler

POLL_S = 0.02
STEP_S = 5.0
"""Seconds of a step on the machine that is played: waiting for a draft in a second pays."""


class BusyMailbox:
    """Something lies ready at every look, as with hundreds of streams."""

    def wait(self, timeout_s: float) -> bool:
        return True

    def drain(self) -> list[Any]:
        return [Letter(PortDraft(stream="another", tape="t", epoch=0, pos=1, tokens=(1,)), 0.0, 0.0)]


def request(name: str, **fields: Any) -> Any:
    plain = {"num_output_tokens": 2, "num_tokens": 5, "num_computed_tokens": 4, "max_tokens": 100}
    return SimpleNamespace(**{"request_id": name, "is_prefill_chunk": False, "spec_token_ids": []} | plain | fields)


def scheduler(book: Book, streams: dict[str, str], *requests: Any) -> Any:
    made: Any = DraftScheduler.__new__(DraftScheduler)
    made.running, made.waiting = list(requests), []
    made._book, made._streams, made._offers = book, streams, {}
    made._port = SimpleNamespace(mailbox=BusyMailbox())
    made._poll_s, made.max_num_scheduled_tokens = POLL_S, 64
    made.num_spec_tokens, made.max_model_len, made.current_step = 4, 1000, 7
    return made


def waiting_stream(book: Book, name: str) -> None:
    """A stream whose node answers a divergence within half a second, and has just been called."""
    now = time.monotonic() - 10
    committed = [1, 2, 3]
    book.open(name, "gateway", committed)
    book.receive(Policy(stream=name, wait_ms=10_000, k=4), now)
    for epoch in range(6):
        pos = len(committed)
        book.receive(PortDraft(stream=name, tape="t", epoch=epoch, pos=pos, tokens=(9,)), now)
        committed.append(100 + pos)
        now = now + 1.5 if epoch < 5 else time.monotonic()
        book.commit(name, pos, committed[pos:], draft=(), source=None, step=1, step_ms=1.0, now=now)
        now += 0.5


def book() -> Book:
    return Book(vocabulary=1000, cost=StepCost({1: STEP_S, 16: STEP_S}), wait_price=0.0)


def test_while_it_waits_the_engine_is_let_in_now_and_then() -> None:
    """New requests and cancellations come in between two calls, however many messages arrive meanwhile."""
    plan = book()
    waiting_stream(plan, "s")
    one = request("waits")
    began = time.monotonic()
    scheduler(plan, {"waits": "s"}, one)._offer_or_wait()
    assert POLL_S <= time.monotonic() - began < 1.0
    assert one.next_decode_eligible_step == 9


@pytest.mark.parametrize("other", ["plain", "prefill", "new"])
def test_nobody_waits_while_others_can_run(other: str) -> None:
    """A request without a stream, a prompt under way and a request that has just come go first."""
    plan = book()
    waiting_stream(plan, "s")
    one = request("waits")
    made = scheduler(plan, {"waits": "s"}, one)
    if other == "new":
        made.waiting = [request("new", num_tokens=50, num_computed_tokens=0)]
    else:
        made.running.append(request(other, is_prefill_chunk=other == "prefill"))
    made._offer_or_wait()
    assert not hasattr(one, "next_decode_eligible_step")
    assert not made._offers


def test_a_request_takes_no_more_draft_than_it_has_room_for() -> None:
    """Neither beyond its own limit nor beyond the model's length; the bonus token needs a place too."""
    made = scheduler(book(), {"r": "s"})
    assert made._limit(request("r")) == 4
    assert made._limit(request("r", max_tokens=5)) == 2
    assert made._limit(request("r", num_tokens=998)) == 1
    assert made._limit(request("r", max_tokens=3)) == 0
    assert made._limit(request("another's")) == 0
