"""`POST /v1/chat/completions` and `POST /v1/completions`."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.accounts.keys import ApiKey
from cloud.api.admission.desk import Desk
from cloud.api.admission.ticket import Ask
from cloud.api.answer import Backend
from cloud.api.exchange import Exchange, Order, with_default_privacy
from cloud.api.idempotency.answers import call_from
from cloud.api.openai.chat import CHAT_PATH, ChatRequest
from cloud.api.openai.common import read
from cloud.api.openai.completions import COMPLETIONS_PATH, CompletionRequest
from cloud.api.openai.job import Job
from shared.errors import RateLimited

router = APIRouter()


@router.post(CHAT_PATH)
async def chat_completions(request: Request) -> Response:
    body = await _body(request)
    return await _generate(request, body, (await read(body, ChatRequest)).to_job())


@router.post(COMPLETIONS_PATH)
async def completions(request: Request) -> Response:
    body = await _body(request)
    return await _generate(request, body, (await read(body, CompletionRequest)).to_job())


async def _body(request: Request) -> bytes:
    """Counts the request before it is read: a wrong one costs work too."""
    backend: Backend = request.app.state.backend
    desk: Desk = request.app.state.desk
    key: ApiKey = request.state.api_key
    request.state.limits = lambda: desk.headers(key)
    try:
        desk.count(key)
    except RateLimited as error:
        backend.metrics.refused.labels(error.code).inc()
        raise
    return await request.body()


async def _generate(request: Request, body: bytes, job: Job) -> Response:
    backend: Backend = request.app.state.backend
    desk: Desk = request.app.state.desk
    key: ApiKey = request.state.api_key
    model = await backend.pool.find(job.model)
    job.check(backend.coordinator.served(job.model))
    ask = Ask(
        request_id=request.state.request_id,
        model=job.model,
        path=job.path,
        streamed=job.stream,
        body_bytes=len(body),
        output_limit=job.payload.get("max_tokens"),
        choices=job.n,
        context=model.context_length,
    )
    desk.check_price(ask, job.max_price)
    call = call_from(request.scope["headers"], key.id, job.path, body, job.seed)
    return Exchange(Order(with_default_privacy(job, key), key, ask, call), backend, desk, request.app.state.replays)
