"""What every process of the engine does when it starts, through vLLM's own `vllm.general_plugins` entry point."""

import os

VERIFIER_ENV = "NEXUS_VERIFIER"
"""Set by `nexus verifier serve`: without it this is somebody else's engine in the same environment, left as it is."""

SPIN_S = 0.002
"""How long a process of a CPU engine polls for the next message before it sleeps; vLLM's own second is made for GPUs,
where cores are free: on a small machine the two ends of the queue would keep every core busy between forward passes,
which a draft node on the same machine could use."""


def register() -> None:
    """Lets the engine's processes sleep while they wait, on CPUs only."""
    if VERIFIER_ENV not in os.environ:
        return
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        SpinCondition.__init__.__defaults__ = (SPIN_S,)
