"""What one gateway knows of an account's prepaid money, and whether a request may go on before the books have said so."""

from dataclasses import dataclass

SHARE = 4
"""A gateway lets requests go ahead of the books with at most this part (a quarter) of what the account is known to have:
enough for all requests of a batch, and little enough for several gateways at once.
"""
FRESH_S = 30.0
"""How old the knowledge may be for that."""
ACTIVE_S = 60.0
"""How long after its last request an account's balance is kept up to date."""
REFRESH_S = 1.0
"""How often."""


@dataclass(slots=True)
class Purse:
    """Times are of a monotonic clock."""

    known: int = 0
    """Available according to the books, in nano-dollars."""
    as_of: float = float("-inf")
    used_at: float = float("-inf")
    outstanding: int = 0
    """Worst cases, and costs of requests that ended meanwhile, which the books have not been told."""

    def covers(self, worst: int, now: float) -> bool:
        """Whether a request may go on at once."""
        return now - self.as_of <= FRESH_S and self.outstanding + worst <= self.known // SHARE

    def learn(self, known: int, now: float) -> None:
        self.known = known
        self.as_of = now

    def active(self, now: float) -> bool:
        return self.outstanding != 0 or now - self.used_at <= ACTIVE_S

    def stale(self, now: float) -> bool:
        """Whether it is time to ask the books again."""
        return now - self.used_at <= ACTIVE_S and now - self.as_of >= REFRESH_S
