"""An account: a person or an organisation, what it may do, and whether it still may."""

import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal, get_args

from cloud.api.audit.entry import Actor, Entry
from shared.errors import Conflict, InvalidInput
from shared.ids import AccountId

Role = Literal["developer", "owner", "operator"]
"""`developer` uses the API and pays, `owner` has nodes and is paid, `operator` runs the deployment."""
ROLES: Final[tuple[Role, ...]] = get_args(Role)
Ends = Literal["sessions", "keys", "nodes"]
EMAIL_MAX = 254


class AccountState(StrEnum):
    """Whether anybody may act for the account."""

    ACTIVE = "active"
    DISABLED = "disabled"
    """Nobody signs in; its sessions have ended, its keys and nodes were revoked. Its money is still there."""


class AccountEvent(StrEnum):
    """What an operator does to it."""

    DISABLE = "disable"
    ENABLE = "enable"


_S, _E = AccountState, AccountEvent

TRANSITIONS: Final[dict[tuple[AccountState, AccountEvent], AccountState]] = {
    (_S.ACTIVE, _E.DISABLE): _S.DISABLED,
    (_S.DISABLED, _E.ENABLE): _S.ACTIVE,
}
"""Every legal step. What disabling has ended stays ended when the account is enabled again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """`created_at` in seconds since 1970."""

    id: AccountId
    email: str
    """As `email_of` makes it: two that differ in case only are the same."""
    name: str
    roles: frozenset[Role]
    state: AccountState = AccountState.ACTIVE
    created_at: int
    password: str | None = field(default=None, repr=False)
    """An argon2id hash; none lets nobody sign in."""

    @property
    def active(self) -> bool:
        return self.state is AccountState.ACTIVE

    def may(self, role: Role) -> bool:
        return self.active and role in self.roles


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountChange:
    """What an account becomes, what ends with that, and what the audit log says of it: applied as a whole."""

    account: Account
    entry: Entry | None
    ends: frozenset[Ends] = frozenset()
    keep: str | None = None
    """The id of a session that does not end with the others."""


def new_account(email: str, name: str, roles: Iterable[Role], now: float, password: str | None = None) -> Account:
    """Raises `InvalidInput` when the e-mail address is none."""
    return Account(
        id=AccountId(f"acct_{secrets.token_hex(8)}"),
        email=email_of(email),
        name=name,
        roles=frozenset(roles),
        created_at=int(now),
        password=password,
    )


def created(account: Account, by: Actor) -> Entry:
    """What the audit log says of a new account."""
    detail = {"email": account.email, "roles": ordered(account.roles)}
    return Entry(at=account.created_at, actor=by, action="account.created", subject=account.id, detail=detail)


def advance(account: Account, event: AccountEvent, by: Actor, now: float) -> AccountChange:
    """Raises `Conflict` where the table has no such step."""
    after = TRANSITIONS.get((account.state, event))
    if after is None:
        raise Conflict(f"The account {account.email} is {account.state} already.")
    ends: frozenset[Ends] = frozenset(get_args(Ends)) if after is AccountState.DISABLED else frozenset()
    entry = Entry(at=int(now), actor=by, action=f"account.{event}d", subject=account.id)
    return AccountChange(account=replace(account, state=after), entry=entry, ends=ends)


def with_roles(account: Account, roles: Iterable[Role], by: Actor, now: float) -> AccountChange:
    """What a role allowed ends with it: a developer's keys, an owner's nodes."""
    after = frozenset(roles)
    if after == account.roles:
        return AccountChange(account=account, entry=None)
    lost = account.roles - after
    pairs: tuple[tuple[Role, Ends], ...] = (("developer", "keys"), ("owner", "nodes"))
    detail = {"before": ordered(account.roles), "after": ordered(after)}
    return AccountChange(
        account=replace(account, roles=after),
        entry=Entry(at=int(now), actor=by, action="account.roles_changed", subject=account.id, detail=detail),
        ends=frozenset(ended for role, ended in pairs if role in lost),
    )


def with_password(account: Account, password: str, by: Actor, now: float, keep: str | None = None) -> AccountChange:
    """All sessions but `keep` end: whoever knew the old password may have some."""
    entry = Entry(at=int(now), actor=by, action="account.password_changed", subject=account.id)
    changed = replace(account, password=password)
    return AccountChange(account=changed, entry=entry, ends=frozenset({"sessions"}), keep=keep)


def email_of(text: str) -> str:
    """The one form of an e-mail address: letter case counts in neither part. Raises `InvalidInput`."""
    email = unicodedata.normalize("NFKC", text.strip()).casefold()
    local, at, domain = email.rpartition("@")
    visible = email.isprintable() and not any(character.isspace() or character in '<>,;:"' for character in email)
    if not at or not local or "@" in local or "." not in domain.strip(".") or not visible or len(email) > EMAIL_MAX:
        raise InvalidInput("`email` is no e-mail address: write it like alice@example.com.", param="email")
    return email


def ordered(roles: Iterable[Role]) -> list[Role]:
    """In the order of `ROLES`, for people and programs to read."""
    given = set(roles)
    return [role for role in ROLES if role in given]
