"""How long a step waits for drafts: the scheduler's own loop, without an engine behind it."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from cloud.verifier.drafts.book import Book
from shared.draftport.messages import Policy, PortDraft

pytest.importorskip("vllm")

from cloud.verifier.engine.scheduler import DraftScheduler

GATHER_S = 0.01
HOLD_S = 2.0


class BusyMailbox:
    """Something lies ready at every look, as with hundreds of streams."""

    def wait(self, timeout_s: float) -> bool:
        return True

    def drain(self) -> list[Any]:
        return [PortDraft(stream="another", tape="t", epoch=0, pos=1, tokens=(1,))]


def request(name: str) -> Any:
    return SimpleNamespace(
        request_id=name, is_prefill_chunk=False, num_output_tokens=1, num_tokens=4, max_tokens=100, spec_token_ids=[]
    )


def scheduler(book: Book, streams: dict[str, str], *requests: Any) -> Any:
    made: Any = DraftScheduler.__new__(DraftScheduler)
    made.running, made.waiting = list(requests), []
    made._book, made._streams, made._offers = book, streams, {}
    made._port = SimpleNamespace(mailbox=BusyMailbox())
    made._gather_s, made._poll_s = GATHER_S, 0.02
    made.num_spec_tokens, made.max_model_len, made.current_step = 4, 1000, 7
    return made


def waiting_stream(book: Book, name: str, since: float) -> None:
    committed = [1, 2, 3]
    book.open(name, "gateway", committed)
    book.receive(Policy(stream=name, wait_ms=HOLD_S * 1000, k=4))
    committed.append(4)
    book.commit(name, 3, [4], draft=(), source=None, step=1, step_ms=1.0, now=since)


def test_others_wait_no_longer_than_the_gathering_time() -> None:
    """However many messages arrive meanwhile: the one that waits sits this step out and the others go on."""
    book = Book(vocabulary=10)
    began = time.monotonic()
    waiting_stream(book, "s", began)
    one = request("waits")
    scheduler(book, {"waits": "s"}, one, request("plain"))._offer_or_wait()
    assert time.monotonic() - began < HOLD_S / 2
    assert one.next_decode_eligible_step == 9


def test_a_stream_whose_hold_ends_is_not_held_up_by_another_that_waits() -> None:
    """It decodes plainly from then on, and counts among those that can run."""
    book = Book(vocabulary=10)
    began = time.monotonic()
    waiting_stream(book, "over", began - HOLD_S + 0.005)
    waiting_stream(book, "s", began)
    over, one = request("over"), request("waits")
    made = scheduler(book, {"over": "over", "waits": "s"}, over, one)
    made._poll_s = HOLD_S
    made._offer_or_wait()
    assert time.monotonic() - began < HOLD_S / 2
    assert one.next_decode_eligible_step == 9
    assert not hasattr(over, "next_decode_eligible_step")
