"""The OpenAPI document: complete, consistent, true to the routes and the request models."""

import json
import re
from typing import Any

import pytest
from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from cloud.api.cli import app as gateway_cli
from cloud.api.openai.chat import ChatRequest
from cloud.api.openai.common import NexusOptions
from cloud.api.openai.completions import CompletionRequest
from cloud.api.openai.objects import EFFORT_PARAMETERS, SUPPORTED_PARAMETERS, TOOL_PARAMETERS
from cloud.api.openapi.document import document, rendered
from cloud.api.openapi.operations import OPERATIONS
from cloud.api.openapi.parameters import PARAMETERS, STRUCTURE, UNLISTED
from cloud.conformance.transcript import Transcript

DOCUMENT = document()
FIELDS = {
    *ChatRequest.model_fields,
    *CompletionRequest.model_fields,
    *(f"nexus.{name}" for name in NexusOptions.model_fields),
}


def wrong(schema: dict[str, Any], value: Any) -> list[str]:
    root = {**schema, "components": {"schemas": DOCUMENT["components"]["schemas"]}}
    return [f"{error.json_path} {error.message}" for error in Draft202012Validator(root).iter_errors(value)]


def followed(response: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in response:
        return response
    found: dict[str, Any] = DOCUMENT["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
    return found


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own.union(*map(references, value.values()))


def test_references_lead_somewhere():
    """And every component is used by something."""
    found = references(DOCUMENT)
    for name in found:
        place: Any = DOCUMENT
        for part in name.removeprefix("#/").split("/"):
            place = place[part]
    for kind in ("schemas", "headers", "responses"):
        used = {name.rsplit("/", 1)[1] for name in found if f"/{kind}/" in name}
        assert used == set(DOCUMENT["components"][kind]), kind


def test_every_schema_is_one():
    """By the meta-schema of JSON Schema 2020-12, which OpenAPI 3.1 takes."""
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert "x-spared" not in str(DOCUMENT) and "x-loose" not in str(DOCUMENT)


async def test_every_route_has_its_operation(gateway):
    """And every operation its route."""
    routes = [route for route in gateway.app.routes if isinstance(route, APIRoute)]
    there = {(method.lower(), re.sub(r"{.*?}", "{}", route.path)) for route in routes for method in route.methods}
    assert there == {(each.method, re.sub(r"{.*?}", "{}", each.path)) for each in OPERATIONS}


def test_operations_are_complete():
    """Each has words, an answer, an error for what went wrong inside, and 401 where a key or a password is needed."""
    names = [each.name for each in OPERATIONS]
    assert len(set(names)) == len(names)
    for each in OPERATIONS:
        made = DOCUMENT["paths"][each.path][each.method]
        assert made["summary"] and made["description"].endswith(".") and "500" in made["responses"]
        assert ("401" in made["responses"]) == (each.key != "free" or each.name == "signIn"), each.name
        for response in map(followed, made["responses"].values()):
            assert response["description"] and "X-Request-Id" in response["headers"] and response["content"]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_examples_fit_their_schemas(operation):
    """Every request and every JSON answer has examples, all of which fit; streams keep the rules of streams."""
    made = DOCUMENT["paths"][operation.path][operation.method]
    contents = [followed(response)["content"] for response in made["responses"].values()]
    if "requestBody" in made:
        contents.append(made["requestBody"]["content"])
    for content in contents:
        if (told := content.get("application/json")) and operation.name != "openapi":
            assert told["examples"]
            for name, example in told["examples"].items():
                assert not wrong(told["schema"], example["value"]), name
        if events := content.get("text/event-stream"):
            kind = "chat" if "chat" in operation.path else "completion"
            body = events["examples"]["stream"]["value"].encode()
            usage = b'"usage": null' in body
            chunks = Transcript.read(body, kind, include_usage=usage)
            assert chunks.faults() == [] and chunks.chunks
            content = events["schema"]["properties"]["data"]["anyOf"][1]["contentSchema"]
            assert all(not wrong(content, chunk) for chunk in chunks.chunks)


GENERATIONS = [
    pytest.param(each.path, example["value"], id=f"{each.name}-{name}")
    for each in OPERATIONS
    if each.tag == "Generation"
    for name, example in each.requests.items()
]


@pytest.mark.parametrize(("path", "body"), GENERATIONS)
async def test_example_requests_are_served(gateway, path, body):
    """As they are written, but for the model's name."""
    response = await gateway.post(body | {"model": "tiny"}, path)
    assert response.status_code == 200, response.text


def test_every_parameter_has_its_line():
    """And no line is about a parameter that does not exist."""
    assert set(PARAMETERS) == FIELDS


def test_supported_parameters_are_the_fields_of_requests():
    """What a model says it supports is what requests may hold, and nothing is left out."""
    listed = {*SUPPORTED_PARAMETERS, *TOOL_PARAMETERS, *EFFORT_PARAMETERS}
    assert listed == {name for name in FIELDS if "." not in name} - STRUCTURE - UNLISTED


@pytest.mark.parametrize(
    ("model", "change", "fits"),
    [
        ("ChatRequest", {}, True),
        ("ChatRequest", {"temperature": None, "stream": None, "nexus": None, "n": None}, True),
        ("ChatRequest", {"audio": None, "service_tier": "auto", "modalities": ["text"]}, True),
        ("ChatRequest", {"audio": {}}, False),
        ("ChatRequest", {"service_tier": "flex"}, False),
        ("ChatRequest", {"temperature": 3}, False),
        ("ChatRequest", {"odd": 1}, False),
        ("ChatRequest", {"model": None}, False),
        ("ChatRequest", {"logit_bias": {"word": 1}}, False),
        ("ChatRequest", {"logit_bias": {"5": 101}}, False),
        ("ChatRequest", {"store": True}, False),
        ("ChatRequest", {"nexus": {"privacy": "verifier_only", "odd": 1}}, False),
        ("CompletionRequest", {"prompt": ["one"]}, True),
        ("CompletionRequest", {"prompt": [[1, 2]]}, True),
        ("CompletionRequest", {"prompt": ["one", "two"]}, False),
        ("CompletionRequest", {"prompt": [-1]}, False),
        ("CompletionRequest", {"best_of": 2}, False),
    ],
)
def test_request_schemas_say_what_the_models_do(model, change, fits):
    """Also where a validator takes more or less than the field's type."""
    body = {"messages": [{"role": "user", "content": "hi"}]} if model == "ChatRequest" else {"prompt": "x"}
    body |= {"model": "tiny", **change}
    assert (not wrong({"$ref": f"#/components/schemas/{model}"}, body)) is fits


async def test_it_is_served_without_a_key(gateway):
    """At /openapi.json."""
    response = await gateway.http.get("/openapi.json", headers={"authorization": ""})
    assert response.status_code == 200 and response.headers["content-type"] == "application/json"
    assert response.content == rendered() and response.json()["openapi"] == "3.1.0"


def test_the_command_prints_it():
    """`nexus gateway openapi` needs no settings."""
    result = CliRunner().invoke(gateway_cli, ["openapi"])
    assert result.exit_code == 0 and json.loads(result.output) == DOCUMENT
