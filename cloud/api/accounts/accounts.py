"""Everything about accounts in one place: keys, budgets and charges over one store."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import ApiKey, KeyId, NewKey, Terms, new_key
from cloud.api.accounts.ledger import Ledger
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
        self.ledger = Ledger(store, clock=clock)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Read keys and spending, then keep up with both. Raises `Unavailable`."""
        await self.ring.refresh()
        await self.ledger.start()
        self._tasks = [asyncio.create_task(self.ring.run()), asyncio.create_task(self.ledger.run())]

    async def stop(self) -> None:
        """Writes the last charges. May be called twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await self.ledger.close()

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
        return [Statement(key, self.ledger.spent(key.id)) for key in self.ring.known()]

    async def charges(self, key: KeyId, limit: int) -> Sequence[Charge]:
        """The latest charges of a key that the store has been told, newest first."""
        return await self._store.charges(key, limit)

    async def _tell(self) -> None:
        """The change is made: if the ring cannot read it now, it does so by itself, soon."""
        with contextlib.suppress(Unavailable):
            await self.ring.refresh()
