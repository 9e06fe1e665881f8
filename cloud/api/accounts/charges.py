"""What one request used and cost: written down once, whatever became of it."""

import time
from dataclasses import dataclass
from typing import Literal

from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano

Outcome = Literal["answered", "left", "failed"]
"""`left`: the caller went away, and pays for what was committed by then; `failed`: the fault was ours, and costs 0."""


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens of one request by the engine's count; the prompt counts once, whatever the number of choices."""

    prompt: int = 0
    cached: int = 0
    """Of the prompt, those that the engine did not have to compute."""
    completion: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """Tokens as the engine counted them; `at` in seconds since 1970."""

    request_id: str
    key_id: KeyId
    at: int
    model: str
    path: str
    streamed: bool
    outcome: Outcome
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: Nano

    @property
    def month(self) -> str:
        return month_of(self.at)


def month_of(at: float) -> str:
    """The calendar month in UTC, like 2026-11: budgets are for one."""
    return time.strftime("%Y-%m", time.gmtime(at))
