"""The life of a reservation: money set aside for one request, as a table of states."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from cloud.api.accounts.money import Nano
from shared.ids import AccountId, GatewayId


class State(StrEnum):
    """Of a request, as the books see it."""

    UNKNOWN = "unknown"
    HELD = "held"
    RELEASED = "released"
    SETTLED = "settled"


Step = Literal["reserve", "release", "settle"]

STEPS: Final[Mapping[tuple[State, Step], State]] = {
    (State.UNKNOWN, "reserve"): State.HELD,
    (State.UNKNOWN, "settle"): State.SETTLED,
    (State.HELD, "release"): State.RELEASED,
    (State.HELD, "settle"): State.SETTLED,
    (State.RELEASED, "settle"): State.SETTLED,
}
"""A settlement counts also after a release, as the work was done. Every other step is told twice or too late."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """One request's worst case; times in seconds since 1970."""

    request_id: str
    account: AccountId
    amount: Nano
    gateway: GatewayId
    """Who renews it while the request is at work."""
    expires_at: int
    """From then on anybody may release it."""
    state: State = State.UNKNOWN


def advance(state: State, step: Step) -> State | None:
    """The next state; none when the step changes nothing any more."""
    return STEPS.get((state, step))
