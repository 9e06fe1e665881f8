"""What stands between every gateway test and its client finds answers that are not as published."""

import httpx2
import pytest
from starlette.responses import JSONResponse, Response
from support.published import Published

HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("/v1/models", JSONResponse({"object": "list"}), "'data' is a required property"),
        ("/v1/models/x", JSONResponse({"error": {"message": "no"}}, 404), "required property"),
        ("/v1/nothing", Response("<html>", 404, media_type="text/html"), "content type"),
        ("/v1/chat/completions", Response("data: [DONE]\n\n", media_type="text/event-stream"), "never gets"),
        ("/v1/completions", JSONResponse({}, 418), "status 418 is not documented"),
        ("/v1/completions", JSONResponse({}, 503), "no header Retry-After"),
        ("/health", Response("ok", media_type="text/plain"), "content type 'text/plain' is not documented"),
        ("/health", JSONResponse({}, headers={"x-request-id": "req_1"}), ""),
    ],
)
async def test_a_wrong_answer_fails_the_check(path, answer, words):
    """Of each kind; what is not under /v1 is not judged."""
    published = Published(answer)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(published), base_url="http://x") as http:
        await http.request("GET" if path == "/health" else "POST", path, json=HELLO)
    if words:
        with pytest.raises(AssertionError, match=words):
            published.check()
    else:
        published.check()
