"""A device code (RFC 8628): asked for by a node, approved by a person, taken up by the node."""

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal, assert_never

from shared.errors import Conflict
from shared.ids import AccountId, NodeId
from shared.keys import node_id

LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""Twenty consonants (RFC 8628, 6.1): no words come of them, and none is taken for another or for a digit."""
CODE_LETTERS: Final = 8
SLOWER_S: Final = 5
"""What each `slow_down` adds to the interval (RFC 8628, 3.5)."""
SLACK_S: Final = 1
"""So much earlier than the interval a question may come: times here are whole seconds."""

Answer = Literal["pending", "slow_down", "denied", "expired", "approved"]


class GrantState(StrEnum):
    """Where a device code is in its life."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    PAIRED = "paired"
    """The node has taken it up and belongs to the account. It may ask again: the answer may have been lost."""
    EXPIRED = "expired"


class GrantEvent(StrEnum):
    """What happens to it."""

    APPROVE = "approve"
    DENY = "deny"
    EXPIRE = "expire"
    REDEEM = "redeem"


_S, _E = GrantState, GrantEvent

TRANSITIONS: Final[dict[tuple[GrantState, GrantEvent], GrantState]] = {
    (_S.PENDING, _E.APPROVE): _S.APPROVED,
    (_S.PENDING, _E.DENY): _S.DENIED,
    (_S.PENDING, _E.EXPIRE): _S.EXPIRED,
    (_S.APPROVED, _E.DENY): _S.DENIED,
    (_S.APPROVED, _E.EXPIRE): _S.EXPIRED,
    (_S.APPROVED, _E.REDEEM): _S.PAIRED,
    (_S.PAIRED, _E.REDEEM): _S.PAIRED,
}
"""Every legal step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """Times in seconds since 1970; without the device code, of which only the digest is kept."""

    user_code: str
    """As it is shown, with its hyphen."""
    public_key: bytes
    name: str
    """What the node calls itself."""
    page: str
    """Where a person types the user code in: the `verification_uri` that the node was told, and signs."""
    address: str
    """Where the question came from."""
    created_at: int
    expires_at: int
    interval_s: int
    state: GrantState = GrantState.PENDING
    account: AccountId | None = None
    """Who approved or denied it."""
    polled_at: int | None = None

    @property
    def node(self) -> NodeId:
        return node_id(self.public_key)


@dataclass(frozen=True, slots=True)
class NewGrant:
    """A grant with its device code, which only the node learns."""

    grant: Grant
    device_code: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        return digest_of(self.device_code)


def new_grant(
    public_key: bytes, name: str, page: str, address: str, now: float, *, lasts_s: int, interval_s: int
) -> NewGrant:
    letters = "".join(secrets.choice(LETTERS) for _ in range(CODE_LETTERS))
    grant = Grant(
        user_code=_shown(letters),
        public_key=public_key,
        name=name,
        page=page,
        address=address,
        created_at=int(now),
        expires_at=int(now) + lasts_s,
        interval_s=interval_s,
    )
    return NewGrant(grant, secrets.token_urlsafe(32))


def digest_of(device_code: str) -> bytes:
    return hashlib.sha256(device_code.encode()).digest()


def read_user_code(text: str) -> str | None:
    """The code that a person meant: case, spaces and hyphens do not count. None when it can be no code."""
    letters = "".join(letter for letter in text.upper() if letter.isalnum())
    if len(letters) != CODE_LETTERS or any(letter not in LETTERS for letter in letters):
        return None
    return _shown(letters)


def at(grant: Grant, now: float) -> Grant:
    """The grant at this time: one that was not taken up in time is expired."""
    after = TRANSITIONS.get((grant.state, GrantEvent.EXPIRE))
    return replace(grant, state=after) if after is not None and now >= grant.expires_at else grant


def decide(grant: Grant, event: Literal[GrantEvent.APPROVE, GrantEvent.DENY], account: AccountId, now: float) -> Grant:
    """A person's decision. The same one again changes nothing. Raises `Conflict` when it comes too late."""
    grant = at(grant, now)
    wanted = GrantState.APPROVED if event is GrantEvent.APPROVE else GrantState.DENIED
    if grant.state is wanted and grant.account == account:
        return grant
    after = TRANSITIONS.get((grant.state, event))
    if after is None or grant.account not in (None, account):
        raise Conflict(_too_late(grant.state))
    return replace(grant, state=after, account=account)


def poll(grant: Grant, now: float) -> tuple[Grant, Answer]:
    """The node asks, having proved its key. One that asks too soon is told to slow down, whatever the state."""
    grant = at(grant, now)
    asked = grant.polled_at
    grant = replace(grant, polled_at=int(now))
    if asked is not None and int(now) - asked < grant.interval_s - SLACK_S:
        return replace(grant, interval_s=grant.interval_s + SLOWER_S), "slow_down"
    match grant.state:
        case GrantState.PENDING:
            return grant, "pending"
        case GrantState.APPROVED | GrantState.PAIRED:
            return replace(grant, state=TRANSITIONS[grant.state, GrantEvent.REDEEM]), "approved"
        case GrantState.DENIED:
            return grant, "denied"
        case GrantState.EXPIRED:
            return grant, "expired"
        case _:
            assert_never(grant.state)


def _shown(letters: str) -> str:
    return f"{letters[:4]}-{letters[4:]}"


def _too_late(state: GrantState) -> str:
    match state:
        case GrantState.PENDING:
            return "This code is waiting for another account."
        case GrantState.APPROVED | GrantState.PAIRED:
            return "This code has been approved already."
        case GrantState.DENIED:
            return "This code has been denied. Run `nexus agent pair` again for a new one."
        case GrantState.EXPIRED:
            return "This code has expired. Run `nexus agent pair` again for a new one."
        case _:
            assert_never(state)
