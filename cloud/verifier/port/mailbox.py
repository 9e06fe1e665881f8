"""Messages from gateways, handed from the port's thread to the scheduler's."""

import threading
from collections import deque

from shared.draftport.messages import DropTape, Policy, PortDraft, Resync

Inbound = PortDraft | DropTape | Policy | Resync
MAILBOX_LIMIT = 100_000
"""Oldest messages beyond this are dropped: the scheduler has stalled, and old drafts are worth nothing."""


class Mailbox:
    """A bounded queue with one reader; safe between threads."""

    def __init__(self) -> None:
        self._messages: deque[Inbound] = deque(maxlen=MAILBOX_LIMIT)
        self._arrived = threading.Condition()

    def put(self, message: Inbound) -> None:
        with self._arrived:
            self._messages.append(message)
            self._arrived.notify()

    def drain(self) -> list[Inbound]:
        """All waiting messages, oldest first."""
        with self._arrived:
            messages = list(self._messages)
            self._messages.clear()
        return messages

    def wait(self, timeout_s: float) -> bool:
        """Blocks until something waits to be drained, at most so long; false if nothing came."""
        with self._arrived:
            return self._arrived.wait_for(lambda: bool(self._messages), max(0.0, timeout_s))
