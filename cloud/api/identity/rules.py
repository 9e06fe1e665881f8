"""Rules that both stores keep, in one place, with the words in which they refuse."""

from typing import Final

from cloud.api.audit.entry import SYSTEM, Actor, Entry
from cloud.api.identity.account import Account
from shared.errors import Conflict, Forbidden, NotFound, Unavailable, WrongCredentials
from shared.ids import AccountId

KEEP_SESSIONS_S: Final = 86_400
"""How long a session is kept after it expired."""
KEEP_GRANTS_S: Final = 3600
"""How long a device code is kept after it expired."""


def email_taken() -> Conflict:
    return Conflict("There is an account with this e-mail address already: sign in.", param="email")


def no_account() -> NotFound:
    return NotFound("There is no account with this id.")


def no_node() -> NotFound:
    return NotFound("There is no node with this id.")


def too_many_codes() -> Unavailable:
    return Unavailable("Too many nodes wait to be paired at the moment. Try again in a few minutes.")


def check_holder(account: Account | None) -> None:
    """Whether an account may get API keys. Raises `NotFound` and `Forbidden`."""
    if account is None:
        raise no_account()
    if not account.may("developer"):
        raise Forbidden("This account may have no API keys: it is disabled, or no developer's.")


def check_sign_in(account: Account | None) -> None:
    """Whether a session may begin. Raises `WrongCredentials`, which does not tell why."""
    if account is None or not account.active:
        raise wrong_credentials()


def wrong_credentials() -> WrongCredentials:
    return WrongCredentials("E-mail address and password do not fit together, or the account is disabled.")


def ended_with(account: AccountId, action: str, subject: str, by: Actor | None, at: int) -> Entry:
    """What the audit log says of a key or a node that ends because of a change of its account."""
    return Entry(at=at, actor=by or SYSTEM, action=action, subject=subject, detail={"account": account})
