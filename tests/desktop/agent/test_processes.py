"""Process groups are ended for certain."""

import asyncio
import os
import signal
import sys

import pytest

from desktop.agent.processes import end_group, members

_POLITE = "import subprocess, sys; c = subprocess.Popen(['sleep', '1000']); print('up', flush=True); c.wait()"
_STUBBORN = (
    "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "c = subprocess.Popen(['sleep', '1000']); print('up', flush=True); c.wait(); signal.pause()"
)


async def group_of(code: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"up\n"
    return process


@pytest.mark.parametrize(("code", "grace_s", "killed"), [(_POLITE, 30.0, False), (_STUBBORN, 0.1, True)])
async def test_nothing_of_a_group_is_left(code: str, grace_s: float, killed: bool) -> None:
    """Children go with their parent; who ignores SIGTERM gets SIGKILL after the grace time."""
    process = await group_of(code)
    assert len(members(process.pid)) == 2
    assert await end_group(process.pid, grace_s) is killed
    assert members(process.pid) == []
    assert await process.wait() == (-signal.SIGKILL if killed else -signal.SIGTERM)


async def test_a_group_that_is_gone_is_no_error() -> None:
    """Ending twice is fine; ending oneself is not."""
    process = await group_of(_POLITE)
    await end_group(process.pid, 30.0)
    await process.wait()
    assert await end_group(process.pid, 30.0) is False
    with pytest.raises(ValueError, match="itself"):
        await end_group(os.getpgid(0), 1.0)
