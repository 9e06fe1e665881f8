"""Bounds of what is worked on and what may wait."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GateSettings:
    """Streams are choices being generated; tokens are estimates of prompt and output together."""

    max_streams: int = 1024
    max_tokens: int = 1 << 24
    queue_requests: int = 1024
    queue_tokens: int = 1 << 24
    deadline_s: float = 30.0
    """Longest wait for a place."""
