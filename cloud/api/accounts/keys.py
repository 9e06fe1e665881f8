"""API keys: what one is made of, what it allows, and how it is told apart from others."""

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Final, Literal, NewType, get_args

from cloud.api.accounts.money import Nano
from shared.ids import AccountId

KeyId = NewType("KeyId", str)
"""The public name of a key; it opens nothing."""
Scope = Literal["inference", "models", "admin"]
State = Literal["active", "expired", "revoked"]
Privacy = Literal["verifier_only", "own_nodes", "trusted", "any"]

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
PRIVACIES: Final[tuple[Privacy, ...]] = get_args(Privacy)
DEFAULT_SCOPES: Final[frozenset[Scope]] = frozenset({"inference", "models"})
PREFIX = "nx_"
_SECRET_BYTES = 32
_SHOWN = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What a key allows. None = no limit; times are seconds since 1970, the budget is for each calendar month, UTC."""

    name: str
    scopes: frozenset[Scope] = DEFAULT_SCOPES
    expires_at: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_streams: int | None = None
    """Choices being generated at once: a request with `n` of 4 has four."""
    monthly_budget: Nano | None = None
    privacy: Privacy | None = None
    """Tier of requests that name none; none = as the deployment does by default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey:
    """A key as the gateway knows it: without its secret."""

    id: KeyId
    start: str
    """First characters of the secret, by which a person recognises it."""
    terms: Terms
    created_at: int
    revoked_at: int | None = None
    in_settings: bool = False
    """Given in the gateway's settings: without limits, and not to be revoked through the API."""
    account: AccountId | None = None
    """Whose it is, and who pays for what it does; none = the deployment's own."""

    def allows(self, scope: Scope) -> bool:
        return scope in self.terms.scopes

    def state(self, now: float) -> State:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.terms.expires_at is not None and now >= self.terms.expires_at else "active"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key with its secret, which is shown once and never stored."""

    key: ApiKey
    secret: str = field(repr=False)

    @property
    def digest(self) -> bytes:
        return digest(self.secret.encode())


def new_key(terms: Terms, now: float, account: AccountId | None = None) -> NewKey:
    """A key with a fresh secret."""
    secret = new_secret(PREFIX)
    start = secret[: len(PREFIX) + _SHOWN]
    id_ = KeyId(f"key_{secrets.token_hex(8)}")
    return NewKey(ApiKey(id=id_, start=start, terms=terms, created_at=int(now), account=account), secret)


def new_secret(prefix: str) -> str:
    """The prefix and 32 random bytes in base64url (RFC 4648, section 5, without padding)."""
    return prefix + base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=").decode()


def key_in_settings(secret: str) -> ApiKey:
    """A key that the settings give: it may do everything but manage keys."""
    found = digest(secret.encode())
    # Named after its digest, so that its usage is found again after a restart.
    terms = Terms(name="settings")
    return ApiKey(id=KeyId(f"set_{found.hex()[:16]}"), start="", terms=terms, created_at=0, in_settings=True)


def digest(secret: bytes) -> bytes:
    """SHA-256. Secrets have 256 random bits, so nothing slower is needed to keep a stolen table from being tried."""
    return hashlib.sha256(secret).digest()
