"""Identity in this process: clocks that tests set, stores, and passwords that take no time."""

from dataclasses import dataclass
from typing import Any

from argon2 import PasswordHasher

from cloud.api.accounts.accounts import Accounts
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.ports import AccountStore
from cloud.api.audit.memory import MemoryAudit
from cloud.api.audit.ports import AuditLog
from cloud.api.identity.identity import Identity
from cloud.api.identity.memory import MemoryIdentity
from cloud.api.identity.ports import IdentityStore
from cloud.api.identity.settings import IdentitySettings

NOW = 1_796_000_000
"""2026-11-30, 06:13 UTC."""
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""Real argon2 that takes no time."""
PASSWORD = "correct horse battery"


@dataclass
class Clock:
    """Seconds since 1970; also those that do not go back."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


@dataclass
class Stores:
    """The three that share one place."""

    keys: AccountStore
    identity: IdentityStore
    audit: AuditLog

    async def actions(self) -> list[str]:
        """What the audit log says, oldest first."""
        return [logged.entry.action for logged in reversed(await self.audit.page(1000))]


def memory_stores() -> Stores:
    audit = MemoryAudit()
    keys = MemoryAccounts(audit)
    return Stores(keys, MemoryIdentity(keys, audit), audit)


def make_identity(stores: Stores, clock: Clock, **settings: Any) -> Identity:
    """Over these stores; `close` its passwords, or let it be."""
    given: dict[str, Any] = {"argon2_memory_kib": 8, "argon2_passes": 1, "argon2_lanes": 1}
    return Identity(
        stores.identity,
        stores.audit,
        Accounts(stores.keys, clock=clock),
        IdentitySettings(**given | settings),
        clock=clock,
        monotonic=clock,
    )
