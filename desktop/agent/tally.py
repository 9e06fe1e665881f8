"""What this node did, counted for its owner and for the cloud's statistics."""

from collections.abc import Callable

from shared.wire.messages import NodeStats


class Tally:
    """Counts since the session began, and the rate since the last `stats`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.drafted_tokens = 0
        self._counted = 0
        self._since = clock()

    def restart(self) -> None:
        """A new session begins."""
        self.drafted_tokens = self._counted = 0
        self._since = self._clock()

    def drafted(self, tokens: int) -> None:
        self.drafted_tokens += tokens

    def stats(self, streams: int) -> NodeStats:
        """Figures for a `Beat`; the rate covers the time since the one before."""
        now = self._clock()
        seconds = now - self._since
        fresh = self.drafted_tokens - self._counted
        self._counted, self._since = self.drafted_tokens, now
        rate = fresh / seconds if seconds > 0 else 0.0
        return NodeStats(streams=streams, drafted_tokens=self.drafted_tokens, tokens_per_s=round(rate, 3))
