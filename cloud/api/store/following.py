"""Keeps what a process knows of a table in step with it: asks what has changed, over and over, or when it matters."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

import structlog

from shared.errors import NexusError

POLL_S = 0.5
"""How often the store is asked what has changed."""
UNKNOWN_S = 0.05
"""Shortest time between two such questions when somebody looks for what is unknown."""

log = structlog.get_logger(__name__)


class Revised(Protocol):
    """Rows that changed, and the revision that they bring the reader to."""

    @property
    def revision(self) -> int: ...


C = TypeVar("C", bound=Revised)


class Following(Generic[C]):
    """`ask` gives what changed after a revision, `take` takes it in. `silent` is logged once when the store is silent.

    `monotonic` measures how old the knowledge is.
    """

    def __init__(
        self,
        ask: Callable[[int], Awaitable[C]],
        take: Callable[[C], None],
        silent: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._ask_store = ask
        self._take = take
        self._words = silent
        self._monotonic = monotonic
        self._revision = 0
        self._asked = float("-inf")
        self._turn = asyncio.Lock()
        self._silent = False

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

    async def look(self) -> None:
        """Ask what has changed unless somebody asks after this call. Many who wait here cost one read."""
        since = self._monotonic()
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
                log.warning(self._words, exc_info=None if isinstance(error, NexusError) else error)
            self._silent = True
            self._asked = self._monotonic()

    async def _ask(self) -> None:
        began = self._monotonic()
        changes = await self._ask_store(self._revision)
        self._revision = max(self._revision, changes.revision)
        self._asked = began
        self._silent = False
        self._take(changes)
