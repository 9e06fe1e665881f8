"""The limits of one key and how much of each is left: decided and counted without I/O."""

import math

from cloud.api.accounts.keys import Terms
from cloud.api.admission.bucket import Bucket
from shared.errors import InvalidInput, RateLimited

BUSY_RETRY_S = 1.0
"""When to try again while all of a key's streams are busy: nobody knows when one of them ends."""


class Meter:
    """Counts for one key. `now` is of a monotonic clock."""

    def __init__(self, terms: Terms, now: float) -> None:
        self._most_streams = terms.concurrent_streams
        self._requests = _bucket(terms.requests_per_minute, now)
        self._tokens = _bucket(terms.tokens_per_minute, now)
        self.streams = 0

    def count(self, now: float) -> None:
        """One more request, or `RateLimited`."""
        if self._requests is not None:
            _check(self._requests, 1, "requests", now)
            self._requests.take(1, now)

    def take(self, streams: int, tokens: int, now: float) -> None:
        """Let a request's choices and tokens in, or raise `RateLimited` and count nothing."""
        if self._most_streams is not None and streams > self._most_streams:
            raise InvalidInput(
                f"`n` is {streams}, but this key may have {self._most_streams} choices generated at once.", param="n"
            )
        # A retry counts as a request again: it has to wait for that too.
        again_s = self._requests.wait_s(1, now) if self._requests is not None else 0.0
        if self._tokens is not None:
            _check(self._tokens, tokens, "tokens", now, again_s)
        if self._most_streams is not None and self.streams + streams > self._most_streams:
            raise RateLimited(
                f"This key may have {self._most_streams} choices generated at once, and has {self.streams}. "
                "Try again when one has ended.",
                retry_after_s=max(BUSY_RETRY_S, again_s),
            )
        if self._tokens is not None:
            self._tokens.take(tokens, now)
        self.streams += streams

    def leave(self, streams: int, estimated: int, used: int, now: float) -> None:
        """A request is over: what it really used replaces the estimate."""
        self.streams -= streams
        if self._tokens is not None:
            self._tokens.take(used - estimated, now)

    def headers(self, now: float) -> list[tuple[bytes, bytes]]:
        """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, for the limits that there are."""
        headers: list[tuple[bytes, bytes]] = []
        for word, bucket in (("requests", self._requests), ("tokens", self._tokens)):
            if bucket is not None:
                values = (
                    ("limit", str(bucket.per_minute)),
                    ("remaining", str(max(math.floor(bucket.left(now)), 0))),
                    ("reset", duration(bucket.full_in_s(now))),
                )
                headers += [(f"x-ratelimit-{name}-{word}".encode(), value.encode()) for name, value in values]
        return headers


def _check(bucket: Bucket, amount: int, word: str, now: float, least_s: float = 0.0) -> None:
    """Raises `RateLimited`, to be tried again in `least_s` or later."""
    if (wait_s := bucket.wait_s(amount, now)) > 0:
        wait_s = max(wait_s, least_s)
        raise RateLimited(
            f"This key may use {bucket.per_minute} {word} a minute. Try again in {duration(wait_s)}.",
            retry_after_s=wait_s,
        )


def _bucket(limit: int | None, now: float) -> Bucket | None:
    return None if limit is None else Bucket.full(limit, now)


def duration(seconds: float) -> str:
    """As OpenAI writes it: `120ms`, `1.5s`, `6m0s`; rounded up, so that it is never too early."""
    ms = math.ceil(seconds * 1000 - 1e-6)
    if ms < 1000:
        return f"{ms}ms"
    if ms < 60_000:
        return f"{ms / 1000:g}s"
    whole = -(-ms // 1000)
    hours, minutes = divmod(whole // 60, 60)
    return f"{f'{hours}h' if hours else ''}{minutes}m{whole % 60}s"
