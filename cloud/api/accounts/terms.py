"""Terms of a key as people give them, on the command line and in the admin API, and as they are shown again."""

import re
import time
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from cloud.api.accounts.accounts import Statement
from cloud.api.accounts.keys import DEFAULT_SCOPES, SCOPES, Privacy, Scope, Terms
from cloud.api.accounts.money import Nano, dollars, nano
from cloud.api.bodies import validated
from shared.errors import InvalidInput
from shared.ids import AccountId

MOST = 10**9
"""Largest limit that can be set."""
_SPAN = re.compile(r"([1-9]\d{0,5})([hd])", re.ASCII)
_HOUR_S = {"h": 3600, "d": 86400}


class TermsInput(BaseModel):
    """What may be set when a key is made; null is as if it were not given."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Field(min_length=1)] | None = None
    expires_at: Annotated[int, Field(ge=1, lt=2**40)] | None = None
    """Seconds since 1970."""
    requests_per_minute: Annotated[int, Field(ge=1, le=MOST)] | None = None
    tokens_per_minute: Annotated[int, Field(ge=1, le=MOST)] | None = None
    concurrent_streams: Annotated[int, Field(ge=1, le=MOST)] | None = None
    monthly_budget: str | None = None
    """Dollars, like "12.50"."""
    privacy: Privacy | None = None

    @field_validator("name")
    @classmethod
    def _can_be_shown(cls, value: str) -> str:
        if not value.isprintable() or not value.strip():
            raise ValueError("it must have visible characters only")
        return value.strip()

    @field_validator("monthly_budget")
    @classmethod
    def _is_money(cls, value: str | None) -> str | None:
        if value is not None:
            nano(value)
        return value

    def to_terms(self) -> Terms:
        given = self.model_dump(exclude={"scopes", "monthly_budget", "account"})
        budget = Nano(nano(self.monthly_budget)) if self.monthly_budget is not None else None
        scopes = frozenset(self.scopes) if self.scopes else DEFAULT_SCOPES
        return Terms(**given, scopes=scopes, monthly_budget=budget)


class KeyInput(TermsInput):
    """The same as an operator gives it: with whose the key is."""

    account: Annotated[str, Field(min_length=1, max_length=254)] | None = None
    """Id of an account; without it the key is the deployment's own."""


def read_terms(data: dict[str, Any], now: float) -> Terms:
    """Raises `InvalidInput` that names the first field that is wrong."""
    return _in_future(validated(TermsInput, data).to_terms(), now)


def read_key(data: dict[str, Any], now: float) -> tuple[Terms, AccountId | None]:
    """Terms, and the account that the key is for, as an operator gives them. Raises as `read_terms` does."""
    given = validated(KeyInput, data)
    terms = _in_future(given.to_terms(), now)
    if given.account is None:
        return terms, None
    return no_admins(terms), AccountId(given.account)


def read_own_terms(data: dict[str, Any], now: float) -> Terms:
    """As `read_terms`, for a key that an account makes for itself. Also raises `InvalidInput` for the scope admin."""
    return no_admins(read_terms(data, now))


def no_admins(terms: Terms) -> Terms:
    """Raises `InvalidInput` for the scope admin, which no key of an account has."""
    if "admin" in terms.scopes:
        raise InvalidInput("A key of an account cannot have the scope `admin`: operators sign in.", param="scopes")
    return terms


def _in_future(terms: Terms, now: float) -> Terms:
    if terms.expires_at is not None and terms.expires_at <= now:
        raise InvalidInput("`expires_at` is in the past.", param="expires_at")
    return terms


def read_expiry(text: str, now: float) -> int:
    """`30d` and `12h` from now, or a day like 2027-01-31 (UTC), at whose end the key expires. Raises `InvalidInput`."""
    if match := _SPAN.fullmatch(text):
        return int(now) + int(match[1]) * _HOUR_S[match[2]]
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidInput(f"{text!r} is no time: use 30d, 12h or a day like 2027-01-31.") from None
    return int(day.timestamp()) + 86400


def key_object(statement: Statement, now: float) -> dict[str, Any]:
    """A key as JSON, without its secret; money in dollars, as text."""
    key, terms = statement.key, statement.key.terms
    return {
        "id": key.id,
        "object": "api_key",
        "name": terms.name,
        "start": key.start,
        "state": key.state(now),
        "in_settings": key.in_settings,
        "scopes": [scope for scope in SCOPES if scope in terms.scopes],
        "created_at": key.created_at,
        "expires_at": terms.expires_at,
        "revoked_at": key.revoked_at,
        "requests_per_minute": terms.requests_per_minute,
        "tokens_per_minute": terms.tokens_per_minute,
        "concurrent_streams": terms.concurrent_streams,
        "monthly_budget": None if terms.monthly_budget is None else dollars(terms.monthly_budget),
        "spent_this_month": dollars(statement.spent),
        "privacy": terms.privacy,
        "account": key.account,
    }


def day(at: int) -> str:
    """A day as people read it, UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))
