"""Passwords: argon2id (RFC 9106), in threads of their own, with the same work whether or not an account exists."""

import asyncio
import base64
import secrets
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from shared.errors import InvalidInput, Unavailable

SHORTEST: Final = 12
LONGEST: Final = 256
T = TypeVar("T")
WAITING: Final = 32
"""Passwords that may wait for a thread; each takes tens of milliseconds and `memory_cost` KiB."""
THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a password is the right one, and its new hash if the stored one was made with other parameters."""

    right: bool
    renewed: str | None = None


class Hasher(Protocol):
    """What is needed of `argon2.PasswordHasher`."""

    @property
    def time_cost(self) -> int: ...
    @property
    def memory_cost(self) -> int: ...
    @property
    def parallelism(self) -> int: ...
    def hash(self, password: str) -> str: ...
    def verify(self, hash: str, password: str) -> bool: ...
    def check_needs_rehash(self, hash: str) -> bool: ...


class Passwords:
    """`hasher` says how much work a guess is. Raises `Unavailable` when too many wait for a thread."""

    def __init__(self, hasher: Hasher | None = None, *, threads: int = THREADS, waiting: int = WAITING) -> None:
        self._hasher: Hasher = hasher or PasswordHasher()
        self._stand_in = _stand_in(self._hasher)
        self._threads = threads
        self._places = threads + waiting
        self._pool: ThreadPoolExecutor | None = None

    async def hash(self, password: str) -> str:
        """Raises `InvalidInput` for one that is too short or too long."""
        text = normalised(password)
        check_length(text)
        return await self._work(lambda: self._hasher.hash(text))

    async def verify(self, password: str, stored: str | None) -> Verdict:
        """Against a stored hash, or against one that no password has where there is none: the work is the same."""
        text = normalised(password[: 2 * LONGEST])
        return await self._work(lambda: self._verify(text, stored))

    def close(self) -> None:
        """Lets running work end. May be called twice."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.shutdown(wait=False)

    def _verify(self, password: str, stored: str | None) -> Verdict:
        try:
            self._hasher.verify(stored or self._stand_in, password)
        except (VerificationError, InvalidHashError):
            return Verdict(False)
        if stored is None:
            return Verdict(False)
        return Verdict(True, self._hasher.hash(password) if self._hasher.check_needs_rehash(stored) else None)

    async def _work(self, work: Callable[[], T]) -> T:
        if self._places == 0:
            raise Unavailable("Too many people sign in at the moment. Try again shortly.")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="passwords")
        self._places -= 1
        task = asyncio.get_running_loop().run_in_executor(self._pool, work)
        # The place is taken until the work is done, also when whoever asked has gone.
        task.add_done_callback(self._free)
        return await asyncio.shield(task)

    def _free(self, task: "asyncio.Future[Any]") -> None:
        self._places += 1
        if not task.cancelled():
            task.exception()


def normalised(password: str) -> str:
    """One form for what different keyboards send (NIST SP 800-63B, 3.1.1.2)."""
    return unicodedata.normalize("NFKC", password)


def check_length(password: str) -> None:
    """Raises `InvalidInput`. Length is all that is asked for, as NIST SP 800-63B advises."""
    if len(password) < SHORTEST:
        raise InvalidInput(f"A password has at least {SHORTEST} characters; several words are best.", param="password")
    if len(password) > LONGEST:
        raise InvalidInput(f"A password has at most {LONGEST} characters.", param="password")


def _stand_in(hasher: Hasher) -> str:
    """A well-formed hash with the hasher's parameters that no known password has: checking it takes as long as any."""
    salt, tag = (base64.b64encode(secrets.token_bytes(size)).rstrip(b"=").decode() for size in (16, 32))
    costs = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2id$v=19${costs}${salt}${tag}"
