"""Knows every key in memory, and hears within a second of those that are added or revoked."""

import hmac
import time
from collections.abc import Callable, Iterable, Mapping

from cloud.api.accounts.keys import ApiKey, digest, key_in_settings
from cloud.api.accounts.ports import AccountStore
from cloud.api.store.following import Following
from shared.errors import Unauthorized

_START = 8
"""Bytes of a digest that the table is looked up by; the whole is compared in constant time."""


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
        self._table: dict[bytes, dict[bytes, ApiKey]] = {}
        self._put({digest(secret.encode()): key_in_settings(secret) for secret in secrets})
        self._clock = clock
        silent = "keys cannot be read; those known stay in force"
        self._following = Following(store.changes, lambda changes: self._put(changes.keys), silent, monotonic)

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
            await self._following.look()
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
        await self._following.refresh()

    async def run(self) -> None:
        """Keep up with the store until cancelled."""
        await self._following.run()

    def _find(self, secret: bytes) -> ApiKey | None:
        wanted = digest(secret)
        for known, key in self._table.get(wanted[:_START], {}).items():
            if hmac.compare_digest(known, wanted):
                return key
        return None

    def _put(self, keys: Mapping[bytes, ApiKey]) -> None:
        for digest_, key in keys.items():
            self._table.setdefault(digest_[:_START], {})[digest_] = key
