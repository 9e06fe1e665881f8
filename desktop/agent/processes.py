"""Process groups: end one and be sure that nothing of it is left."""

import asyncio
import os
import signal
from contextlib import suppress

import psutil

_POLL_S = 0.05


def members(group: int) -> list[int]:
    """Ids of the live processes in a group; a zombie holds no memory and does not count."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


async def end_group(group: int, grace_s: float) -> bool:
    """Send SIGTERM to a group, after `grace_s` SIGKILL, and return when it is empty.

    Returns whether SIGKILL was needed. Never signals the caller's own group.
    """
    if group == os.getpgid(0):
        raise ValueError("a process group must not end itself")
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
    if await _gone(group, grace_s):
        return False
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    await _gone(group, None)
    return True


async def _gone(group: int, within_s: float | None) -> bool:
    loop = asyncio.get_running_loop()
    until = None if within_s is None else loop.time() + within_s
    while members(group):
        if until is not None and loop.time() >= until:
            return False
        await asyncio.sleep(_POLL_S)
    return True
