"""Keeps accounts in this process only, for gateways without a database."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import ApiKey, KeyId, NewKey
from cloud.api.accounts.money import Nano
from cloud.api.accounts.ports import Changes
from cloud.api.audit.entry import Entry
from cloud.api.audit.memory import MemoryAudit
from shared.errors import NotFound
from shared.ids import AccountId

CHARGES_KEPT = 10_000
"""Latest charges that can be looked at; the sums are of all."""


class MemoryAccounts:
    """An `AccountStore`. `check_holder` raises for an account that may have no keys; whoever keeps accounts sets it."""

    def __init__(self, audit: MemoryAudit | None = None) -> None:
        self._audit = audit or MemoryAudit()
        self.check_holder: Callable[[AccountId], None] = _nobody
        self._keys: dict[KeyId, tuple[bytes, ApiKey, int]] = {}
        self._revision = 0
        self._charges: dict[str, Charge] = {}
        self._sums: dict[tuple[KeyId, str], Nano] = {}

    async def add(self, new: NewKey, entry: Entry | None = None) -> None:
        if new.key.account is not None:
            self.check_holder(new.key.account)
        self._put(new.digest, new.key)
        self._audit.append(entry)

    async def revoke(self, key: KeyId, at: int, entry: Entry | None = None) -> ApiKey | None:
        if key not in self._keys:
            return None
        digest, found, _ = self._keys[key]
        if found.revoked_at is None:
            found = replace(found, revoked_at=at)
            self._put(digest, found)
            self._audit.append(entry)
        return found

    def revoke_of(self, account: AccountId, at: int) -> list[KeyId]:
        """Revoke every key of an account; gives those that were not revoked before."""
        found = [
            (digest, key) for digest, key, _ in self._keys.values() if key.account == account and key.revoked_at is None
        ]
        for digest, key in found:
            self._put(digest, replace(key, revoked_at=at))
        return [key.id for _, key in found]

    async def changes(self, since: int) -> Changes:
        return Changes(self._revision, {digest: key for digest, key, at in self._keys.values() if at > since})

    async def record(self, charges: Sequence[Charge]) -> Mapping[tuple[KeyId, str], Nano]:
        for charge in charges:
            if charge.request_id in self._charges:
                continue
            self._charges[charge.request_id] = charge
            place = charge.key_id, charge.month
            self._sums[place] = Nano(self._sums.get(place, 0) + charge.cost)
        while len(self._charges) > CHARGES_KEPT:
            del self._charges[next(iter(self._charges))]
        return {place: self._sums[place] for place in {(c.key_id, c.month) for c in charges}}

    async def spending(self, month: str) -> Mapping[KeyId, Nano]:
        return {key: sum_ for (key, of), sum_ in self._sums.items() if of == month}

    async def charges(self, key: KeyId, limit: int) -> Sequence[Charge]:
        return [charge for charge in reversed(self._charges.values()) if charge.key_id == key][:limit]

    def _put(self, digest: bytes, key: ApiKey) -> None:
        self._revision += 1
        self._keys[key.id] = digest, key, self._revision


def _nobody(account: AccountId) -> None:
    raise NotFound(f"There is no account {account}.")
