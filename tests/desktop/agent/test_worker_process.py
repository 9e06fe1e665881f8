"""The agent with a real worker process, on a small engine of the tests' own."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from desktop.agent.engines.port import EngineConfig
from desktop.agent.processes import members
from desktop.agent.report import LogFormat, make_log
from desktop.agent.worker.messages import Start
from desktop.agent.worker_process import ProcessWorker
from shared.errors import ConfigError, ModelError
from shared.wire.messages import Draft, Drain, Hold, HoldReason, Resume


@pytest.fixture
def make_worker(model: Path, tmp_path: Path) -> Callable[[], ProcessWorker]:
    """Makes workers with the counting engine."""
    here = str(Path(__file__).parent)

    def make() -> ProcessWorker:
        return ProcessWorker(
            Start(
                engine="counting_engine:create",
                model="counter",
                config=EngineConfig(model=str(model), max_streams=4),
            ),
            {"PYTHONPATH": here},
            tmp_path / "worker.log",
            make_log(LogFormat.JSON),
        )

    return make


async def test_drafts_of_three_streams_come_from_the_process(start: Any, gateway: Any, make_worker: Any) -> None:
    """Each stream continues its own tokens, and re-drafts after a divergence."""
    running = start(make_worker)
    node = await gateway.nodes.get()
    (hello,) = gateway.hellos
    assert (hello.engine, hello.streams, hello.models[0].vocabulary) == ("counting 1", 4, 1000)
    assert len(hello.models[0].fingerprint) == 64
    for number, stream in enumerate("abc"):
        await node.open(stream, 1, 100 * number)
    drafts = await node.drafts("a", "b", "c")
    for number, stream in enumerate("abc"):
        draft = drafts[stream]
        assert (draft.epoch, draft.pos) == (0, 2)
        assert draft.tokens == tuple(range(100 * number + 1, 100 * number + 1 + len(draft.tokens)))
    await node.advance("b", 0, 2, 500)
    redraft = await node.next(Draft, lambda draft: draft.stream == "b" and draft.epoch == 1)
    assert (redraft.pos, redraft.tokens[0]) == (3, 501)
    await running.stop()
    await node.next(Drain)


async def test_a_crashed_process_is_replaced(start: Any, gateway: Any, make_worker: Any) -> None:
    """Hold with the reason, a new process, Resume, and drafts again over the same connection."""
    running = start(make_worker)
    node = await gateway.nodes.get()
    await node.open("deadly", 13, 13)
    assert await node.next(Hold) == Hold(reason=HoldReason.ENGINE_FAILED)
    failed = await running.said.wait_for("worker_failed")
    assert "SIGABRT" in failed["message"] and "worker.log" in failed["message"]
    await node.next(Resume)
    await node.close("deadly")
    await node.open("a", 1, 2)
    assert (await node.drafts("a"))["a"].tokens[0] == 3


async def test_a_gateway_restart_leaves_the_process_loaded(start: Any, gateway: Any, make_worker: Any) -> None:
    """The same worker serves the next session, with no draft of the last one."""
    running = start(make_worker)
    node = await gateway.nodes.get()
    await node.open("a", 1, 2)
    await node.drafts("a")
    await gateway.stop()
    await running.said.wait_for("disconnected")
    await gateway.start()
    node = await gateway.nodes.get()
    await node.open("a", 1, 2, 3, 4)
    draft = await node.next(Draft)
    assert (draft.epoch, draft.pos, draft.tokens[0]) == (0, 4, 5)
    assert len(running.said.of("worker_ready")) == 1


async def test_a_worker_can_be_stopped_at_any_time(make_worker: Any) -> None:
    """Before its start, while it loads, twice, and when it is frozen: nothing of it is left."""
    await make_worker().stop(1.0)

    loading = make_worker()
    starting = asyncio.create_task(loading.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await loading.stop(30.0)

    frozen = make_worker()
    await frozen.start()
    pid = frozen.pid
    os.kill(pid, signal.SIGSTOP)
    await frozen.stop(0.1)
    await frozen.stop(0.1)
    assert members(pid) == []


async def test_a_folder_without_a_tokenizer_is_a_model_error(tmp_path: Path) -> None:
    """Retrying would not help, and the error says what is missing."""
    config = EngineConfig(model=str(tmp_path))
    worker = ProcessWorker(
        Start(engine="x:y", model="none", config=config), {}, tmp_path / "log", make_log(LogFormat.JSON)
    )
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        await worker.start()
    await worker.stop(30.0)


async def test_a_log_file_that_cannot_be_written_is_a_config_error(tmp_path: Path) -> None:
    """It names the flag."""
    (tmp_path / "file").touch()
    worker = ProcessWorker(
        Start(engine="x:y", model="none", config=EngineConfig(model=str(tmp_path))),
        {},
        tmp_path / "file" / "log",
        make_log(LogFormat.JSON),
    )
    with pytest.raises(ConfigError, match="--worker-log"):
        await worker.start()
    await worker.stop(1.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_drafts_and_a_signal_leaves_no_process(
    gateway: Any, model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """`nexus agent run` from the outside: drafts, then Drain, exit 0 and an empty house."""
    command = "from desktop.agent.cli import app; app(prog_name='nexus agent')"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", command, "run", "--engine", "counting_engine:create", "--model", str(model),
        "--gateway", f"127.0.0.1:{gateway.port}", "--key-file", str(tmp_path / "node.key"),
        "--worker-log", str(tmp_path / "log"),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        start_new_session=True,
    )  # fmt: skip
    node = await gateway.nodes.get()
    await node.open("a", 1, 2)
    await node.drafts("a")
    (worker,) = _children(process.pid)
    process.send_signal(number)
    await node.next(Drain)
    _, printed = await process.communicate()
    assert process.returncode == 0, printed.decode()
    assert members(worker) == members(process.pid) == []
    said = printed.decode()
    for sentence in ("Loading ", "Connected to ws://127.0.0.1:", "Drafting for 1 stream.", "nothing is left running"):
        assert sentence in said


async def test_a_killed_agent_takes_its_worker_along(gateway: Any, model: Path, tmp_path: Path) -> None:
    """SIGKILL leaves the agent no time for anything, and still no worker stays."""
    command = "from desktop.agent.cli import app; app(prog_name='nexus agent')"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", command, "run", "--engine", "counting_engine:create", "--model", str(model),
        "--gateway", gateway.url, "--key-file", str(tmp_path / "node.key"), "--worker-log", str(tmp_path / "log"),
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        start_new_session=True,
    )  # fmt: skip
    await gateway.nodes.get()
    (worker,) = _children(process.pid)
    gone = asyncio.Event()
    descriptor = os.pidfd_open(worker)
    asyncio.get_running_loop().add_reader(descriptor, gone.set)
    process.kill()
    await process.wait()
    await gone.wait()
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)
    assert members(worker) == []


def _children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]
