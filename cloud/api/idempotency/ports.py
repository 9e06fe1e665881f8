"""What replays need from a store. Both adapters pass the same tests (tests/cloud/api/idempotency)."""

from collections.abc import Sequence
from typing import Protocol

from cloud.api.idempotency.answers import Found, Kept


class AnswerStore(Protocol):
    """Each method is one transaction, and may raise `shared.errors.Unavailable`."""

    async def claim(self, new: Kept, now: float) -> tuple[Found, Kept]:
        """Take the claim that `new` names, as `decide` says. With it comes the row that is in force: for `NEW` and
        `TAKE_OVER` the caller's own.
        """
        ...

    async def keep(self, answers: Sequence[Kept]) -> None:
        """Write rows, each in place of an earlier one with its id."""
        ...

    async def drop(self, answer: str) -> None:
        """As if it had never been claimed."""
        ...

    async def match(self, fingerprint: bytes, since: float, retry: int) -> Kept | None:
        """The answer that retry number `retry` of a request without an `Idempotency-Key` is about: one that ended at
        `since` or later and has not been given to a retry as late as this one. It is marked as given; one without
        content is removed, as whoever takes it over keeps it anew.
        """
        ...

    async def renew(self, answers: Sequence[str], lease_until: int) -> None:
        """Go on with these, by their ids, as far as they still run."""
        ...

    async def release(self, owner: str) -> None:
        """`owner` ends: what it still runs is nobody's."""
        ...

    async def purge(self, now: float, most_bytes: int) -> int:
        """Remove what has expired, and the oldest answers while there are more than `most_bytes`; gives the bytes that
        are left.
        """
        ...
