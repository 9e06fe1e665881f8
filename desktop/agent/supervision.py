"""Life cycle of the draft worker as a table: when it is started, given up on, tried again and stopped.

Pure: it is told what happened and when, and answers with what to do. A worker that stayed READY for
`STABLE_S` resets the back-off; one that dies while it loads is tried again ever more slowly, for ever.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from shared.errors import LocalMisuse

STABLE_S: Final = 60.0
STOP_GRACE_S: Final = 10.0


class Delays(Protocol):
    """Seconds between attempts; `shared.backoff.Backoff` is the one in use."""

    def next(self) -> float: ...

    def reset(self) -> None: ...


class WorkerState(StrEnum):
    """Where the worker is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"


class WorkerEvent(StrEnum):
    """What happened to the worker, or is asked of it."""

    START = "start"
    LOADED = "loaded"
    EXITED = "exited"
    RETRY = "retry"
    STOP = "stop"


class Action(StrEnum):
    """What the supervisor's owner has to do, in this order."""

    SPAWN = "spawn"
    HOLD = "hold"
    """Tell the cloud that this node cannot draft."""
    RESUME = "resume"
    """Tell the cloud that it can again."""
    TERMINATE = "terminate"
    """Ask the worker to end; it gets `STOP_GRACE_S`."""


_S, _E = WorkerState, WorkerEvent

TRANSITIONS: Final[dict[tuple[WorkerState, WorkerEvent], WorkerState]] = {
    (_S.STOPPED, _E.START): _S.STARTING,
    (_S.STOPPED, _E.STOP): _S.STOPPED,
    (_S.STARTING, _E.LOADED): _S.READY,
    (_S.STARTING, _E.EXITED): _S.FAILED,
    (_S.STARTING, _E.STOP): _S.STOPPING,
    (_S.READY, _E.EXITED): _S.FAILED,
    (_S.READY, _E.STOP): _S.STOPPING,
    (_S.FAILED, _E.RETRY): _S.STARTING,
    (_S.FAILED, _E.STOP): _S.STOPPED,
    (_S.STOPPING, _E.LOADED): _S.STOPPING,
    (_S.STOPPING, _E.EXITED): _S.STOPPED,
    (_S.STOPPING, _E.STOP): _S.STOPPING,
}
"""Every legal step; anything else is a bug of the caller and raises LocalMisuse."""


@dataclass
class Supervision:
    """State of one worker."""

    delays: Delays
    state: WorkerState = WorkerState.STOPPED
    held: bool = False
    """The cloud has been told, or must be told when it connects, that this node cannot draft."""
    retry_at: float | None = None
    _ready_at: float = field(default=0.0, repr=False)

    def on(self, event: WorkerEvent, now: float) -> tuple[Action, ...]:
        """Apply one event at monotonic time `now`, seconds. Raises LocalMisuse where the table has no such step."""
        before = self.state
        after = TRANSITIONS.get((before, event))
        if after is None:
            raise LocalMisuse(f"a worker that is {before} cannot take the event {event}")
        self.state = after
        self.retry_at = None
        if after is before:
            return ()
        match after:
            case WorkerState.STARTING:
                return (Action.SPAWN,)
            case WorkerState.READY:
                self._ready_at = now
                resumed, self.held = self.held, False
                return (Action.RESUME,) if resumed else ()
            case WorkerState.FAILED:
                if before is WorkerState.READY and now - self._ready_at >= STABLE_S:
                    self.delays.reset()
                self.retry_at = now + self.delays.next()
                told, self.held = self.held, True
                return () if told else (Action.HOLD,)
            case WorkerState.STOPPING:
                return (Action.TERMINATE,)
            case WorkerState.STOPPED:
                return ()
