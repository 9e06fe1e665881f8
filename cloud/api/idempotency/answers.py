"""What is kept of an answer, and what a request finds that asks for it again: pure decisions."""

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal

from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import NOTHING, Nano
from shared.errors import InvalidInput

MOST_CREDITED = 5
"""Attempts that may go on with what the ones before them have paid; a client that tries more often pays again."""
SEED_BITS = 53
"""As in `cloud.api.generation`."""
_LABEL = re.compile(rb"[\x21-\x7e]{1,255}")
_COUNT = re.compile(rb"\d{1,3}")
Header = tuple[bytes, bytes]
State = Literal["running", "done", "left"]
"""`done` has the whole answer. `left` has none, as the caller went away or it was too large; what was paid counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A request as far as it matters here."""

    key: KeyId
    path: str
    body: bytes
    idempotency_key: bytes | None = None
    retry: int | None = None
    """How often the client has tried before; none when it does not say."""
    seed: int | None = None

    def fingerprint(self) -> bytes:
        """The same for the same caller, address and body."""
        return _digest(self.key.encode(), self.path.encode(), self.body)

    def claim(self) -> bytes | None:
        """The same for the same caller and `Idempotency-Key`."""
        return None if self.idempotency_key is None else _digest(self.key.encode(), self.idempotency_key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One row. Times are seconds since 1970."""

    id: str
    fingerprint: bytes
    claim: bytes | None
    state: State
    owner: str
    """The gateway that works or worked on it."""
    lease_until: int
    """Until when a running one is believed to run, unless its owner renews that."""
    expires_at: int
    ended_at: int | None = None
    retries: int = 0
    """The highest retry that was answered with it."""
    attempts: int = 0
    """How often somebody went on where another had left."""
    seed: int = 0
    """With the same seed the answer is the same one, whoever asks for it anew."""
    billed: Nano = NOTHING
    """Paid for an answer that nobody has."""
    headers: tuple[Header, ...] = ()
    content: bytes | None = None

    @property
    def size(self) -> int:
        return len(self.content or b"")

    def over(self, now: float) -> bool:
        """As if it were not there: it has expired, and nobody works on it any more."""
        return self.expires_at <= now and (self.state != "running" or self.lease_until <= now)


class Found(Enum):
    """What a claim comes upon."""

    NEW = auto()
    REPLAY = auto()
    TAKE_OVER = auto()
    """Nobody works on it any more: do it again, with the same seed and what was paid."""
    BUSY = auto()
    CONFLICT = auto()


def decide(found: Kept | None, new: Kept, now: float) -> Found:
    """What the claim `new` comes upon when `found` is there already."""
    if found is None or found.over(now):
        return Found.NEW
    if found.fingerprint != new.fingerprint:
        return Found.CONFLICT
    if found.state == "done":
        return Found.REPLAY
    if found.state == "running" and found.owner != new.owner and found.lease_until > now:
        return Found.BUSY
    return Found.TAKE_OVER


def taken_over(found: Kept, new: Kept) -> Kept:
    """The row of `new`, going on where `found` was left."""
    attempts = found.attempts + 1
    billed = found.billed if attempts <= MOST_CREDITED else NOTHING
    return replace(new, id=found.id, seed=found.seed, billed=billed, attempts=attempts)


def call_from(headers: Sequence[Header], key: KeyId, path: str, body: bytes, seed: int | None) -> Call:
    """Raises `InvalidInput` for an `Idempotency-Key` that is none; a strange retry count counts as not given."""
    given = {name: value.strip() for name, value in reversed(headers)}
    label, count = given.get(b"idempotency-key"), given.get(b"x-stainless-retry-count", b"")
    if label is not None and not _LABEL.fullmatch(label):
        raise InvalidInput("`Idempotency-Key` must have 1 to 255 visible ASCII characters.")
    retry = int(count) if _COUNT.fullmatch(count) else None
    return Call(key=key, path=path, body=body, idempotency_key=label, retry=retry, seed=seed)


def new_id() -> str:
    return f"ans_{secrets.token_hex(12)}"


def _digest(*parts: bytes) -> bytes:
    """Each part with its length before it, so that no two lists of parts give one digest."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return hashed.digest()
