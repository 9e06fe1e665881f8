"""`GET /v1/models`: what the attached verifiers serve."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from cloud.api.openai import sse
from cloud.api.openai.objects import Json, model_object

router = APIRouter(prefix="/v1/models")


@router.get("")
async def list_models(request: Request) -> Response:
    models = await request.app.state.backend.pool.models()
    return _json({"object": "list", "data": [model_object(model) for model in models]})


@router.get("/{name:path}")
async def get_model(request: Request, name: str) -> Response:
    return _json(model_object(await request.app.state.backend.pool.find(name)))


def _json(data: Json) -> Response:
    return Response(sse.body(data), media_type="application/json")
