"""The gateway before a played engine, in a thread of its own, with a place to spoil what it says."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest
import uvicorn
from starlette.types import ASGIApp
from support import played_vllm
from support.defects import Spoiled
from support.identity import PASSWORD
from support.published import Published

from cloud.api.accounts.keys import SCOPES, Terms
from cloud.api.accounts.money import Nano
from cloud.api.app import create_app
from cloud.api.audit.entry import SYSTEM
from cloud.api.coordinator import Coordinator, Served
from cloud.api.identity.account import ROLES
from cloud.api.server import uvicorn_config
from cloud.api.settings import GatewaySettings, VerifierSettings
from cloud.api.store.database import MEMORY


@dataclass
class Judged:
    """What a test judges: its address and key, and the middleware that can spoil it."""

    url: str
    spoiled: Spoiled
    key: str
    new_session: Callable[[], str] = str
    """Signs somebody new in, with every role; gives the token."""


@contextlib.contextmanager
def running(config: uvicorn.Config, then: Callable[[], Awaitable[None]] | None = None) -> Iterator[str]:
    """A server in a thread, where `then` runs once it has started; gives its address."""
    server = uvicorn.Server(config)
    ready = threading.Event()
    startup = server.startup

    async def startup_and_tell(sockets: object = None) -> None:
        try:
            await startup()
            if then is not None:
                await then()
        finally:
            ready.set()

    server.startup = startup_and_tell  # type: ignore[method-assign, assignment]
    thread = threading.Thread(target=lambda: asyncio.run(server._serve()))
    thread.start()
    try:
        assert ready.wait(60) and server.started
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


class Attached(Coordinator):
    """Knows the engine, as if its draft port were attached."""

    def served(self, model: str) -> Served | None:
        return Served(vocabulary=len(played_vllm.WORDS), tools=True, effort=False, sampler="played")


TERMS = Terms(
    name="conformance",
    scopes=frozenset(SCOPES),
    requests_per_minute=10**6,
    tokens_per_minute=10**9,
    concurrent_streams=100,
    monthly_budget=Nano(10**15),
)
"""A key that may do everything and has limits that no test reaches."""


@contextlib.contextmanager
def gateway_before(engine: ASGIApp, folder: str) -> Iterator[Judged]:
    """The real gateway with prices, without nodes, and a key of the kind that people get."""
    config = uvicorn.Config(engine, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    with running(config) as engine_url:
        settings = GatewaySettings(
            port=0,
            api_keys=["nx_key-of-the-settings"],
            verifiers=[VerifierSettings(url=engine_url, draft_ports=[f"ipc://{folder}/p-0"])],
            limits={"shutdown_s": 1},
            prices={played_vllm.MODEL: {"prompt": "0.000001", "completion": "0.000003"}},
            database=MEMORY,
            identity={"sign_up": True, "argon2_memory_kib": 7168, "argon2_passes": 1, "argon2_lanes": 1},
        )
        gateway = create_app(settings, Attached(settings.to_draft_ports()))
        published = Published(gateway)
        spoiled = Spoiled(published)
        people = gateway.state.identity.people
        secrets: list[str] = []
        numbers = itertools.count()
        loops: list[asyncio.AbstractEventLoop] = []

        async def give_key() -> None:
            secrets.append((await gateway.state.accounts.create(TERMS)).secret)
            loops.append(asyncio.get_running_loop())

        async def sign_in() -> str:
            number = next(numbers)
            email = f"person{number}@example.com"
            await people.create(email, "Everybody", ROLES, PASSWORD, SYSTEM)
            return (await people.sign_in(email, PASSWORD, address=f"test-{number}", client="test"))[1].token

        def new_session() -> str:
            return asyncio.run_coroutine_threadsafe(sign_in(), loops[0]).result(60)

        with running(uvicorn_config(spoiled, settings), give_key) as url:
            yield Judged(url + "/v1", spoiled, secrets[0], new_session)
        published.check()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """One for all tests of a module, right until a test spoils it."""
    with gateway_before(played_vllm.app(), str(tmp_path_factory.mktemp("ports"))) as served:
        yield served


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """Before an engine that takes its time, so that a caller can leave in the middle."""
    with gateway_before(played_vllm.app(pause_s=0.02), str(tmp_path_factory.mktemp("ports"))) as served:
        yield served


@pytest.fixture(autouse=True)
def whole_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a spoiled server behind."""
    yield
    for name in ("served", "slow"):
        if name in request.fixturenames:
            spoiled = request.getfixturevalue(name).spoiled
            crash, spoiled.defect, spoiled.crash = spoiled.crash, None, None
            assert crash is None, repr(crash)
