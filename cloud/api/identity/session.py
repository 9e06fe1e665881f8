"""A session: what a person who signed in holds, and when it ends."""

import secrets
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from cloud.api.accounts.keys import digest, new_secret
from shared.errors import LocalMisuse
from shared.ids import AccountId

PREFIX: Final = "nxs_"
CLIENT_MAX = 200


class SessionState(StrEnum):
    """Whether the token opens anything."""

    ACTIVE = "active"
    EXPIRED = "expired"
    ENDED = "ended"
    """Signed out, or ended by its account, an operator, or a new password."""


class SessionEvent(StrEnum):
    """What ends a session."""

    EXPIRE = "expire"
    END = "end"


_S, _E = SessionState, SessionEvent

TRANSITIONS: Final[dict[tuple[SessionState, SessionEvent], SessionState]] = {
    (_S.ACTIVE, _E.EXPIRE): _S.EXPIRED,
    (_S.ACTIVE, _E.END): _S.ENDED,
}
"""Every legal step; nothing brings a session back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """Times in seconds since 1970."""

    id: str
    account: AccountId
    client: str
    """What the client calls itself, for its owner to recognise it."""
    created_at: int
    expires_at: int
    ended_at: int | None = None

    def state(self, now: float) -> SessionState:
        if self.ended_at is not None:
            return SessionState.ENDED
        if now >= self.expires_at:
            return TRANSITIONS[SessionState.ACTIVE, SessionEvent.EXPIRE]
        return SessionState.ACTIVE

    def end(self, now: float) -> "Session":
        """Raises `LocalMisuse` for one that is over already."""
        if (self.state(now), SessionEvent.END) not in TRANSITIONS:
            raise LocalMisuse(f"A session that is {self.state(now)} cannot end.")
        return replace(self, ended_at=int(now))


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session with its token, which is shown once and never stored."""

    session: Session
    token: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        return digest(self.token.encode())


def new_session(account: AccountId, client: str, now: float, lasts_s: int) -> NewSession:
    """`nxs_` and 32 random bytes."""
    shown = "".join(character for character in client if character.isprintable())[:CLIENT_MAX]
    id_ = f"sess_{secrets.token_hex(8)}"
    at = int(now)
    session = Session(id=id_, account=account, client=shown, created_at=at, expires_at=at + lasts_s)
    return NewSession(session, new_secret(PREFIX))
