"""`GET /openapi.json`: what this API is, for programs; no key is needed."""

from fastapi import APIRouter
from starlette.responses import Response

from cloud.api.openapi.document import rendered

router = APIRouter()


@router.get("/openapi.json")
async def openapi() -> Response:
    return Response(rendered(), media_type="application/json")
