"""Messages from gateways, handed from the port's thread to the scheduler's, with when they came."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from shared.draftport.messages import DropTape, Policy, PortDraft, Resync

Inbound = PortDraft | DropTape | Policy | Resync
MAILBOX_LIMIT = 100_000
"""Oldest messages beyond this are dropped: the scheduler has stalled, and old drafts are worth nothing."""


@dataclass(slots=True)
class Letter:
    """A message and when it came, in monotonic seconds.

    Drafts of one tape that continue each other become one message: during a forward pass a node sends many small
    ones, and the scheduler, which keeps the accelerator waiting, has less to do.
    """

    message: Inbound
    came: float
    last: float
    """When the last part of it came."""


class Mailbox:
    """A bounded queue with one reader; safe between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._letters: deque[Letter] = deque(maxlen=MAILBOX_LIMIT)
        self._latest: dict[str, Letter] = {}
        """Stream -> its last letter in the queue."""
        self._arrived = threading.Condition()

    def put(self, message: Inbound) -> None:
        now = self._clock()
        with self._arrived:
            latest = self._latest.get(message.stream)
            if latest is not None and (joined := _joined(latest.message, message)) is not None:
                latest.message, latest.last = joined, now
            else:
                letter = self._latest[message.stream] = Letter(message, now, now)
                self._letters.append(letter)
            self._arrived.notify()

    def drain(self) -> list[Letter]:
        """All waiting messages, oldest first."""
        with self._arrived:
            letters = list(self._letters)
            self._letters.clear()
            self._latest.clear()
        return letters

    def wait(self, timeout_s: float) -> bool:
        """Blocks until something waits to be drained, at most so long; false if nothing came."""
        with self._arrived:
            return self._arrived.wait_for(lambda: bool(self._letters), max(0.0, timeout_s))


def _joined(first: Inbound, then: Inbound) -> PortDraft | None:
    """Both as one, if the second goes on where the first ends."""
    if (
        isinstance(first, PortDraft)
        and isinstance(then, PortDraft)
        and (first.tape, first.epoch) == (then.tape, then.epoch)
        and first.pos + len(first.tokens) == then.pos
    ):
        return msgspec.structs.replace(first, tokens=first.tokens + then.tokens)
    return None
