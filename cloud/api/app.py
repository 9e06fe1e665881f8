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
from cloud.api.accounts.ports import AccountStore
from cloud.api.accounts.sql import SqlAccounts
from cloud.api.admission.desk import Desk
from cloud.api.admission.gate import Gate
from cloud.api.answer import Backend
from cloud.api.audit.memory import MemoryAudit
from cloud.api.audit.ports import AuditLog
from cloud.api.audit.sql import SqlAudit
from cloud.api.coordinator import Coordinator
from cloud.api.idempotency.memory import MemoryAnswers
from cloud.api.idempotency.replays import Replays
from cloud.api.idempotency.sql import SqlAnswers
from cloud.api.identity.identity import Identity
from cloud.api.identity.memory import MemoryIdentity
from cloud.api.identity.oauth import OAuthError
from cloud.api.identity.ports import IdentityStore
from cloud.api.identity.sql import SqlIdentity
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
from cloud.api.payouts.receipt_store import MemoryReceipts, SqlReceipts
from cloud.api.routes import (
    account,
    admin,
    admin_money,
    admin_people,
    developer,
    device,
    device_page,
    generate,
    models,
    openapi,
    owner,
    owner_money,
    probes,
    rails,
)
from cloud.api.settings import NO_KEY, GatewaySettings
from cloud.api.store.database import MEMORY, Database
from cloud.api.trading import MarketPlace, Trading
from cloud.api.treasury import make_treasury, receipts_for
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
    """Brings the database up to date. Raises `ConfigError` when it cannot be used, or when nobody has a key or an
    account, which could make one.
    """
    if settings.database == MEMORY:
        return
    database = Database(settings.database)
    await database.open()
    try:
        keys = settings.all_api_keys() or (await SqlAccounts(database).changes(0)).keys
        if not keys and not await SqlIdentity(database).accounts(1):
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
    ledger = settings.ledger
    receipts = receipts_for(database, settings.database, settings.payouts.receipt_key)
    keys, people, audit, books = _stores(database, ledger.hold_days, receipts)
    accounts = Accounts(keys, settings.all_api_keys())
    identity = Identity(people, audit, accounts, settings.to_identity())
    coordinator.nodes.guard(identity.nodes)
    spool = None if database is None else Spool(spool_folder(settings.database, ledger.spool))
    bookkeeper = Bookkeeper(
        books, accounts.budgets, gateway=coordinator.gateway_id, spool=spool, lease_s=ledger.lease_s
    )
    upkeep = Upkeep(books, bookkeeper, lease_s=ledger.lease_s)

    gate = Gate(settings.admission.to_gate())
    keeper = MarketKeeper(
        SqlMarket(database) if database else MemoryMarket(),
        settings.to_prices(),
        settings.market.to_rates(ledger.hold_days),
    )
    trading = Trading(keeper, metrics, place, time.time)
    desk = Desk(
        bookkeeper,
        gate,
        BookPrices(keeper),
        on_settled=lambda charge: metrics.cost.inc(charge.cost),
        terms=trading.terms,
    )
    treasury = make_treasury(
        receipts, database, books, accounts, keys, settings.payouts.to_payouts(), settings.payouts.to_stripe()
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
            stack.push_async_callback(identity.stop)
            await identity.start()
            stack.push_async_callback(bookkeeper.close)
            await bookkeeper.start()
            stack.push_async_callback(upkeep.stop)
            upkeep.start()
            stack.push_async_callback(treasury.stop)
            await treasury.start()
            stack.push_async_callback(keeper.stop)
            await keeper.start()
            stack.push_async_callback(replays.stop)
            await replays.start()
            stack.push_async_callback(coordinator.stop)
            await coordinator.start()
            yield

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.backend = Backend(pool, coordinator, metrics, limits)
    app.state.accounts = accounts
    app.state.identity = identity
    app.state.books = books
    app.state.bookkeeper = bookkeeper
    app.state.desk = desk
    app.state.market = keeper
    app.state.treasury = treasury
    app.state.replays = replays
    app.add_exception_handler(NexusError, errors.handle_nexus_error)
    app.add_exception_handler(HTTPException, errors.handle_http_exception)
    app.add_exception_handler(OAuthError, device.handle_oauth_error)
    for routes in (
        generate,
        models,
        account,
        owner,
        owner_money,
        developer,
        device,
        device_page,
        admin,
        admin_people,
        admin_money,
        rails,
        probes,
        openapi,
    ):
        app.include_router(routes.router)
    app.router.routes.append(WebSocketRoute(NODE_PATH, coordinator.nodes.node_endpoint))
    # The last one added is the outermost.
    app.add_middleware(
        Auth,
        ring=accounts.ring,
        people=identity.people,
        guarded=frozenset({"/metrics"}) if settings.metrics_need_key() else frozenset(),
    )
    app.add_middleware(BodyLimit, limit=limits.max_body_bytes)
    app.add_middleware(RequestContext, metrics=metrics)
    return app


def _stores(
    database: Database | None, hold_days: int, receipts: MemoryReceipts | SqlReceipts
) -> tuple[AccountStore, IdentityStore, AuditLog, Books]:
    """The books write receipts in the transactions in which they settle."""
    if database is not None and isinstance(receipts, SqlReceipts):
        books = SqlBooks(database, (receipts,), hold_days=hold_days)
        return SqlAccounts(database), SqlIdentity(database), SqlAudit(database), books
    audit = MemoryAudit()
    keys = MemoryAccounts(audit)
    hooks = (receipts,) if isinstance(receipts, MemoryReceipts) else ()
    return keys, MemoryIdentity(keys, audit), audit, MemoryBooks(keys, hooks, hold_days=hold_days)
