"""Models list, health, metrics, and the real composition."""

import re
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families
from support.waiting import until
from websockets.asyncio.client import connect

from cloud.api.app import create_gateway
from cloud.api.coordinator import Coordinator
from cloud.api.draftport.settings import DraftPortSettings
from cloud.api.metrics import BROKER_COUNTERS, BROKER_GAUGES, Metrics
from cloud.api.server import uvicorn_config
from cloud.api.settings import GatewaySettings, VerifierSettings
from shared.errors import ProtocolError

DOCS = Path(__file__).parents[3] / "docs"


async def test_models_list(gateway):
    """OpenAI's fields and ours, through the official client."""
    [model] = (await gateway.client.models.list()).data
    assert (model.id, model.object, model.owned_by, model.created) == ("tiny", "model", "nexus", 7)
    assert model.context_length == 2048 and "temperature" in model.supported_parameters
    assert (await gateway.client.models.retrieve("tiny")).id == "tiny"


async def test_model_names_with_slashes(gateway):
    """A name such as org/model is found; an unknown one is 404."""
    gateway.verifier.models = ["org/tiny"]
    assert (await gateway.http.get("/v1/models/org/tiny")).json()["id"] == "org/tiny"
    response = await gateway.http.get("/v1/models/other")
    assert response.status_code == 404 and response.json()["error"]["code"] == "model_not_found"


async def test_health(gateway):
    """200 without a key; degraded when a draft port is not attached."""
    gateway.coordinator.numbers.update(verifiers=1, verifiers_configured=1, nodes=2)
    response = await gateway.http.get("/health", headers={"authorization": ""})
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "verifiers": {"configured": 1, "reachable": 1},
        "draft_ports": {"configured": 1, "attached": 1},
        "nodes": 2,
    }
    gateway.coordinator.numbers["verifiers"] = 0
    assert (await gateway.http.get("/health")).json()["status"] == "degraded"


async def test_metrics_count(gateway):
    """Requests by route and status, tokens, time to first token, and the broker's figures."""
    gateway.coordinator.numbers.update(nodes=3, drafted_tokens=9)
    await gateway.post({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]})
    await gateway.http.get("/v1/nothing")
    counted = 'nexus_requests_total{route="/v1/chat/completions",status="200"} 1.0'

    async def scrape():
        """A request is counted when it is over, a moment after its answer has come."""
        text = (await gateway.http.get("/metrics", headers={"authorization": ""})).text
        return text if counted in text else None

    text = await until(scrape)
    assert 'nexus_requests_total{route="other",status="404"} 1.0' in text
    assert "nexus_completion_tokens_total 2.0" in text and "nexus_prompt_tokens_total 5.0" in text
    assert "nexus_time_to_first_token_seconds_count 1.0" in text
    assert "nexus_nodes 3.0" in text and "nexus_drafted_tokens_total 9.0" in text


def test_every_metric_is_documented():
    """docs/metrics.md has a row for each metric, and none for what does not exist."""
    families = text_string_to_metric_families(Metrics(dict).render().decode())
    names = {f.name + ("_total" if f.type == "counter" else "") for f in families if not f.name.endswith("_created")}
    rows = set(re.findall(r"^\| `(nexus_\w+)`", (DOCS / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert names == rows


async def test_broker_has_every_figure_that_metrics_read():
    """The names that metrics take from the snapshot exist in the real one."""
    snapshot = Coordinator(DraftPortSettings(endpoints=("ipc:///nowhere",))).snapshot()
    assert set(BROKER_COUNTERS) | set(BROKER_GAUGES) | {"verifiers"} <= set(snapshot)


async def test_real_composition(gateway, run_server, tmp_path):
    """The gateway with its real broker serves a request, and its node endpoint answers a WebSocket."""
    settings = GatewaySettings(
        port=0,
        api_keys=["real-key-123"],
        verifiers=[VerifierSettings(url=gateway.verifier.url, draft_ports=[f"ipc://{tmp_path}/p-0"])],
    )
    async with (
        run_server(uvicorn_config(create_gateway(settings), settings)) as url,
        httpx2.AsyncClient(base_url=url, headers={"authorization": "Bearer real-key-123"}, trust_env=False) as http,
    ):
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "nexus": {"trace": True}}
        answer = (await http.post("/v1/chat/completions", json=body)).json()
        assert answer["choices"][0]["message"]["content"] == "Hello"
        assert [t["text"] for t in answer["nexus"]["trace"]] == ["Hel", "lo"]
        assert (await http.get("/health")).json()["status"] == "degraded"
        async with connect(url.replace("http", "ws") + "/v1/nodes/connect", proxy=None) as socket:
            await socket.send(b"\xc1")
            await socket.wait_closed()
        assert socket.close_code == ProtocolError.close_code
