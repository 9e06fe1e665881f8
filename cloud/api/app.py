"""Composition root of the gateway: puts settings, verifiers, broker and routes together."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import WebSocketRoute

from cloud.api import errors, ports
from cloud.api.accounts.accounts import Accounts
from cloud.api.accounts.memory import MemoryAccounts
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.admission.desk import Desk
from cloud.api.admission.gate import Gate
from cloud.api.answer import Backend
from cloud.api.coordinator import Coordinator
from cloud.api.idempotency.memory import MemoryAnswers
from cloud.api.idempotency.replays import Replays
from cloud.api.idempotency.sql import SqlAnswers
from cloud.api.ledger.bookkeeper import Bookkeeper
from cloud.api.ledger.memory import MemoryBooks
from cloud.api.ledger.ports import Books
from cloud.api.ledger.settings import spool_folder
from cloud.api.ledger.spool import Spool
from cloud.api.ledger.sql import SqlBooks
from cloud.api.ledger.upkeep import Upkeep
from cloud.api.market.keeper import BookPrices, MarketKeeper
from cloud.api.market.memory import MemoryMarket
from cloud.api.market.sql import SqlMarket
from cloud.api.metrics import Metrics
from cloud.api.middleware.auth import Auth
from cloud.api.middleware.body_limit import BodyLimit
from cloud.api.middleware.context import RequestContext
from cloud.api.routes import admin, generate, models, openapi, probes
from cloud.api.settings import NO_KEY, GatewaySettings
from cloud.api.store.database import MEMORY, Database
from cloud.api.trading import MarketPlace, Trading
from cloud.api.upstream.client import VerifierClient
from cloud.api.upstream.pool import VerifierPool
from cloud.api.upstream.transport import StreamTransport
from shared.errors import ConfigError, NexusError

NODE_PATH = "/v1/nodes/connect"


def create_gateway(settings: GatewaySettings) -> FastAPI:
    """The application with the real broker, draft ports and nodes behind it."""
    market = settings.market.to_market()
    coordinator = Coordinator(
        settings.to_draft_ports(), broker=settings.broker.to_broker(), nodes=settings.to_nodes(), market=market
    )
    return create_app(settings, coordinator, coordinator if market is not None else None)


async def prepare(settings: GatewaySettings) -> None:
    """Brings the database up to date. Raises `ConfigError` when it cannot be used, or when nobody has a key."""
    if settings.database == MEMORY:
        return
    database = Database(settings.database)
    await database.open()
    try:
        if not settings.all_api_keys() and not (await SqlAccounts(database).changes(0)).keys:
            raise ConfigError(NO_KEY)
    finally:
        await database.close()


def create_app(settings: GatewaySettings, coordinator: ports.Coordinator, place: MarketPlace | None = None) -> FastAPI:
    """The ASGI application. It starts and stops `coordinator` with its lifespan. `place`: where drafts are traded."""
    limits = settings.limits
    http = httpx2.AsyncClient(
        transport=StreamTransport(),
        timeout=httpx2.Timeout(limits.read_timeout_s, connect=limits.connect_timeout_s, pool=None),
        trust_env=False,
    )
    clients = [
        VerifierClient(http, v.url, v.api_key.get_secret_value() if v.api_key else None) for v in settings.verifiers
    ]
    metrics = Metrics(coordinator.snapshot)
    pool = VerifierPool(clients, probe_timeout_s=limits.probe_timeout_s)

    database = None if settings.database == MEMORY else Database(settings.database)
    store = SqlAccounts(database) if database else MemoryAccounts()
    accounts = Accounts(store, settings.all_api_keys())
    ledger = settings.ledger
    books: Books
    spool = None
    if isinstance(store, MemoryAccounts):
        books = MemoryBooks(store, hold_days=ledger.hold_days)
    else:
        books = SqlBooks(store.database, hold_days=ledger.hold_days)
        spool = Spool(spool_folder(settings.database, ledger.spool))
    bookkeeper = Bookkeeper(
        books, accounts.budgets, gateway=coordinator.gateway_id, spool=spool, lease_s=ledger.lease_s
    )
    upkeep = Upkeep(books, bookkeeper, lease_s=ledger.lease_s)

    gate = Gate(settings.admission.to_gate())
    keeper = MarketKeeper(
        SqlMarket(database) if database else MemoryMarket(), settings.to_prices(), settings.market.to_rates(ledger.hold_days)
    )
    trading = Trading(keeper, metrics, place, time.time)
    desk = Desk(
        bookkeeper,
        gate,
        BookPrices(keeper),
        on_settled=lambda charge: metrics.cost.inc(charge.cost),
        terms=trading.terms,
    )
    replays = Replays(SqlAnswers(database) if database else MemoryAnswers(), settings.replays.to_replays())
    metrics.waiting.set_function(lambda: gate.waiting)
    metrics.running.set_function(lambda: gate.requests)
    metrics.unrecorded.set_function(lambda: bookkeeper.waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(http.aclose)
            stack.push_async_callback(pool.close)
            if database is not None:
                stack.push_async_callback(database.close)
                await database.open()
            stack.push_async_callback(accounts.stop)
            await accounts.start()
            stack.push_async_callback(keeper.stop)
            await keeper.start()
            stack.push_async_callback(bookkeeper.close)
            await bookkeeper.start()
            stack.push_async_callback(upkeep.stop)
            upkeep.start()
            stack.push_async_callback(replays.stop)
            await replays.start()
            stack.push_async_callback(coordinator.stop)
            await coordinator.start()
            yield

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.backend = Backend(pool, coordinator, metrics, limits)
    app.state.accounts = accounts
    app.state.books = books
    app.state.bookkeeper = bookkeeper
    app.state.desk = desk
    app.state.market = keeper
    app.state.replays = replays
    app.add_exception_handler(NexusError, errors.handle_nexus_error)
    app.add_exception_handler(HTTPException, errors.handle_http_exception)
    for router in (generate.router, models.router, probes.router, admin.router, openapi.router):
        app.include_router(router)
    app.router.routes.append(WebSocketRoute(NODE_PATH, coordinator.nodes.node_endpoint))
    # The last one added is the outermost.
    app.add_middleware(
        Auth,
        ring=accounts.ring,
        guarded=frozenset({"/metrics"}) if settings.metrics_need_key() else frozenset(),
    )
    app.add_middleware(BodyLimit, limit=limits.max_body_bytes)
    app.add_middleware(RequestContext, metrics=metrics)
    return app
