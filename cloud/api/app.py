"""Composition root of the gateway: puts settings, verifiers, broker and routes together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import WebSocketRoute

from cloud.api import errors, ports
from cloud.api.answer import Backend
from cloud.api.coordinator import Coordinator
from cloud.api.metrics import Metrics
from cloud.api.middleware.auth import Auth, KeyRing
from cloud.api.middleware.body_limit import BodyLimit
from cloud.api.middleware.context import RequestContext
from cloud.api.routes import generate, models, probes
from cloud.api.settings import GatewaySettings
from cloud.api.upstream.client import VerifierClient
from cloud.api.upstream.pool import VerifierPool
from shared.errors import NexusError

NODE_PATH = "/v1/nodes/connect"


def create_gateway(settings: GatewaySettings) -> FastAPI:
    """The application with the real broker, draft ports and nodes behind it."""
    coordinator = Coordinator(settings.to_draft_ports(), broker=settings.broker.to_broker(), nodes=settings.to_nodes())
    return create_app(settings, coordinator)


def create_app(settings: GatewaySettings, coordinator: ports.Coordinator) -> FastAPI:
    """The ASGI application. It starts and stops `coordinator` with its lifespan."""
    limits = settings.limits
    http = httpx2.AsyncClient(
        timeout=httpx2.Timeout(limits.read_timeout_s, connect=limits.connect_timeout_s, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        trust_env=False,
    )
    clients = [
        VerifierClient(http, v.url, v.api_key.get_secret_value() if v.api_key else None) for v in settings.verifiers
    ]
    metrics = Metrics(coordinator.snapshot)
    pool = VerifierPool(clients, probe_timeout_s=limits.probe_timeout_s)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await coordinator.start()
        try:
            yield
        finally:
            await coordinator.stop()
            await pool.close()
            await http.aclose()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.backend = Backend(pool, coordinator, metrics, limits)
    app.add_exception_handler(NexusError, errors.handle_nexus_error)
    app.add_exception_handler(HTTPException, errors.handle_http_exception)
    for router in (generate.router, models.router, probes.router):
        app.include_router(router)
    app.router.routes.append(WebSocketRoute(NODE_PATH, coordinator.nodes.node_endpoint))
    # The last one added is the outermost.
    app.add_middleware(
        Auth,
        keys=KeyRing(settings.all_api_keys()),
        also=frozenset({"/metrics"}) if settings.metrics_need_key() else frozenset(),
    )
    app.add_middleware(BodyLimit, limit=limits.max_body_bytes)
    app.add_middleware(RequestContext, metrics=metrics)
    return app
