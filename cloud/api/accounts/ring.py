"""Knows every key in memory, and hears within a second of those that are added or revoked."""

import asyncio
import hmac
import time
from collections.abc import Callable, Iterable, Mapping

import structlog

from cloud.api.accounts.keys import ApiKey, digest, key_in_settings
from cloud.api.accounts.ports import AccountStore
from shared.errors import NexusError, Unauthorized

POLL_S = 0.5
"""How often the store is asked what has changed."""
_START = 8
"""Bytes of a digest that the table is looked up by; the whole is compared in constant time."""
UNKNOWN_S = 0.05
"""Shortest time between two such questions when an unknown key is shown."""

log = structlog.get_logger(__name__)


class KeyRing:
    """Asking for a known key costs no read. `secrets` are keys that the settings give.

    `clock` gives seconds since 1970, for expiry; `monotonic` measures how old the knowledge is.
    """

    def __init__(
        self,
        store: AccountStore,
        secrets: Iterable[str] = (),
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._table: dict[bytes, dict[bytes, ApiKey]] = {}
        self._put({digest(secret.encode()): key_in_settings(secret) for secret in secrets})
        self._revision = 0
        self._clock = clock
        self._monotonic = monotonic
        self._asked = float("-inf")
        self._turn = asyncio.Lock()
        self._silent = False

    def __len__(self) -> int:
        return sum(map(len, self._table.values()))

    def known(self) -> list[ApiKey]:
        """All of them, revoked and expired ones too, in the order of their creation."""
        known = (key for row in self._table.values() for key in row.values())
        return sorted(known, key=lambda key: (key.created_at, key.id))

    async def identify(self, secret: bytes) -> ApiKey:
        """The key that `secret` is. Raises `Unauthorized` when it is unknown, expired or revoked."""
        found = self._find(secret)
        if found is None:
            await self._look(self._monotonic())
            found = self._find(secret)
        if found is None:
            raise Unauthorized("This API key is not known here. Check the key and the address it is for.")
        match found.state(self._clock()):
            case "revoked":
                raise Unauthorized("This API key has been revoked. Ask for a new one.")
            case "expired":
                raise Unauthorized("This API key has expired. Ask for a new one.")
            case "active":
                return found

    async def refresh(self) -> None:
        """Ask the store now. Raises `Unavailable` when it does not answer."""
        async with self._turn:
            await self._ask()

    async def run(self) -> None:
        """Keep up with the store until cancelled."""
        while True:
            async with self._turn:
                await self._hear()
            await asyncio.sleep(POLL_S)

    def _find(self, secret: bytes) -> ApiKey | None:
        wanted = digest(secret)
        for known, key in self._table.get(wanted[:_START], {}).items():
            if hmac.compare_digest(known, wanted):
                return key
        return None

    def _put(self, keys: Mapping[bytes, ApiKey]) -> None:
        for digest_, key in keys.items():
            self._table.setdefault(digest_[:_START], {})[digest_] = key

    async def _look(self, since: float) -> None:
        """Ask what has changed unless somebody asked after `since`. Many who wait here cost one read."""
        async with self._turn:
            if self._asked < since:
                await asyncio.sleep(max(self._asked + UNKNOWN_S - self._monotonic(), 0))
                await self._hear()

    async def _hear(self) -> None:
        """As `refresh`, but goes on with what is known when the store is silent."""
        try:
            await self._ask()
        except Exception as error:  # whatever it is, the next look may do
            if not self._silent:
                unforeseen = None if isinstance(error, NexusError) else error
                log.warning("keys cannot be read; those known stay in force", exc_info=unforeseen)
            self._silent = True
            self._asked = self._monotonic()

    async def _ask(self) -> None:
        began = self._monotonic()
        changes = await self._store.changes(self._revision)
        self._put(changes.keys)
        self._revision = max(self._revision, changes.revision)
        self._asked = began
        self._silent = False
