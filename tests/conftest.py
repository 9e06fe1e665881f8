"""What the whole suite shares: one real verifier, and what a stock engine answers to the same prompts."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.databases import PostgresTemplate, SqliteTemplate
from support.postgres import Postgres, running
from support.servers import CPU_ENGINE, Server, free_port, nexus, stock_vllm
from support.verifier import ENGINE_FLAGS, PROMPTS, Verifier, complete_all

from shared.models.resolve import resolve

# A shell starts background jobs with Ctrl-C ignored, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No gateway of a test keeps anything, unless the test names a database.
os.environ["NEXUS_GATEWAY_DATABASE"] = ":memory:"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real server, shared by all tests."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres: Postgres) -> PostgresTemplate:
    """Databases of that server with the present tables."""
    return PostgresTemplate(postgres)


@pytest.fixture
def postgres_url(postgres_template: PostgresTemplate) -> Iterator[str]:
    """Address of a new database with the present tables."""
    address = postgres_template.copy()
    yield address
    postgres_template.drop(address)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> SqliteTemplate:
    """SQLite files with the present tables."""
    return SqliteTemplate(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a new database with the present tables, of each kind."""
    if request.param == "sqlite":
        template: SqliteTemplate = request.getfixturevalue("sqlite_template")
        return template.copy(tmp_path / "nexus.db")
    address: str = request.getfixturevalue("postgres_url")
    return address


@pytest.fixture(scope="session")
def small_model() -> Path:
    """SmolLM2-135M-Instruct, fetched if it is not there."""
    return resolve("smollm2-135m")


@pytest.fixture(scope="session")
def stock_greedy(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What stock vLLM answers greedily to `PROMPTS` at batch 8, without our plugin; it ends before ours starts."""
    port = free_port()
    argv = stock_vllm(small_model, "smollm2-135m", port, *ENGINE_FLAGS)
    server = Server(argv, tmp_path_factory.mktemp("stock") / "log", env=CPU_ENGINE)
    try:
        server.wait_healthy(f"http://127.0.0.1:{port}/health")
        return complete_all(f"http://127.0.0.1:{port}", PROMPTS, temperature=0)
    finally:
        server.stop()


@pytest.fixture(scope="session")
def verifier(small_model: Path, stock_greedy: list[list[int]]) -> Iterator[Verifier]:
    """A real `nexus verifier serve` in float32, batch 8, drafts of up to 8 tokens, shared by all tests.

    Its policy takes every step for equally long, any gain for enough and waiting for free, so that it verifies whatever
    is drafted, however bad, and the tests see what they ask for on any machine.
    """
    folder = Path(tempfile.mkdtemp(prefix="nx"))
    port = free_port()
    draft_port = f"ipc://{folder}/p"
    (folder / "flat.json").write_text(json.dumps({1: 0.05, 4096: 0.05}))
    arguments = ("verifier", "serve", "smollm2-135m", "--draft-port", draft_port, "--max-draft", "8")
    policy = ("--wait-price", "0", "--least-gain", "1", "--step-cost", str(folder / "flat.json"))
    server = Server(nexus(*arguments, *policy, "--port", str(port), *ENGINE_FLAGS), folder / "log", env=CPU_ENGINE)
    try:
        server.wait_healthy(f"http://127.0.0.1:{port}/health")
        yield Verifier(f"http://127.0.0.1:{port}", f"{draft_port}-0", small_model, server)
    finally:
        server.stop()
        shutil.rmtree(folder)
