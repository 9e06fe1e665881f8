"""Everything about identity in one place: people, pairing and nodes over one store."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from argon2 import PasswordHasher

from cloud.api.accounts.accounts import Accounts
from cloud.api.audit.ports import AuditLog
from cloud.api.identity.pairings import Pairings
from cloud.api.identity.passwords import Passwords
from cloud.api.identity.people import People
from cloud.api.identity.ports import IdentityStore
from cloud.api.identity.ring import NodeRing
from cloud.api.identity.settings import IdentitySettings
from shared.errors import Unavailable


class Identity:
    """`accounts` are told when keys end with their account."""

    def __init__(
        self,
        store: IdentityStore,
        audit: AuditLog,
        accounts: Accounts,
        settings: IdentitySettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or IdentitySettings()
        self.store = store
        self.audit = audit
        self.nodes = NodeRing(store, pairing_needed=self.settings.pairing_needed, monotonic=monotonic)
        self.pairings = Pairings(store, self.nodes, self.settings, clock=clock, monotonic=monotonic)
        self._passwords = passwords(self.settings)
        self.people = People(store, self._passwords, self.settings, clock=clock, monotonic=monotonic, tell=self._tell)
        self._accounts = accounts
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the nodes, then keep up with them. Raises `Unavailable`."""
        await self.nodes.refresh()
        self._task = asyncio.create_task(self.nodes.run())

    async def stop(self) -> None:
        """May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._passwords.close()

    async def _tell(self) -> None:
        """The change is made: what cannot be read now is heard soon."""
        await self._accounts.look()
        with contextlib.suppress(Unavailable):
            await self.nodes.refresh()


def passwords(settings: IdentitySettings) -> Passwords:
    """With the work for each guess that the settings ask for."""
    return Passwords(
        PasswordHasher(
            time_cost=settings.argon2_passes,
            memory_cost=settings.argon2_memory_kib,
            parallelism=settings.argon2_lanes,
        )
    )
