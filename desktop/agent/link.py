"""Life cycle of the connection to the cloud as a table: dial, prove, stay online, wait and try again, for ever.

Pure: it is told what happened and when, and says when to dial next. Lost connections are retried with
full-jitter back-off that starts over after a session that lasted `LASTING_S`; a refusal that a retry
cannot help is retried no sooner than `SLOW_RETRY_S`, since an update on either side may mend it.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from desktop.agent.supervision import Delays
from shared.errors import (
    LocalMisuse,
    NodeRevoked,
    NodeUnpaired,
    ProofFailed,
    RateLimited,
    TokenizerMismatch,
    VersionUnsupported,
)

LASTING_S: Final = 30.0
SLOW_RETRY_S: Final = 60.0


class LinkState(StrEnum):
    """Where the connection is in its life."""

    IDLE = "idle"
    """Not asked to connect yet: the draft model is still loading."""
    DIALLING = "dialling"
    PROVING = "proving"
    ONLINE = "online"
    WAITING = "waiting"
    """Until the next attempt."""
    CLOSED = "closed"


class LinkEvent(StrEnum):
    """What happened to the connection, or is asked of it."""

    DIAL = "dial"
    CONNECTED = "connected"
    WELCOMED = "welcomed"
    LOST = "lost"
    REFUSED = "refused"
    STOP = "stop"


_S, _E = LinkState, LinkEvent

TRANSITIONS: Final[dict[tuple[LinkState, LinkEvent], LinkState]] = {
    (_S.IDLE, _E.DIAL): _S.DIALLING,
    (_S.DIALLING, _E.CONNECTED): _S.PROVING,
    (_S.DIALLING, _E.LOST): _S.WAITING,
    (_S.DIALLING, _E.REFUSED): _S.WAITING,
    (_S.PROVING, _E.WELCOMED): _S.ONLINE,
    (_S.PROVING, _E.LOST): _S.WAITING,
    (_S.PROVING, _E.REFUSED): _S.WAITING,
    (_S.ONLINE, _E.LOST): _S.WAITING,
    (_S.ONLINE, _E.REFUSED): _S.WAITING,
    (_S.WAITING, _E.DIAL): _S.DIALLING,
    **{(state, _E.STOP): _S.CLOSED for state in LinkState},
}
"""Every legal step; anything else is a bug of the caller and raises LocalMisuse."""

HOPELESS: Final[dict[str, str]] = {
    TokenizerMismatch.code: "Choose with --model a draft model of the same family as the target.",
    VersionUnsupported.code: "Update Nexus on this machine.",
    NodeUnpaired.code: "",
    NodeRevoked.code: "",
    ProofFailed.code: "Ask the gateway's operator whether this node's key (`nexus agent key`) may connect.",
}
"""Refusals that the same node would only get again, and what its owner can do, where the cloud does not say it."""


def error_code_of(close_code: int | None) -> str | None:
    """The refusal that a WebSocket close code stands for, if it names one (4000 and up)."""
    for error in (VersionUnsupported, ProofFailed, TokenizerMismatch, RateLimited, NodeUnpaired, NodeRevoked):
        if error.close_code == close_code:
            return error.code
    return None


@dataclass
class Link:
    """State of the connection."""

    gateways: tuple[str, ...]
    delays: Delays
    slow_retry_s: float = SLOW_RETRY_S
    state: LinkState = LinkState.IDLE
    retry_at: float | None = None
    """When to send DIAL, monotonic seconds; set in WAITING only."""
    _turn: int = field(default=0, repr=False)
    _online_at: float = field(default=0.0, repr=False)

    @property
    def gateway(self) -> str:
        """The one to dial now; another one's turn comes after each failure."""
        return self.gateways[self._turn % len(self.gateways)]

    def on(self, event: LinkEvent, now: float, *, code: str | None = None) -> LinkState:
        """Apply one event at monotonic time `now`; `code` is a refusal's error code. Returns the new state.

        Raises LocalMisuse where the table has no such step.
        """
        before = self.state
        after = TRANSITIONS.get((before, event))
        if after is None:
            raise LocalMisuse(f"a connection that is {before} cannot take the event {event}")
        self.state = after
        self.retry_at = None
        if after is LinkState.ONLINE:
            self._online_at = now
        elif after is LinkState.WAITING:
            lasted = before is LinkState.ONLINE and now - self._online_at >= LASTING_S
            if lasted:
                self.delays.reset()
            elif before is not LinkState.ONLINE:
                self._turn += 1
            wait = self.delays.next()
            if event is LinkEvent.REFUSED and code in HOPELESS:
                wait = self.slow_retry_s + wait
            self.retry_at = now + wait
        return after


def refusal_in_words(code: str, message: str) -> str:
    """A refusal for the owner: the cloud's words and what to do about it."""
    remedy = HOPELESS.get(code)
    return f"{message.rstrip('.')}. {remedy}" if remedy else message
