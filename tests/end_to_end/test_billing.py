"""What the real engine counts is what a key pays: for whole answers, for broken ones, and once for both together."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.serving import serving
from support.verifier import Verifier
from support.waiting import until

from cloud.api.accounts.accounts import Accounts
from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import KeyId, Terms
from cloud.api.accounts.money import nano
from cloud.api.app import create_app
from cloud.api.coordinator import Coordinator
from cloud.api.server import uvicorn_config
from cloud.api.settings import GatewaySettings, PriceOptions, VerifierSettings

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

CHAT = "/v1/chat/completions"
PRICES = {"smollm2-135m": PriceOptions(prompt="0.000001", cached_prompt="0.000001", completion="0.000002")}
"""Cached tokens cost what fresh ones do: how many there are depends on what ran before."""
ASKED: dict[str, Any] = {
    "model": "smollm2-135m",
    "messages": [{"role": "user", "content": "Count from one to one hundred in words."}],
    "max_tokens": 48,
    "logit_bias": {"0": -100, "2": -100},
    "stream": True,
    "stream_options": {"include_usage": True},
}


@contextlib.asynccontextmanager
async def gateway(
    verifier: Verifier, folder: Path, secret: str | None = None
) -> AsyncIterator[tuple[httpx2.AsyncClient, Accounts, KeyId]]:
    """A gateway with a database, a client with a key of it, which is made when `secret` is none, and the key's id."""
    settings = GatewaySettings(
        port=0,
        database=str(folder / "gateway.db"),
        verifiers=[VerifierSettings(url=verifier.url, draft_ports=[verifier.draft_port])],
        prices=PRICES,
    )
    coordinator = Coordinator(settings.to_draft_ports())
    app = create_app(settings, coordinator)
    async with serving(uvicorn_config(app, settings)) as url:
        accounts: Accounts = app.state.accounts
        if secret is None:
            secret = (await accounts.create(Terms(name="test", monthly_budget=nano("1")))).secret
        key = (await accounts.ring.identify(secret.encode())).id
        await until(coordinator.models)
        async with httpx2.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {secret}"}, timeout=240, trust_env=False
        ) as http:
            yield http, accounts, key
        await until(lambda: not app.state.desk.gate.requests)


def text_of(lines: list[str]) -> str:
    """The text of a stream, which must have ended as streams do."""
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line[6:]) for line in lines[:-1]]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


async def test_the_engines_count_is_what_is_paid(verifier: Verifier, tmp_path: Path) -> None:
    """A whole answer costs its usage; a caller who leaves pays for prompt and committed tokens, and comes back, over a
    restart of the gateway, to the same answer for the rest of its price.
    """
    headers = {"idempotency-key": "count"}
    body = ASKED | {"seed": 7}
    async with gateway(verifier, tmp_path) as (http, accounts, key):
        lines = [line for line in (await http.post(CHAT, json=body)).text.split("\n") if line]
        whole = text_of(lines)
        last = json.loads(lines[-2][6:])
        usage, cost = last["usage"], nano(last["nexus"]["cost"])
        assert cost == usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 2000
        await until(lambda: accounts.budgets.spent(key) == cost)

        seen = 0
        async with http.stream("POST", CHAT, json=body, headers=headers) as response:
            reading = response.aiter_lines()
            async for line in reading:
                seen += '"content":"' in line
                if seen == 3:
                    break
        await until(lambda: accounts.budgets.spent(key) > cost)
        broken = accounts.budgets.spent(key) - cost

        async def left_by_now() -> list[Charge]:
            return [charge for charge in await accounts.charges(key, 9) if charge.outcome == "left"]

        [left] = await until(left_by_now)
        assert left.prompt_tokens == usage["prompt_tokens"] and left.cost == broken
        secret = http.headers["authorization"].removeprefix("Bearer ")
        assert 2 <= left.completion_tokens < usage["completion_tokens"]

    async with gateway(verifier, tmp_path, secret) as (http, accounts, key):
        assert accounts.budgets.spent(key) == cost + broken
        for _ in range(2):
            again = [line for line in (await http.post(CHAT, json=body, headers=headers)).text.split("\n") if line]
            assert text_of(again) == whole
        await until(lambda: accounts.budgets.spent(key) == 2 * cost)
