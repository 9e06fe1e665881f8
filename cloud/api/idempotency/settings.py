"""Bounds of what is kept of answers."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaySettings:
    """Times in seconds, sizes in bytes."""

    keep_s: float = 86_400.0
    """How long the answer of an `Idempotency-Key` is kept."""
    retry_window_s: float = 120.0
    """How long after its end an answer is for a retry that the client's own header marks; 0 = never."""
    max_answer_bytes: int = 1 << 20
    max_total_bytes: int = 256 << 20
