"""A worker process on an engine without weights."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from desktop.agent.engines.port import EngineConfig
from desktop.agent.worker.client import WorkerClient
from desktop.agent.worker.messages import Start

ENGINES = Path(__file__).parent.parent / "engines"
VOCABULARY = 1000

Spawn = Callable[..., Awaitable[WorkerClient]]


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A tokenizer of 1000 ids, all that the fake engine's model needs."""
    vocabulary = {f"w{number}": number for number in range(VOCABULARY)}
    data = {"added_tokens": [], "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    return tmp_path


@pytest.fixture
def start(model_folder: Path) -> Start:
    """Start for the fake engine, two streams of at most 64 tokens."""
    config = EngineConfig(model=str(model_folder), max_streams=2, max_model_len=64)
    return Start(engine="fake_engine:create", config=config, model="fake-model")


@pytest.fixture
async def spawn() -> AsyncIterator[Spawn]:
    """Starts workers that find the fake engine; none outlives its test."""
    clients: list[WorkerClient] = []

    async def spawn(start: Start) -> WorkerClient:
        client = await WorkerClient.spawn(start, env={"PYTHONPATH": str(ENGINES)})
        clients.append(client)
        return client

    yield spawn
    for client in clients:
        await client.close()
