"""The engines that the conformance suite runs against."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from engine_process import MAX_MODEL_LEN, MAX_STREAMS, EngineProcess
from fake_engine import FakeEngine

from desktop.agent.engines.port import DraftEngine, EngineConfig


@pytest.fixture(
    scope="session",
    params=[
        "fake",
        pytest.param("vllm", marks=pytest.mark.model),
        pytest.param("transformers", marks=pytest.mark.model),
    ],
)
def shared_engine(request: pytest.FixtureRequest) -> Iterator[DraftEngine]:
    """One engine for the whole run; loading takes half a minute."""
    if request.param == "fake":
        yield FakeEngine(EngineConfig(model="", max_streams=MAX_STREAMS, max_model_len=MAX_MODEL_LEN))
        return
    from shared.models.resolve import resolve

    engine = EngineProcess(request.param, resolve("smollm2-135m"))
    yield engine
    engine.close()


@pytest.fixture
def engine(shared_engine: DraftEngine) -> Iterator[DraftEngine]:
    """The engine with nothing running, and left so."""
    yield shared_engine
    for number in range(10):
        shared_engine.forget(f"s{number}")  # type: ignore[arg-type]
    assert not shared_engine.busy
