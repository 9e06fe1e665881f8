"""Puts the agent together from its settings, and ends it on a signal."""

import asyncio
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from desktop.agent.agent import Agent
from desktop.agent.engines.choose import choose
from desktop.agent.engines.port import EngineConfig
from desktop.agent.identity import Identity, load_identity
from desktop.agent.report import Log
from desktop.agent.settings import AgentSettings
from desktop.agent.worker.messages import Start
from desktop.agent.worker_process import ProcessWorker, open_log
from shared.backoff import Backoff
from shared.models.progress import Reporter
from shared.models.resolve import resolve

_ENGINE_WORDS: Final = {"vllm": "vLLM", "transformers": "transformers"}


def run_agent(settings: AgentSettings, log: Log, progress: Reporter | None = None) -> None:
    """Draft until SIGINT, SIGTERM or SIGHUP; no process is left afterwards.

    `progress` tells about a model that has to be fetched first. Raises NexusError when the settings cannot
    work: key, log file, engine or model.
    """
    identity = load_identity(settings.key_file)
    open_log(settings.worker_log).close()
    engine = choose(settings.engine)
    log.info(
        "identity",
        message=f"This is node {identity.node_id[:8]}…; its key is in {identity.store}.",
        node=identity.node_id,
        store=identity.store,
    )
    folder = resolve(settings.model, progress)
    start = worker_start(settings, engine, folder)
    env = worker_environment(settings)

    def worker() -> ProcessWorker:
        return ProcessWorker(start, env, settings.worker_log, log)

    asyncio.run(_until_signal(settings, identity, worker, engine, log))


async def _until_signal(
    settings: AgentSettings, identity: Identity, worker: Callable[[], ProcessWorker], engine: str, log: Log
) -> None:
    agent = Agent(
        gateways=settings.gateway,
        identity=identity,
        make_worker=worker,
        describe=f"{settings.model} with {_ENGINE_WORDS.get(engine, engine)}",
        log=log,
        worker_delays=Backoff(random.Random()),
        link_delays=Backoff(random.Random()),
        software=f"nexus {_version()}",
    )
    loop = asyncio.get_running_loop()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        with suppress(AttributeError, NotImplementedError):  # Windows has neither SIGHUP nor these handlers
            loop.add_signal_handler(getattr(signal, name), agent.stop)
    await agent.run()


def worker_start(settings: AgentSettings, engine: str, folder: Path) -> Start:
    """The worker's first message."""
    return Start(
        engine=engine,
        model=folder.name if Path(settings.model).is_absolute() else settings.model,
        config=EngineConfig(
            model=str(folder),
            max_streams=settings.streams,
            max_model_len=settings.max_model_len,
            dtype=settings.dtype,
            threads=settings.threads,
            kv_cache_bytes=int(settings.kv_cache_gib * (1 << 30)),
            gpu_memory_utilization=settings.gpu_memory_utilization,
        ),
    )


def worker_environment(settings: AgentSettings) -> dict[str, str]:
    """What the worker's environment has beside the agent's own."""
    return {"VLLM_CPU_OMP_THREADS_BIND": settings.threads_bind} if settings.threads_bind else {}


def _version() -> str:
    try:
        return version("nexus-inference")
    except PackageNotFoundError:
        return "unknown"
