"""Keeps the audit log in this process only."""

from collections.abc import Sequence

from cloud.api.audit.entry import Entry, Logged


class MemoryAudit:
    """An `AuditLog`."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def append(self, *entries: Entry | None) -> None:
        self._entries += [entry for entry in entries if entry is not None]

    async def page(self, limit: int, before: int | None = None, subject: str | None = None) -> Sequence[Logged]:
        last = len(self._entries) if before is None else min(max(before - 1, 0), len(self._entries))
        found = (Logged(seq, self._entries[seq - 1]) for seq in range(last, 0, -1))
        matching = [logged for logged in found if subject is None or logged.entry.subject == subject]
        return matching[:limit]
