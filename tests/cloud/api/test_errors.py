"""Every error has the one shape, the right status, and nothing internal in it."""

import asyncio
import json

import openai
import pytest
from support.api_errors import check

from cloud.api.answer import GenerationResponse
from cloud.api.settings import Limits
from shared.errors import LocalMisuse

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GOOD = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


async def test_invalid_field_is_named(gateway):
    """400 with the field in `param`, for both endpoints, and nothing reaches the verifier."""
    check(await gateway.post(GOOD | {"top_p": 7}), 400, "invalid_request", "top_p")
    check(await gateway.post({"model": "tiny"}, COMPLETIONS), 400, "invalid_request", "prompt")
    check(await gateway.post(GOOD | {"tools": [{}]}), 400, "invalid_request", "tools[0].type")
    assert gateway.verifier.requests == []


async def test_malformed_json(gateway):
    """What is no JSON object is 400."""
    for body in (b"{", b"", b"[1]", b'"x"', b'{"model": NaN}', b"\xff\xfe"):
        check(await gateway.post(body), 400, "invalid_request")


async def test_null_means_absent(gateway):
    """A null is as if the field were not there, also for fields that are not supported yet."""
    body = GOOD | {"temperature": None, "tools": None, "stop": None, "nexus": {"privacy": None}, "seed": None}
    assert (await gateway.post(body)).status_code == 200


async def test_missing_and_wrong_keys(gateway):
    """401 for no key, a malformed header and an unknown key; the models list needs a key too."""
    for headers in ({"authorization": ""}, {"authorization": "Basic x"}, {"authorization": "Bearer nope"}):
        response = await gateway.post(GOOD, headers=headers)
        check(response, 401, "invalid_api_key")
        assert response.headers["www-authenticate"] == "Bearer"
        assert (await gateway.http.get("/v1/models", headers=headers)).status_code == 401
    with pytest.raises(openai.AuthenticationError):
        await gateway.client.with_options(api_key="wrong-key").models.list()


async def test_unknown_addresses_and_methods(gateway):
    """404 and 405 of the framework have the shape too, inside and outside /v1."""
    for path in ("/v1/nothing", "/v1/", "/v1/nodes/connect", "/docs", "/v1/chat/completions/"):
        check(await gateway.http.get(path), 404, "not_found")
    check(await gateway.http.get(CHAT), 405, "method_not_allowed")


async def test_unserved_model_lists_what_is_served(gateway):
    """404 model_not_found with the served names."""
    message = check(await gateway.post(GOOD | {"model": "huge"}), 404, "model_not_found", "model")
    assert "`huge`" in message and "`tiny`" in message


class TestBodyLimit:
    """The limit is decided before parsing."""

    @pytest.fixture
    def limits(self):
        return Limits(max_body_bytes=1024, shutdown_s=1)

    async def test_declared_length(self, gateway):
        """A declared length over the limit is 413."""
        check(await gateway.post(b"x" * 2000), 413, "payload_too_large")

    async def test_chunked_body(self, gateway):
        """So is a body without a declared length, once too much has come."""

        async def body():
            for _ in range(20):
                yield b"x" * 100

        check(await gateway.http.post(CHAT, content=body()), 413, "payload_too_large")


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (
            "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input "
            "tokens, which exceeds this limit even without any output tokens. Please reduce the length.",
            ("2048", "at least 2049"),
        ),
        (
            "This model's maximum context length is 2048 tokens. However, your prompt contains 99999 characters "
            "(more than 9000 characters, which is the upper bound for 2048 input tokens).",
            ("2048", "99999"),
        ),
        ("max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", ("2048", "no room")),
        ("Input length (3000) exceeds model's maximum context length (2048).", ("2048", "3000")),
    ],
)
async def test_prompt_that_does_not_fit(gateway, message, numbers):
    """400 context_length_exceeded with the numbers, and `param` is the field of the prompt."""
    gateway.verifier.status = 400
    gateway.verifier.body = {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}
    told = check(await gateway.post(GOOD), 400, "context_length_exceeded", "messages")
    assert all(number in told for number in numbers)
    check(await gateway.post({"model": "tiny", "prompt": "x"}, COMPLETIONS), 400, "context_length_exceeded", "prompt")
    check(await gateway.post(GOOD | {"stream": True}), 400, "context_length_exceeded", "messages")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Grammar error: Invalid type: no-such-type", "Invalid type: no-such-type"),
        ("The provided JSON schema contains features not supported by xgrammar.", "does not support"),
        ("Failed to convert the grammar at /opt/x/y.py", "does not support"),
    ],
)
async def test_a_schema_that_the_engine_refuses(gateway, text, told):
    """400 on response_format, in the engine's words as far as they help."""
    gateway.verifier.status = 400
    gateway.verifier.body = {"error": {"message": text, "type": "BadRequestError", "param": None, "code": 400}}
    message = check(await gateway.post(GOOD), 400, "invalid_request", "response_format")
    assert told in message and "xgrammar" not in message and "/opt" not in message


async def test_too_many_output_tokens(gateway):
    """An output limit beyond the context is 400 on max_tokens."""
    gateway.verifier.status = 400
    text = "max_tokens=9000 cannot be greater than max_model_len=2048. Please request fewer output tokens."
    gateway.verifier.body = {"error": {"message": text, "type": "BadRequestError", "param": None, "code": 400}}
    message = check(await gateway.post(GOOD), 400, "invalid_request", "max_tokens")
    assert "9000" in message and "2048" in message


@pytest.mark.parametrize(
    ("status", "told", "code", "param"),
    [
        (500, 502, "upstream_error", None),
        (503, 503, "unavailable", None),
        (404, 404, "model_not_found", "model"),
        (401, 502, "upstream_error", None),
        (400, 400, "invalid_request", None),
    ],
)
@pytest.mark.parametrize("body", ["<html>nginx</html>", {"error": {"message": "died in /opt/vllm/x.py", "code": 1}}])
async def test_verifier_errors_show_nothing_internal(gateway, status, told, code, param, body):
    """Statuses are mapped, texts with internals are replaced."""
    gateway.verifier.status, gateway.verifier.body = status, body
    message = check(await gateway.post(GOOD | {"stream": True}), told, code, param)
    assert "/opt" not in message and "html" not in message


async def test_useful_words_of_the_verifier_are_kept(gateway):
    """A plain explanation of a bad request reaches the caller, without the engine's appendix."""
    gateway.verifier.status = 400
    text = "Conversation roles must alternate. (parameter=messages, value=3)"
    gateway.verifier.body = {"error": {"message": text, "type": "BadRequestError", "param": None, "code": 400}}
    assert check(await gateway.post(GOOD), 400, "invalid_request") == "Conversation roles must alternate."


@pytest.mark.parametrize("fault", [{"break_after": 1}, {"error_after": 1}, {"finish": "abort"}])
async def test_failure_in_mid_stream(gateway, fault):
    """One error event ends the stream: no finish, no [DONE]. A whole answer gets 502."""
    for name, value in fault.items():
        setattr(gateway.verifier, name, value)
    response = await gateway.post(GOOD | {"stream": True})
    assert response.status_code == 200
    *before, last = [json.loads(d[6:]) for d in response.text.split("\n\n") if d]
    assert set(last) == {"error"} and set(last["error"]) == {"message", "type", "param", "code"}
    assert last["error"]["code"] == "upstream_error" and "/opt" not in last["error"]["message"]
    assert before and all(c["choices"][0]["finish_reason"] is None for c in before)
    check(await gateway.post(GOOD), 502, "upstream_error")
    assert all(h.released.is_set() for h in gateway.coordinator.handles.values())


async def test_refusal_that_comes_in_the_stream(gateway):
    """vLLM refuses some requests only after it sent 200: the caller still gets the real status."""
    gateway.verifier.error_after = 0
    gateway.verifier.error = {"message": "Token id 99 is out of vocabulary", "param": None, "code": 400}
    for stream in (False, True):
        body = {"model": "tiny", "prompt": [99], "stream": stream}
        message = check(await gateway.post(body, COMPLETIONS), 400, "invalid_request")
        assert message == "Token id 99 is out of vocabulary"


async def test_client_raises_on_failure_in_mid_stream(gateway):
    """The official client turns the error event into an exception."""
    gateway.verifier.error_after = 1
    stream = await gateway.client.chat.completions.create(**GOOD, stream=True)
    with pytest.raises(openai.APIError, match="verifier failed"):
        async for _ in stream:
            pass


@pytest.mark.parametrize("kind", [RuntimeError, LocalMisuse])
async def test_unforeseen_exception_is_a_bare_500(gateway, monkeypatch, kind):
    """Nothing of an unforeseen exception is shown, nor of our own misuse; the request id is."""

    async def broken(*_):
        raise kind("secret detail")

    monkeypatch.setattr(GenerationResponse, "_collect", broken)
    response = await gateway.post(GOOD)
    message = check(response, 500, "internal_error")
    assert "secret" not in message and response.headers["x-request-id"] in message


async def test_unforeseen_exception_in_mid_stream(gateway, monkeypatch):
    """Once the stream has begun it is an error event."""

    def broken(*_, **__):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(GenerationResponse, "_nexus", broken)
    response = await gateway.post(GOOD | {"stream": True})
    last = json.loads(response.text.strip().split("\n\n")[-1][6:])
    assert last["error"]["code"] == "internal_error" and "secret" not in last["error"]["message"]


async def test_request_ids(gateway):
    """Ours on every answer; the caller's is echoed when it is safe."""
    response = await gateway.post(GOOD, headers={"x-client-request-id": "abc-1"})
    assert response.headers["x-client-request-id"] == "abc-1"
    assert int(response.headers["openai-processing-ms"]) >= 0
    response = await gateway.post(GOOD, headers={"x-client-request-id": "a b\x01" + "c" * 200})
    assert "x-client-request-id" not in response.headers


async def test_unreachable_verifier(gateway):
    """503 with Retry-After when nothing listens where the verifier should be; health says so as well."""
    client = gateway.pool_client()
    client._url = "http://127.0.0.1:9"
    check(await gateway.post(GOOD), 503, "unavailable")
    check(await gateway.http.get("/v1/models"), 503, "unavailable")
    health = await gateway.http.get("/health")
    assert health.status_code == 503 and health.json()["status"] == "unavailable"


async def test_many_at_once(gateway):
    """Concurrent requests do not mix."""
    answers = await asyncio.gather(*(gateway.post(GOOD | {"seed": i}) for i in range(20)))
    assert [a.json()["nexus"]["seed"] for a in answers] == list(range(20))
