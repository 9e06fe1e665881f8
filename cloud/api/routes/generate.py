"""`POST /v1/chat/completions` and `POST /v1/completions`."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.answer import Backend, GenerationResponse
from cloud.api.openai.chat import CHAT_PATH, ChatRequest
from cloud.api.openai.common import parse
from cloud.api.openai.completions import COMPLETIONS_PATH, CompletionRequest
from cloud.api.openai.job import Job

router = APIRouter()


@router.post(CHAT_PATH)
async def chat_completions(request: Request) -> Response:
    return await _generate(request, parse(await request.body(), ChatRequest).to_job())


@router.post(COMPLETIONS_PATH)
async def completions(request: Request) -> Response:
    return await _generate(request, parse(await request.body(), CompletionRequest).to_job())


async def _generate(request: Request, job: Job) -> Response:
    backend: Backend = request.app.state.backend
    await backend.pool.find(job.model)
    job.check(backend.coordinator.served(job.model))
    return GenerationResponse(job, backend)
