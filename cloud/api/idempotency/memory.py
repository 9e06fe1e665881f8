"""Keeps answers in this process only."""

from collections.abc import Sequence
from dataclasses import replace

from cloud.api.idempotency.answers import Found, Kept, decide, taken_over


class MemoryAnswers:
    """An `AnswerStore`."""

    def __init__(self) -> None:
        self._rows: dict[str, Kept] = {}

    async def claim(self, new: Kept, now: float) -> tuple[Found, Kept]:
        found = next((row for row in self._rows.values() if row.claim == new.claim), None)
        decision = decide(found, new, now)
        if decision in (Found.NEW, Found.TAKE_OVER):
            if found is not None:
                del self._rows[found.id]
                new = taken_over(found, new) if decision is Found.TAKE_OVER else new
            self._rows[new.id] = new
            return decision, new
        assert found is not None
        return decision, found

    async def keep(self, answers: Sequence[Kept]) -> None:
        for answer in answers:
            self._rows[answer.id] = answer

    async def drop(self, answer: str) -> None:
        self._rows.pop(answer, None)

    async def match(self, fingerprint: bytes, since: float, retry: int) -> Kept | None:
        candidates = [
            row
            for row in self._rows.values()
            if row.claim is None
            and row.fingerprint == fingerprint
            and row.retries < retry
            and row.ended_at is not None
            and row.ended_at >= since
        ]
        if not candidates:
            return None
        best = max(candidates, key=lambda row: (row.retries, row.state == "done", row.ended_at, row.id))
        if best.content is None:
            del self._rows[best.id]
        else:
            self._rows[best.id] = replace(best, retries=retry)
        return best

    async def renew(self, answers: Sequence[str], lease_until: int) -> None:
        for answer in answers:
            if (row := self._rows.get(answer)) is not None and row.state == "running":
                self._rows[answer] = replace(row, lease_until=lease_until)

    async def release(self, owner: str) -> None:
        await self.renew([row.id for row in self._rows.values() if row.owner == owner], 0)

    async def purge(self, now: float, most_bytes: int) -> int:
        self._rows = {row.id: row for row in self._rows.values() if not row.over(now)}
        total = sum(row.size for row in self._rows.values())
        for row in sorted(self._rows.values(), key=lambda row: row.ended_at or 0):
            if total <= most_bytes:
                break
            if row.size:
                del self._rows[row.id]
                total -= row.size
        return total
