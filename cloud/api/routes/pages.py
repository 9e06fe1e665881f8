"""Answers and questions of the routes that are ours alone."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from cloud.api.openai import sse
from shared.errors import InvalidInput

PAGE_MAX: Final = 1000
"""Most entries of one page."""
PAGE: Final = 100


def answer(data: dict[str, Any], status: int = 200) -> Response:
    """JSON that nobody keeps: it is about accounts and keys."""
    headers = {"cache-control": "no-store"}
    return Response(sse.body(data), status, headers, media_type="application/json")


def page(entries: list[dict[str, Any]], limit: int, last: str | int | None) -> Response:
    """A list of at most `limit` entries; `last` is what the next page is asked for with, if there is one."""
    more = len(entries) >= limit
    return answer({"object": "list", "data": entries, "has_more": more, "last": last if more else None})


def limit_of(request: Request) -> int:
    """The query parameter `limit`. Raises `InvalidInput`."""
    return number_of(request, "limit", PAGE, PAGE_MAX)


def number_of(request: Request, name: str, default: int, most: int) -> int:
    """A query parameter that is a whole number from 1 on. Raises `InvalidInput`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:20]) <= most:
        raise InvalidInput(f"Invalid value for `{name}`: it must be a whole number from 1 to {most}.", param=name)
    return int(text)
