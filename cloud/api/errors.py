"""The one error shape of the HTTP side, for our own errors and for the framework's."""

import math
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cloud.api.openai import sse
from shared.errors import NexusError

RETRY_AFTER_S = 2
"""What `Retry-After` says where no better number is known."""

_STATUS_WORDS = {
    404: ("not_found", "There is nothing at this address; the API is under /v1."),
    405: ("method_not_allowed", "This address does not take this method."),
    413: ("payload_too_large", "The request body is too large."),
}


def error_object(error: NexusError) -> dict[str, Any]:
    return _object(error.message, error.type, error.param, error.code)


def internal_error(request_id: str) -> dict[str, Any]:
    """For an exception that nobody foresaw: nothing of it is shown."""
    message = f"Something failed inside the gateway. Quote request {request_id} when you report it."
    return _object(message, "server_error", None, "internal_error")


def response_for(error: NexusError) -> Response:
    headers = {"content-type": "application/json"}
    if error.http_status in (429, 503):
        after = RETRY_AFTER_S if error.retry_after_s is None else error.retry_after_s
        headers["retry-after"] = str(max(math.ceil(after), 1))
    if error.http_status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(sse.body(error_object(error)), error.http_status, headers)


async def handle_nexus_error(_: Request, error: Exception) -> Response:
    """Errors of status 500 are our own faults: the outermost layer logs them and shows nothing of them."""
    if not isinstance(error, NexusError) or error.http_status == 500:
        raise error
    return response_for(error)


async def handle_http_exception(_: Request, error: Exception) -> Response:
    """The framework's own answers, such as 404 and 405, in our shape."""
    if not isinstance(error, HTTPException):
        raise error
    code, message = _STATUS_WORDS.get(error.status_code, ("invalid_request", "The request cannot be served."))
    headers = {**(error.headers or {}), "content-type": "application/json"}
    body = sse.body(_object(message, "invalid_request_error", None, code))
    return Response(body, error.status_code, headers)


def _object(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
