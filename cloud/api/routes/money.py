"""What the routes about money share: who asks, days, and amounts."""

from typing import Final

from starlette.requests import Request

from cloud.api.accounts.keys import ApiKey
from cloud.api.accounts.money import Nano, nano
from cloud.api.identity.account import Role
from cloud.api.reports.ports import DAY_S
from cloud.api.routes.pages import number_of
from cloud.api.routes.signed_in import operator, signed_in
from cloud.api.treasury import Treasury
from shared.errors import InvalidInput
from shared.ids import AccountId

DEPLOYMENT: Final = AccountId("deployment")
"""Whoever acts with an API key that belongs to no account."""
DAYS: Final = 30
DAYS_MAX: Final = 400


def treasury(request: Request) -> Treasury:
    found: Treasury = request.app.state.treasury
    return found


def account(request: Request, role: Role) -> AccountId:
    """Raises `SessionOver` and `Forbidden`."""
    return signed_in(request, role).account.id


def person(request: Request) -> AccountId:
    """The operator, as one of the two that a payout needs: their account, by session or by API key. All keys without an
    account are one person, the deployment, since anybody may hold several of them.
    """
    by = operator(request)
    key: ApiKey | None = getattr(request.state, "api_key", None)
    if key is None:
        return AccountId(by)
    return key.account if key.account is not None else DEPLOYMENT


def span(request: Request) -> tuple[int, int]:
    """From the query parameter `days`: so many whole days, UTC, of which today is the last."""
    days = number_of(request, "days", DAYS, DAYS_MAX)
    tomorrow = (now(request) // DAY_S + 1) * DAY_S
    return tomorrow - days * DAY_S, tomorrow


def now(request: Request) -> int:
    return int(treasury(request).clock())


def amount_of(text: str, name: str) -> Nano:
    """Of a field of a body; may begin with a minus. Raises `InvalidInput`."""
    try:
        return Nano(-nano(text[1:])) if text.startswith("-") else nano(text)
    except ValueError as error:
        raise InvalidInput(f"Invalid value for `{name}`: {error}.", param=name) from None
