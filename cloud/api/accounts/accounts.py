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
from shared.errors import InvalidInput, NotFound, Unavailable


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

    async def create(self, terms: Terms) -> NewKey:
        """A new key, known to this gateway at once and to others within a second."""
        new = new_key(terms, self._clock())
        await self._store.add(new)
        await self._tell()
        return new

    async def revoke(self, key: KeyId) -> ApiKey:
        """Raises `NotFound`, and `InvalidInput` for a key that only the settings can take away."""
        if any(known.id == key and known.in_settings for known in self.ring.known()):
            raise InvalidInput("This key is given in the gateway's settings: take it out there.")
        revoked = await self._store.revoke(key, int(self._clock()))
        if revoked is None:
            raise NotFound("There is no API key with this id.")
        await self._tell()
        return revoked

    async def statements(self) -> list[Statement]:
        """Every key with what it has cost this month."""
        await self.ring.refresh()
        return [Statement(key, self.budgets.spent(key.id)) for key in self.ring.known()]

    async def charges(self, key: KeyId, limit: int) -> Sequence[Charge]:
        """The latest charges of a key that the store has been told, newest first."""
        return await self._store.charges(key, limit)

    async def _tell(self) -> None:
        """The change is made: if the ring cannot read it now, it does so by itself, soon."""
        with contextlib.suppress(Unavailable):
            await self.ring.refresh()
