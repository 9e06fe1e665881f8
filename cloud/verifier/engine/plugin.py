"""What every process of the engine does when it starts, through vLLM's own `vllm.general_plugins` entry point."""

import os
import time
from typing import Any

VERIFIER_ENV = "NEXUS_VERIFIER"
"""Set by `nexus verifier serve`: without it this is somebody else's engine in the same environment, left as it is."""

SPIN_S = 0.002
"""How long a process of a CPU engine polls for the next message before it sleeps; vLLM's own second is made for GPUs,
where cores are free: on a small machine the two ends of the queue would keep every core busy between forward passes,
which a draft node on the same machine could use."""
LOOK_SHARE = 8
"""A sleeper looks for itself after an eighth of the time that it has waited already. vLLM's queue wakes it by a ZeroMQ
message that is dropped when it follows another too closely, and then looks again after five seconds; its second of
polling hides that."""


def look_after_ms(waited_s: float) -> int:
    """Longest sleep before the next look, for a reader that has waited `waited_s` since its last message."""
    return 1 + int(waited_s * 1000 / LOOK_SHARE)


def register() -> None:
    """Lets the engine's processes sleep while they wait, on CPUs only."""
    if VERIFIER_ENV not in os.environ:
        return
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and SpinCondition.__init__.__defaults__ != (SPIN_S,):
        SpinCondition.__init__.__defaults__ = (SPIN_S,)
        wait = SpinCondition.wait

        def wait_and_look(self: Any, timeout_ms: int | None = None) -> None:
            most = look_after_ms(time.monotonic() - self.last_read)
            wait(self, most if timeout_ms is None else min(most, timeout_ms))

        SpinCondition.wait = wait_and_look
