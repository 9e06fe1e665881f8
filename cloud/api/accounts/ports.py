"""What accounts need from a store. Both adapters pass the same tests (tests/cloud/api/accounts)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import ApiKey, KeyId, NewKey
from cloud.api.accounts.money import Nano
from cloud.api.audit.entry import Entry


@dataclass(frozen=True, slots=True)
class Changes:
    """Keys that changed, by digest, and the revision that they bring the reader to."""

    revision: int
    keys: Mapping[bytes, ApiKey]


class AccountStore(Protocol):
    """Every method may raise `shared.errors.Unavailable`; nothing was done then, or all of it."""

    async def add(self, new: NewKey, entry: Entry | None = None) -> None:
        """`entry` is written to the audit log together with the key. Raises `NotFound` when the key's account does not
        exist, and `Forbidden` when it may have no keys.
        """
        ...

    async def revoke(self, key: KeyId, at: int, entry: Entry | None = None) -> ApiKey | None:
        """The revoked key; none when there is no such key. A second time changes and writes nothing."""
        ...

    async def changes(self, since: int) -> Changes:
        """Keys added or revoked after revision `since`; 0 gives all."""
        ...

    async def record(self, charges: Sequence[Charge]) -> Mapping[tuple[KeyId, str], Nano]:
        """Write charges down, each request once however often it is told; gives the new sums of the (key, month)
        pairs that they are for.
        """
        ...

    async def spending(self, month: str) -> Mapping[KeyId, Nano]:
        """Sum of the charges of every key that has any in `month`."""
        ...

    async def charges(self, key: KeyId, limit: int) -> Sequence[Charge]:
        """The latest charges of a key, newest first."""
        ...
