"""A token bucket: pure arithmetic on times that the caller gives."""

from dataclasses import dataclass

MINUTE_S = 60.0


@dataclass(slots=True)
class Bucket:
    """Holds a minute's worth and refills evenly. It may be overdrawn: what a request took is known only at its end.

    Times are seconds of any clock that does not go back.
    """

    per_minute: int
    level: float
    filled_at: float

    @classmethod
    def full(cls, per_minute: int, now: float) -> "Bucket":
        return cls(per_minute, float(per_minute), now)

    def left(self, now: float) -> float:
        """Negative when overdrawn."""
        passed = max(now - self.filled_at, 0.0)
        return min(self.level + passed * self.per_minute / MINUTE_S, float(self.per_minute))

    def wait_s(self, amount: float, now: float) -> float:
        """Time until `amount` could be taken, 0 if at once. More than the bucket holds needs a full one."""
        lacking = min(amount, self.per_minute) - self.left(now)
        return max(lacking, 0.0) * MINUTE_S / self.per_minute

    def full_in_s(self, now: float) -> float:
        return (self.per_minute - self.left(now)) * MINUTE_S / self.per_minute

    def take(self, amount: float, now: float) -> None:
        """A negative amount is given back."""
        self.level = min(self.left(now) - amount, float(self.per_minute))
        self.filled_at = max(now, self.filled_at)
