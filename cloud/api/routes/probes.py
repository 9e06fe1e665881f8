"""`GET /health` for load balancers and `GET /metrics` for Prometheus."""

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from cloud.api.answer import Backend
from cloud.api.openai import sse

router = APIRouter()


@router.get("/health")
async def health(request: Request) -> Response:
    """503 when no verifier can be reached, and while the gateway drains; degraded when some verifier cannot be reached,
    or some draft port is not attached.
    """
    backend: Backend = request.app.state.backend
    reachable = await backend.pool.reachable()
    total = backend.pool.size
    figures = backend.coordinator.snapshot()
    attached, ports = int(figures.get("verifiers", 0)), int(figures.get("verifiers_configured", 0))
    draining = request.app.state.desk.gate.draining
    complete = reachable == total and attached == ports
    body = {
        "status": "draining" if draining else "ok" if complete else "degraded" if reachable else "unavailable",
        "verifiers": {"configured": total, "reachable": reachable},
        "draft_ports": {"configured": ports, "attached": attached},
        "nodes": int(figures.get("nodes", 0)),
    }
    return Response(sse.body(body), 200 if reachable and not draining else 503, media_type="application/json")


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    backend: Backend = request.app.state.backend
    return Response(backend.metrics.render(), headers={"content-type": CONTENT_TYPE_LATEST})
