"""The life of a node's session as one table: (role, state, message type) to next state.

A state means what this end has sent or read so far. Frames keep their order in each direction, so the two
ends differ only by what is in flight; `_IN_FLIGHT` holds the rows that exist for that reason alone.
"""

from enum import StrEnum
from typing import get_args

from shared.wire.messages import (
    Advance,
    Beat,
    Challenge,
    Close,
    CloudMessage,
    Demand,
    Draft,
    Drain,
    Earnings,
    Hello,
    Hold,
    Message,
    NodeMessage,
    Open,
    Proof,
    Refuse,
    Resume,
    Welcome,
)


class Role(StrEnum):
    """Which end of the connection."""

    NODE = "node"
    CLOUD = "cloud"


class State(StrEnum):
    """Where a session stands, the same names at both ends."""

    CONNECTING = "connecting"
    """The socket is open, nothing was said."""
    GREETED = "greeted"
    """After `Hello`."""
    CHALLENGED = "challenged"
    """After `Challenge`."""
    PROVING = "proving"
    """After `Proof`, while the cloud checks it."""
    OPEN = "open"
    """After `Welcome`: streams come and go."""
    HOLDING = "holding"
    """After `Hold`: no stream is drafted for."""
    DRAINING = "draining"
    """After `Drain`: running streams end, no new one begins."""
    CLOSED = "closed"
    """Nothing more may be sent or read."""


SENDS: dict[Role, frozenset[type[Message]]] = {
    Role.NODE: frozenset(get_args(NodeMessage)),
    Role.CLOUD: frozenset(get_args(CloudMessage)),
}
"""Message types that each role sends; it reads those of the other."""

_BOTH: dict[State, dict[type[Message], State]] = {
    State.CONNECTING: {Hello: State.GREETED, Refuse: State.CLOSED},
    State.GREETED: {Challenge: State.CHALLENGED, Refuse: State.CLOSED},
    State.CHALLENGED: {Proof: State.PROVING, Refuse: State.CLOSED},
    State.PROVING: {Welcome: State.OPEN, Refuse: State.CLOSED},
    State.OPEN: {
        Draft: State.OPEN,
        Beat: State.OPEN,
        Hold: State.HOLDING,
        Drain: State.DRAINING,
        Open: State.OPEN,
        Advance: State.OPEN,
        Close: State.OPEN,
        Demand: State.OPEN,
        Earnings: State.OPEN,
        Refuse: State.CLOSED,
    },
    State.HOLDING: {
        Beat: State.HOLDING,
        Hold: State.HOLDING,
        Resume: State.OPEN,
        Drain: State.DRAINING,
        Close: State.HOLDING,
        Demand: State.HOLDING,
        Earnings: State.HOLDING,
        Refuse: State.CLOSED,
    },
    State.DRAINING: {
        Draft: State.DRAINING,
        Beat: State.DRAINING,
        Hold: State.DRAINING,
        Advance: State.DRAINING,
        Close: State.DRAINING,
        Demand: State.DRAINING,
        Earnings: State.DRAINING,
        Refuse: State.CLOSED,
    },
    State.CLOSED: {},
}

_IN_FLIGHT: dict[State, dict[type[Message], State]] = {
    State.HOLDING: {Open: State.HOLDING, Advance: State.HOLDING},
    State.DRAINING: {Open: State.DRAINING},
}
"""Only for the node: sent by a cloud that had not yet read its `Hold` or `Drain`; read and ignored."""

TABLE: dict[tuple[Role, State, type[Message]], State] = {
    (role, state, message): after
    for role in Role
    for rows in ((_BOTH, _IN_FLIGHT) if role is Role.NODE else (_BOTH,))
    for state, row in rows.items()
    for message, after in row.items()
}
"""All that is legal. What is not in here is `LocalMisuse` when sent and `ProtocolError` when read."""
