"""The real worker process behind the real pipe."""

import asyncio
import os
import signal
import subprocess
import sys
import zlib
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil
import pytest

from desktop.agent.engines.port import EngineConfig
from desktop.agent.worker.channel import EXIT_ORPHANED
from desktop.agent.worker.client import WorkerClient, describe_exit
from desktop.agent.worker.messages import (
    AdvanceStream,
    CloseStream,
    DraftBlock,
    Failed,
    FromWorker,
    OpenStream,
    Ready,
    Shutdown,
    Start,
    StopAll,
)
from shared.fingerprint import fingerprint
from shared.sampling import Sampling

Spawn = Callable[[Start], Awaitable[WorkerClient]]
M = TypeVar("M", bound=FromWorker)
VOCABULARY = 1000
HANG, BREAK = 7, 8


def guess(tokens: list[int], count: int) -> list[int]:
    """What the fake engine drafts."""
    line = list(tokens)
    for _ in range(count):
        line.append(16 + zlib.crc32(array("q", line).tobytes()) % (VOCABULARY - 16))
    return line[len(tokens) :]


def runner_up(token: int, vocabulary: int) -> int:
    """Its second choice where `token` is the first."""
    return 16 + (token - 16 + 2) % (vocabulary - 16)


def opened(stream: str, tokens: list[int], k: int = 4, ahead: int = 8, candidates: int = 1) -> OpenStream:
    return OpenStream(
        stream=stream,
        tokens=tuple(tokens),
        sampling=Sampling(),
        seed=None,
        k=k,
        ahead=ahead,
        candidates=candidates,
    )


async def next_of(messages: AsyncIterator[FromWorker], kind: type[M]) -> M:
    """The next message of a kind; a failure that was not waited for fails the test."""
    async for message in messages:
        if isinstance(message, kind):
            return message
        assert not isinstance(message, Failed), message
    raise AssertionError(f"the worker ended without {kind.__name__}")


async def blocks(messages: AsyncIterator[FromWorker], stream: str, count: int) -> list[tuple[int, int, list[int]]]:
    """The next `count` guesses of one stream, or a few more; blocks that continue each other are joined."""
    found: list[tuple[int, int, list[int]]] = []
    while sum(len(tokens) for _, _, tokens in found) < count:
        block = await next_of(messages, DraftBlock)
        if block.stream != stream:
            continue
        if found and found[-1][0] == block.epoch and found[-1][1] + len(found[-1][2]) == block.pos:
            found[-1][2].extend(block.tokens)
        else:
            found.append((block.epoch, block.pos, list(block.tokens)))
    return found


async def ended(client: WorkerClient) -> int:
    """Its exit status, read to the end so that nothing waits in the pipe."""
    async for _ in client:
        pass
    return await client.wait()


async def test_the_worker_says_what_it_loaded(spawn: Spawn, start: Start) -> None:
    """Ready carries what the agent's Hello needs."""
    client = await spawn(start)
    ready = await next_of(aiter(client), Ready)
    assert (ready.engine, ready.model, ready.vocabulary) == ("fake", "fake-model", VOCABULARY)
    assert (ready.streams, ready.max_model_len) == (2, 64)
    assert ready.fingerprint == fingerprint(Path(start.config.model))
    await client.send(Shutdown())
    assert await ended(client) == 0


async def test_two_streams_draft_ahead_agree_and_diverge(spawn: Spawn, start: Start) -> None:
    """Each stream's blocks continue its own tokens; a divergence comes back in the next epoch."""
    client = await spawn(start)
    messages = aiter(client)
    one, two = [20, 21, 22], [30, 31]
    await client.send(opened("one", one))
    line = guess(one, 20)
    assert await blocks(messages, "one", 8) == [(0, 3, line[:8])]
    await client.send(opened("two", two, k=3, ahead=6))
    other = guess(two, 6)
    assert await blocks(messages, "two", 6) == [(0, 2, other)]

    await client.send(AdvanceStream(stream="one", pos=3, tokens=tuple(line[:5])))
    assert await blocks(messages, "one", 5) == [(0, 11, line[8:13])]
    await client.send(AdvanceStream(stream="one", pos=8, tokens=(line[5], 9)))
    corrected = [*one, *line[:6], 9]
    assert (await blocks(messages, "one", 4))[0] == (1, 10, guess(corrected, 4))

    await client.send(CloseStream(stream="one"))
    await client.send(AdvanceStream(stream="one", pos=10, tokens=(5,)))
    await client.send(AdvanceStream(stream="two", pos=2, tokens=(5,)))
    assert (await blocks(messages, "two", 3))[0] == (1, 3, guess([*two, 5], 3))


async def test_a_divergence_to_a_runner_up_was_answered_before(spawn: Spawn, start: Start) -> None:
    """A candidate's block holds what follows the runner-up; the main line takes it over and goes on behind it."""
    client = await spawn(start)
    messages = aiter(client)
    tokens = [20, 21, 22]
    await client.send(opened("one", tokens, candidates=2))
    line = guess(tokens, 8)
    found: dict[int, list[int]] = {0: [], 1: []}
    while len(found[0]) < 8 or not any(a != b for a, b in zip(found[1][:-1], line, strict=False)):
        block = await next_of(messages, DraftBlock)
        assert (block.epoch, block.pos) == (0, 3 + len(found[block.candidate])), "both begin at the committed end"
        found[block.candidate] += block.tokens
    ahead = found[1]
    branch = next(index for index, (a, b) in enumerate(zip(ahead, line, strict=False)) if a != b)
    assert ahead[branch] == runner_up(line[branch], VOCABULARY)
    diverged = [*tokens, *ahead[: branch + 1]]
    assert ahead[branch + 1 :] == guess(diverged, len(ahead) - branch - 1)

    await client.send(AdvanceStream(stream="one", pos=3, tokens=tuple(ahead[: branch + 1])))
    redrafted: list[int] = []
    while len(redrafted) < 8:
        block = await next_of(messages, DraftBlock)
        if not block.candidate:
            assert (block.epoch, block.pos) == (1, len(diverged) + len(redrafted))
            redrafted += block.tokens
    assert redrafted == guess(diverged, 8)


async def test_stopping_all_frees_every_place(spawn: Spawn, start: Start) -> None:
    """And one stream too many is refused in words, which the others do not feel."""
    client = await spawn(start)
    messages = aiter(client)
    await client.send(opened("one", [20]))
    await client.send(opened("two", [30]))
    await client.send(opened("three", [40]))
    message = await next_of(messages, Failed)
    assert message.stream == "three"
    assert "2 streams at most" in message.message
    await client.send(StopAll())
    await client.send(opened("four", [50]))
    assert (await blocks(messages, "four", 4))[0] == (0, 1, guess([50], 4))


async def test_a_stream_that_cannot_be_drafted_for_fails_alone(spawn: Spawn, start: Start) -> None:
    """An id outside the vocabulary, and verified tokens with a gap."""
    client = await spawn(start)
    messages = aiter(client)
    await client.send(opened("bad", [20, VOCABULARY]))
    message = await next_of(messages, Failed)
    assert (message.stream, message.code) == ("bad", "engine_error")
    assert f"Token id {VOCABULARY}" in message.message
    await client.send(opened("gap", [20]))
    await client.send(AdvanceStream(stream="gap", pos=5, tokens=(1,)))
    message = await next_of(messages, Failed)
    assert (message.stream, message.code) == ("gap", "protocol_error")
    await client.send(opened("good", [20]))
    assert (await blocks(messages, "good", 4))[0] == (0, 1, guess([20], 4))


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("fake_engine:create_broken", "could not load fake-model: RuntimeError: no such device"),
        ("fake_engine:nothing", "could not be imported"),
        ("no_such_module:create", "could not be imported"),
        ("tensorflow", "not known. Use auto, vllm, transformers"),
    ],
)
async def test_an_engine_that_cannot_load_fails_in_words(spawn: Spawn, start: Start, engine: str, words: str) -> None:
    """The worker says why and ends with status 1."""
    client = await spawn(msgspec.structs.replace(start, engine=engine))
    message = await next_of(aiter(client), Failed)
    assert (message.code, message.stream) == ("engine_error", None)
    assert words in message.message
    assert await ended(client) == 1


async def test_a_folder_without_a_tokenizer_fails_in_words(spawn: Spawn, start: Start, tmp_path: Path) -> None:
    """Before anything heavy is loaded."""
    (tmp_path / "empty").mkdir()
    config = EngineConfig(model=str(tmp_path / "empty"))
    client = await spawn(msgspec.structs.replace(start, config=config))
    message = await next_of(aiter(client), Failed)
    assert message.code == "model_error"
    assert "no tokenizer.json" in message.message
    assert await ended(client) == 1


async def test_an_engine_that_breaks_ends_the_worker_in_words(spawn: Spawn, start: Start) -> None:
    """Its streams are over with it."""
    client = await spawn(start)
    await client.send(opened("one", [BREAK]))
    message = await next_of(aiter(client), Failed)
    assert (message.stream, message.message) == (None, "The fake engine broke, as it was told to.")
    assert await ended(client) == 1


@pytest.mark.parametrize("last", [20, HANG])
async def test_the_worker_ends_with_the_pipe(spawn: Spawn, start: Start, last: int) -> None:
    """Also while the engine hangs inside a step."""
    client = await spawn(start)
    await next_of(aiter(client), Ready)
    await client.send(opened("one", [last]))
    client._writer.close()
    assert await client.wait() == EXIT_ORPHANED


async def test_killing_takes_effect_whatever_the_worker_does(spawn: Spawn, start: Start) -> None:
    """The exit is told apart from a crash."""
    client = await spawn(start)
    await next_of(aiter(client), Ready)
    await client.send(opened("one", [HANG]))
    status = await client.close()
    assert status == -signal.SIGKILL
    assert "killed" in describe_exit(status)
    assert await client.close() == status


PARENT = """
import asyncio, os, sys
import msgspec
from desktop.agent.worker.client import WorkerClient
from desktop.agent.worker.messages import OpenStream, Ready, Start
from shared.sampling import Sampling

async def main():
    client = await WorkerClient.spawn(msgspec.json.decode(sys.argv[1], type=Start))
    async for message in client:
        if isinstance(message, Ready):
            break
    await client.send(OpenStream(stream="s", tokens=(7,), sampling=Sampling(), seed=None, k=4, ahead=8))
    os.set_inheritable(client._writer.get_extra_info("socket").fileno(), False)
    print(client.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_worker_dies_when_its_agent_is_killed(start: Start) -> None:
    """SIGKILL of the agent, with the engine hanging: nobody is left to clean up."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent / "engines")}
    agent = subprocess.Popen(
        [sys.executable, "-c", PARENT, msgspec.json.encode(start).decode()],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with agent:
        assert agent.stdout is not None
        worker = psutil.Process(int(agent.stdout.readline()))
        agent.kill()
    worker.wait(timeout=60)


def test_running_the_worker_by_hand_says_what_to_run() -> None:
    """It is no command of its own."""
    done = subprocess.run([sys.executable, "-m", "desktop.agent.worker"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nexus agent run" in done.stderr


@pytest.mark.model
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
async def test_a_real_engine_drafts_for_two_streams(spawn: Spawn, engine: str) -> None:
    """Blocks follow each stream's own greedy line; after a divergence they come from the corrected prefix."""
    from shared.models.resolve import resolve

    folder = await asyncio.to_thread(resolve, "smollm2-135m")
    config = EngineConfig(
        model=str(folder),
        max_streams=2,
        max_model_len=256,
        dtype="float32",
        device="cpu",
        threads=1,
        kv_cache_bytes=256 << 20,
    )
    client = await spawn(Start(engine=engine, config=config, model="smollm2-135m"))
    messages = aiter(client)
    ready = await next_of(messages, Ready)
    assert ready.engine.startswith(engine)
    assert psutil.Process(client.pid).children() == []

    one, two = list(range(400, 440)), list(range(500, 540))
    await client.send(opened("one", one))
    line = [token for _, _, tokens in await blocks(messages, "one", 8) for token in tokens]
    await client.send(opened("two", two))
    other = [token for _, _, tokens in await blocks(messages, "two", 8) for token in tokens]
    assert line != other

    await client.send(AdvanceStream(stream="one", pos=40, tokens=tuple(line[:4])))
    agreed = await blocks(messages, "one", 4)
    assert [(epoch, pos) for epoch, pos, _ in agreed] == [(0, 48)]
    wrong = (line[4] + 1) % ready.vocabulary
    await client.send(AdvanceStream(stream="one", pos=44, tokens=(wrong,)))
    diverged = await blocks(messages, "one", 8)
    assert [(epoch, pos) for epoch, pos, _ in diverged] == [(1, 45)]

    await client.send(CloseStream(stream="two"))
    await client.send(opened("again", [*one, *line[:4], wrong]))
    again = await blocks(messages, "again", 8)
    assert [tokens for _, _, tokens in again] == [tokens for _, _, tokens in diverged]
    await client.send(Shutdown())
    assert await ended(client) == 0
