"""Requests made from our own OpenAPI document: no answer is a server error, or of a kind that the document lacks."""

import os

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.defects import Defect, every_chunk, header, instead
from support.played_vllm import MODEL

from cloud.api.openapi.document import document

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(document())
FITTING, WRONG = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
NOTHING_WRONG = {
    *(("get", path) for path in ("/health", "/metrics", "/openapi.json", "/device", "/receipts/keys")),
    *(("get", f"/v1/owner/{name}") for name in ("payouts", "earnings", "nodes")),
    *(("get", f"/v1/developer/{name}") for name in ("usage", "requests")),
    ("post", "/webhooks/stripe"),
}
"""Without a path, a body and parameters that some text does not fit, no request can break the document."""
OPERATIONS = [result.ok() for result in SCHEMA.get_all_operations()]
TRIED = [
    pytest.param(each, mode, id=f"{each.method.upper()} {each.path} {mode.value}")
    for each in OPERATIONS
    for mode in (FITTING, WRONG)
    if mode is FITTING or (each.method.lower(), each.path) not in NOTHING_WRONG
]


def token_for(served, operation):
    """What opens the address: a session of a person, who may do everything, or a key."""
    security = operation.definition.raw.get("security", [{"key": []}])
    return served.new_session() if {"session": []} in security else served.key


def try_requests(served, operation, mode, count, *, fresh=False):
    """`count` requests that fit the document, or break it in one place; other ones each time when `fresh`."""
    checks = CHECKS + ([negative_data_rejection] if mode is WRONG else [])
    root = served.url.removesuffix("/v1")
    statuses = set()
    with requests.Session() as session:
        session.trust_env = False
        session.headers["authorization"] = f"Bearer {token_for(served, operation)}"

        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            derandomize=not fresh,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def one(case):
            name = case.body.get("model") if isinstance(case.body, dict) else None
            if isinstance(name, str) and 1 <= len(name) <= 256:
                case.body["model"] = MODEL
            response = case.call(base_url=root, session=session, timeout=60)
            statuses.add(response.status_code)
            case.validate_response(response, checks=checks)

        one()
    return statuses


@pytest.mark.parametrize(("operation", "mode"), TRIED)
def test_answers_are_as_documented(served, operation, mode):
    """A few requests for each operation and mode."""
    assert try_requests(served, operation, mode, 15)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(("operation", "mode"), TRIED)
def test_answers_are_as_documented_in_the_long_run(served, operation, mode):
    """Many more; NEXUS_EXAMPLES says how many."""
    assert try_requests(served, operation, mode, int(os.environ.get("NEXUS_EXAMPLES", "500")), fresh=True)


@pytest.mark.parametrize(
    "defect",
    [
        Defect(raw=instead(400, 418)),
        Defect(raw=instead(400, 500)),
        Defect(raw=header("content-type", "text/html")),
        Defect(raw=header("x-request-id", None)),
        Defect(answer=lambda ask, answer: {**answer, "prompt_logprobs": None}),
        Defect(stream=every_chunk(lambda chunk: {**chunk, "prompt_logprobs": None})),
        Defect(error=lambda told: {"detail": told}),
    ],
    ids=["another status", "server error", "content type", "header", "answer", "chunk", "error"],
)
def test_what_strays_from_the_document_is_found(served, defect):
    """In the statuses, types, headers and bodies of answers and chunks."""
    served.spoiled.defect = defect
    [operation] = [each for each in OPERATIONS if each.path == "/v1/completions"]
    if defect.stream is not None:  # few of the generated requests are streamed
        case = operation.Case(body={"model": MODEL, "prompt": "one", "stream": True}, media_type="application/json")
        with requests.Session() as session:
            session.trust_env = False
            session.headers["authorization"] = f"Bearer {served.key}"
            response = case.call(base_url=served.url.removesuffix("/v1"), session=session, timeout=60)
        with pytest.raises(FailureGroup):
            case.validate_response(response, checks=CHECKS)
        return
    with pytest.raises(FailureGroup):
        assert [try_requests(served, operation, mode, 100) for mode in (FITTING, WRONG)]
