"""Outermost layer: names the request, counts it, and answers every error that nothing else did."""

import re
import secrets
import time
from collections.abc import Callable

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloud.api.errors import internal_error, response_for
from cloud.api.metrics import Metrics
from cloud.api.openai import sse
from shared.errors import NexusError

Headers = Callable[[], list[tuple[bytes, bytes]]]
_LABEL = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
log = structlog.get_logger(__name__)


class RequestContext:
    """Sets `scope["state"]["request_id"]`; adds `x-request-id` and echoes a well-formed `x-client-request-id`.

    A route may set `scope["state"]["limits"]`: what gives the headers about the key's limits, for answers and errors.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(16)}"
        scope.setdefault("state", {})["request_id"] = request_id
        extra = [(b"x-request-id", request_id.encode())]
        extra += [
            (name, value)
            for name, value in scope["headers"]
            if name == b"x-client-request-id" and _LABEL.fullmatch(value)
        ]
        began = time.monotonic()
        status = 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                spent = str(round((time.monotonic() - began) * 1000)).encode()
                limits: Headers | None = scope["state"].get("limits")
                headers = [*message["headers"], *extra, (b"openai-processing-ms", spent), *(limits() if limits else ())]
                message = {**message, "headers": headers}
            await send(message)

        self._metrics.open_requests.inc()
        try:
            await self._app(scope, receive, send_named)
        except ClientDisconnect:
            return
        except Exception as error:
            if status:
                log.warning("answer cut off", request_id=request_id, error=type(error).__name__)
                return
            await self._response(error, request_id)(scope, receive, send_named)
        finally:
            self._metrics.open_requests.dec()
            route = getattr(scope.get("route"), "path", "other")
            # 499: the caller left before there was an answer.
            self._metrics.requests.labels(route, str(status or 499)).inc()
            self._metrics.request_s.labels(route).observe(time.monotonic() - began)
            log.info(
                "request",
                request_id=request_id,
                method=scope["method"],
                route=route,
                status=status or 499,
                ms=round((time.monotonic() - began) * 1000, 1),
            )

    @staticmethod
    def _response(error: Exception, request_id: str) -> Response:
        if isinstance(error, NexusError) and error.http_status != 500:
            return response_for(error)
        log.error("request failed", request_id=request_id, exc_info=error)
        return Response(sse.body(internal_error(request_id)), 500, {"content-type": "application/json"})
