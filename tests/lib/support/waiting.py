"""Waiting for what must come, without waiting longer than it takes."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def until(holds: Callable[[], Any], tries: int = 10_000) -> Any:
    """Gives what `holds` gives, which may be awaitable, as soon as it is true."""
    for _ in range(tries):
        result = holds()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")
