"""How the audit log is read. It is written by the adapters that make the changes, in the same transaction."""

from collections.abc import Sequence
from typing import Protocol

from cloud.api.audit.entry import Logged


class AuditLog(Protocol):
    """Raises `shared.errors.Unavailable` when the store does not answer."""

    async def page(self, limit: int, before: int | None = None, subject: str | None = None) -> Sequence[Logged]:
        """The latest entries, newest first; those with a smaller number than `before`, those about `subject`."""
        ...
