"""Everything about accounts in one place: keys, budgets and charges over one store. Whoever charges is the ledger."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cloud.api.accounts.budgets import Budgets
from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import ApiKey, KeyId, NewKey, Terms, new_key
from cloud.api.accounts.money import Nano
from cloud.api.accounts.ports import AccountStore
from cloud.api.accounts.ring import KeyRing
from cloud.api.audit.entry import SYSTEM, Actor, Entry
from shared.errors import Conflict, InvalidInput, NotFound, Unavailable
from shared.ids import AccountId

KEYS_OF_ACCOUNT = 100
"""Keys that one account may have at a time."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A key and what it has cost this month."""

    key: ApiKey
    spent: Nano


class Accounts:
    """`secrets` are the keys that the settings give; all others are in `store`."""

    def __init__(
        self, store: AccountStore, secrets: Iterable[str] = (), *, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._clock = clock
        self.ring = KeyRing(store, secrets, clock=clock)
        self.budgets = Budgets(store, clock=clock)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read keys and spending, then keep up with keys. Raises `Unavailable`."""
        await self.ring.refresh()
        await self.budgets.start()
        self._task = asyncio.create_task(self.ring.run())

    async def stop(self) -> None:
        """May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def create(self, terms: Terms, account: AccountId | None = None, *, by: Actor = SYSTEM) -> NewKey:
        """A new key, known to this gateway at once and to others within a second.

        Raises `NotFound` and `Forbidden` where there is no such account, or it may have no keys.
        """
        new = new_key(terms, self._clock(), account)
        await self._store.add(new, created(new.key, by))
        await self._tell()
        return new

    async def create_own(self, terms: Terms, account: AccountId) -> NewKey:
        """A key that an account makes for itself. Raises `Conflict` when it has too many."""
        now = self._clock()
        if sum(key.state(now) == "active" for key in self.keys_of(account)) >= KEYS_OF_ACCOUNT:
            raise Conflict(f"This account has {KEYS_OF_ACCOUNT} keys. Revoke one that is no longer needed.")
        return await self.create(terms, account, by=Actor(account))

    async def revoke(self, key: KeyId, *, by: Actor = SYSTEM, of: AccountId | None = None) -> ApiKey:
        """Raises `InvalidInput` for a key that only the settings can take away, and `NotFound`, also when the key is
        not one of the account `of`.
        """
        if of is not None:
            await self._tell()
        known = next((each for each in self.ring.known() if each.id == key), None)
        if known is not None and known.in_settings and of is None:
            raise InvalidInput("This key is given in the gateway's settings: take it out there.")
        if of is not None and (known is None or known.account != of):
            raise NotFound("There is no API key with this id.")
        at = int(self._clock())
        revoked = await self._store.revoke(key, at, Entry(at=at, actor=by, action="key.revoked", subject=key))
        if revoked is None:
            raise NotFound("There is no API key with this id.")
        await self._tell()
        return revoked

    def keys_of(self, account: AccountId) -> list[ApiKey]:
        """Those that this gateway knows, in the order of their creation."""
        return [key for key in self.ring.known() if key.account == account]

    async def statements(self, account: AccountId | None = None) -> list[Statement]:
        """Every key, or every one of an account, with what it has cost this month."""
        await self.ring.refresh()
        keys = self.ring.known() if account is None else self.keys_of(account)
        return [Statement(key, self.budgets.spent(key.id)) for key in keys]

    async def charges(self, key: KeyId, limit: int) -> Sequence[Charge]:
        """The latest charges of a key that the store has been told, newest first."""
        return await self._store.charges(key, limit)

    async def look(self) -> None:
        """Hear at once of keys that something else has changed, if the store answers."""
        await self._tell()

    async def _tell(self) -> None:
        """The change is made: if the ring cannot read it now, it does so by itself, soon."""
        with contextlib.suppress(Unavailable):
            await self.ring.refresh()


def created(key: ApiKey, by: Actor) -> Entry:
    """What the audit log says of a new key."""
    detail = {"name": key.terms.name, "scopes": sorted(key.terms.scopes), "account": key.account}
    return Entry(at=key.created_at, actor=by, action="key.created", subject=key.id, detail=detail)
