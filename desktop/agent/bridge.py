"""Carries streams between the cloud and the worker, and keeps the cloud told whether this node can draft.

A stream lives in one session and one worker. When the session ends, the worker forgets all streams and stays warm;
when the worker dies, the cloud gets a `Hold` and, once the next one has loaded, a `Resume`. The worker knows a
stream by the session's number and its id: a cloud may give the same stream again in the next session, and drafts
of the first time may still be in the pipe then.
"""

import asyncio
from collections.abc import Callable
from typing import Final, assert_never

from msgspec.structs import replace

from desktop.agent.outbox import Outbox
from desktop.agent.ports import DraftWorker
from desktop.agent.report import Log
from desktop.agent.tally import Tally
from shared.wire.messages import (
    Advance,
    Beat,
    Challenge,
    Close,
    CloudMessage,
    Demand,
    DemandReason,
    Draft,
    Drain,
    Earnings,
    Hold,
    HoldReason,
    Open,
    Refuse,
    Resume,
    Welcome,
)

DEMAND_WORDS: Final = {
    DemandReason.SERVING: "The gateway has work for this node",
    DemandReason.NO_DEMAND: "Waiting for work: no demand",
    DemandReason.NO_MATCHING_MODEL: "Waiting for work: no model there shares this draft model's tokenizer",
    DemandReason.TOO_SLOW: "Waiting for work: the round trip to the gateway is too long",
    DemandReason.LOW_ACCEPTANCE: "Waiting for work: too few of this node's drafts were right",
    DemandReason.HOLDING: "Waiting: this node does not share at the moment",
    DemandReason.PROBATION: "On probation: this node is tried with streams that do not wait for it, unpaid",
    DemandReason.ASK_TOO_HIGH: "Waiting for work: this node asks more than the market pays",
    DemandReason.NOT_PAIRED: "Waiting for work: this node belongs to no account, pair it with `nexus agent pair`",
    DemandReason.FREE_MODEL: "Waiting for work: customers pay nothing for the models served there",
    DemandReason.OUTRANKED: "Waiting for work: other nodes give more for the streams there are",
}


class Bridge:
    """State between one connection and one worker, either of which may be missing at any time."""

    def __init__(self, worker: Callable[[], DraftWorker | None], log: Log, clock: Callable[[], float]) -> None:
        self._worker = worker
        self._log = log
        self._tally = Tally(clock)
        self._outbox: Outbox | None = None
        self._session = 0
        self._streams: set[str] = set()
        self._holding = False
        self._beats: asyncio.Task[None] | None = None
        self._demand: tuple[DemandReason, str] | None = None
        self._shown = 0

    @property
    def streams(self) -> frozenset[str]:
        """Streams that are drafted for now."""
        return frozenset(self._streams)

    # --- the connection ----------------------------------------------------------------------

    def session_began(self, welcome: Welcome, outbox: Outbox) -> None:
        self._outbox = outbox
        self._session += 1
        self._tally.restart()
        self._demand = None
        if self._worker() is None:
            self._hold(outbox)
        self._beats = asyncio.create_task(self._beat(welcome.beat_s, outbox))

    def session_ended(self) -> None:
        """Also called when there was none."""
        if self._beats is not None:
            self._beats.cancel()
        self._outbox = self._beats = None
        self._holding = False
        if self._streams and (worker := self._worker()) is not None:
            worker.stop_all()
        self._streams.clear()
        self._shown = 0

    def leave(self) -> None:
        """Say that this node goes, send what waits, and let the connection end."""
        if self._outbox is not None:
            if self._beats is not None:
                self._beats.cancel()
            self._outbox.forget_drafts()
            self._outbox.put(Drain())
            self._outbox.close()
            self._outbox = None

    def received(self, message: CloudMessage) -> None:
        """Act on a message of the cloud."""
        worker = self._worker()
        match message:
            case Open():
                if worker is not None and not self._holding:
                    self._streams.add(message.stream)
                    worker.open(replace(message, stream=self._local(message.stream)))
                    self._log.debug(
                        "stream_opened",
                        message=f"Stream {message.stream} opened with {len(message.tokens)} tokens.",
                        stream=message.stream,
                    )
                    self._show_streams()
            case Advance():
                if worker is not None and message.stream in self._streams:
                    worker.advance(replace(message, stream=self._local(message.stream)))
            case Close():
                self._closed(message, worker)
            case Demand():
                self._show_demand(message)
            case Earnings():
                self._log.info(
                    "earnings",
                    message=f"Earnings: {_dollars(message.pending)} pending, {_dollars(message.payable)} payable, "
                    f"{_dollars(message.paid)} paid.",
                    pending=message.pending,
                    payable=message.payable,
                    paid=message.paid,
                )
            case Challenge() | Welcome() | Refuse():
                pass  # the connection has dealt with these
            case _:
                assert_never(message)

    # --- the worker --------------------------------------------------------------------------

    def drafted(self, draft: Draft) -> None:
        """Pass on a guess, unless its stream has ended meanwhile."""
        session, _, stream = draft.stream.partition("/")
        if self._outbox is not None and session == str(self._session) and stream in self._streams:
            if not draft.candidate:
                self._tally.drafted(len(draft.tokens))
            self._outbox.put(replace(draft, stream=stream))

    def worker_failed(self) -> None:
        """Its streams are gone with it."""
        self._streams.clear()
        self._shown = 0
        if self._outbox is not None:
            self._hold(self._outbox)

    def worker_recovered(self) -> None:
        if self._outbox is not None and self._holding:
            self._outbox.put(Resume())
        self._holding = False

    # --- details -----------------------------------------------------------------------------

    def _local(self, stream: str) -> str:
        return f"{self._session}/{stream}"

    def _hold(self, outbox: Outbox) -> None:
        outbox.forget_drafts()
        outbox.put(Hold(reason=HoldReason.ENGINE_FAILED))
        self._holding = True

    def _closed(self, message: Close, worker: DraftWorker | None) -> None:
        if message.stream in self._streams:
            self._streams.remove(message.stream)
            if worker is not None:
                worker.close(self._local(message.stream))
        if self._outbox is not None:
            self._outbox.forget_stream(message.stream)
        receipt = message.receipt
        self._log.debug(
            "stream_closed",
            message=f"Stream {message.stream} closed ({message.reason})"
            + (f": {receipt.accepted} of {receipt.drafted} drafted tokens accepted." if receipt else "."),
            stream=message.stream,
            reason=message.reason,
            drafted=receipt.drafted if receipt else None,
            accepted=receipt.accepted if receipt else None,
        )

    def _show_streams(self) -> None:
        """Said when the number has risen since it was last said; `_beat` says what it fell to."""
        if len(self._streams) > self._shown:
            self._say_streams()

    def _say_streams(self) -> None:
        self._shown = len(self._streams)
        count = "no stream" if not self._shown else f"{self._shown} stream" + ("s" if self._shown != 1 else "")
        self._log.info("drafting", message=f"Drafting for {count}.", streams=self._shown)

    def _show_demand(self, message: Demand) -> None:
        if (message.reason, message.message) != self._demand:
            self._demand = (message.reason, message.message)
            words = DEMAND_WORDS[message.reason]
            detail = f" ({message.message.rstrip('.')})" if message.message else ""
            self._log.info("demand", message=f"{words}{detail}.", reason=str(message.reason))

    async def _beat(self, every_s: float, outbox: Outbox) -> None:
        seq = 0
        while True:
            await asyncio.sleep(every_s)
            outbox.put(Beat(seq=seq, stats=self._tally.stats(len(self._streams))))
            seq += 1
            if len(self._streams) != self._shown:
                self._say_streams()


def _dollars(nano: int) -> str:
    """Nano-dollars for people, without floating point."""
    return f"${nano // 10**9}.{nano % 10**9 // 1000:06d}"
