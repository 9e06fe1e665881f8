"""What every error of the gateway looks like."""

from typing import Any


def check(response: Any, status: int, code: str, param: str | None = None) -> str:
    """The one assertion about errors; gives the message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, str] = body["error"]
    assert (error["code"], error["param"]) == (code, param), error
    assert ("retry-after" in response.headers) == (status in (429, 503))
    assert "Traceback" not in error["message"] and "vllm" not in error["message"].lower()
    return error["message"]
