"""`GET /v1/models`: what the attached verifiers serve."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.answer import Backend
from cloud.api.openai import sse
from cloud.api.openai.objects import Json, model_object

router = APIRouter(prefix="/v1/models")


@router.get("")
async def list_models(request: Request) -> Response:
    backend: Backend = request.app.state.backend
    models = await backend.pool.models()
    data = [model_object(model, backend.coordinator.served(model.name)) for model in models]
    return _json({"object": "list", "data": data})


@router.get("/{name:path}")
async def get_model(request: Request, name: str) -> Response:
    backend: Backend = request.app.state.backend
    return _json(model_object(await backend.pool.find(name), backend.coordinator.served(name)))


def _json(data: Json) -> Response:
    return Response(sse.body(data), media_type="application/json")
