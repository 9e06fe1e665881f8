"""`GET /v1/models`: what the attached verifiers serve."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.admission.desk import Desk
from cloud.api.answer import Backend
from cloud.api.openai import sse
from cloud.api.openai.objects import Json, model_object
from cloud.api.upstream.client import ServedModel

router = APIRouter(prefix="/v1/models")


@router.get("")
async def list_models(request: Request) -> Response:
    backend: Backend = request.app.state.backend
    models = await backend.pool.models()
    return _json({"object": "list", "data": [_card(request, model) for model in models]})


@router.get("/{name:path}")
async def get_model(request: Request, name: str) -> Response:
    backend: Backend = request.app.state.backend
    return _json(_card(request, await backend.pool.find(name)))


def _card(request: Request, model: ServedModel) -> Json:
    backend: Backend = request.app.state.backend
    desk: Desk = request.app.state.desk
    return model_object(model, backend.coordinator.served(model.name), desk.price(model.name))


def _json(data: Json) -> Response:
    return Response(sse.body(data), media_type="application/json")
