"""Limits, budgets, prices and usage through the real gateway."""

import asyncio
from decimal import Decimal

import httpx2
import openai
import pytest
from support.api_errors import check
from support.waiting import until

from cloud.api.accounts.keys import KeyId, Terms
from cloud.api.accounts.money import nano
from cloud.api.settings import AdmissionOptions, PriceOptions
from cloud.api.store.database import Database

CHAT = "/v1/chat/completions"
GOOD = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
PRICES = {"tiny": PriceOptions(prompt="0.000001", cached_prompt="0.0000005", completion="0.000002")}
COST = "0.0000075"
"""Of the fake verifier's answer: five prompt tokens of which three are cached, two output tokens."""


@pytest.fixture
def extra():
    return {"prices": PRICES}


@pytest.fixture
def make_key(gateway):
    """Make a key with these terms; gives its id and its headers."""

    async def make(**terms):
        new = await gateway.app.state.accounts.create(Terms(**{"name": "test"} | terms))
        return new.key.id, {"authorization": f"Bearer {new.secret}"}

    return make


async def charges(gateway, key):
    """What is recorded of a key's requests, newest first."""
    await gateway.app.state.bookkeeper.flush()
    return list(await gateway.app.state.accounts.charges(KeyId(key), 99))


async def metric(gateway, name):
    lines = (await gateway.http.get("/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + " ", name + "{")))


class TestLimits:
    """What a key may do in a minute."""

    async def test_requests_a_minute(self, gateway, make_key):
        """429 with a time, the headers count down, the error has them too, and other keys do not notice."""
        _, headers = await make_key(requests_per_minute=2, tokens_per_minute=1000)
        first = await gateway.post(GOOD, headers=headers)
        assert first.status_code == 200
        assert first.headers["x-ratelimit-limit-requests"] == "2"
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert first.headers["x-ratelimit-limit-tokens"] == "1000"
        assert 960 <= int(first.headers["x-ratelimit-remaining-tokens"]) < 1000
        assert first.headers["x-ratelimit-reset-requests"].endswith("s")
        assert (await gateway.post(GOOD, headers=headers)).status_code == 200
        refused = await gateway.post(GOOD, headers=headers)
        assert "2 requests a minute" in check(refused, 429, "rate_limit_exceeded")
        assert 28 <= int(refused.headers["retry-after"]) <= 30
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert (await gateway.post(GOOD)).status_code == 200
        assert len(gateway.verifier.requests) == 3
        assert await metric(gateway, 'nexus_refused_requests_total{code="rate_limit_exceeded"}') == 1

    async def test_wrong_requests_count_too(self, gateway, make_key):
        """They cost work as well; what is over the limit is not even read."""
        _, headers = await make_key(requests_per_minute=2)
        wrong = await gateway.post(b"{", headers=headers)
        check(wrong, 400, "invalid_request")
        assert wrong.headers["x-ratelimit-remaining-requests"] == "1"
        check(await gateway.post(GOOD | {"model": "huge"}, headers=headers), 404, "model_not_found", "model")
        check(await gateway.post(b"{", headers=headers), 429, "rate_limit_exceeded")

    async def test_an_unlimited_key_has_no_limit_headers(self, gateway):
        """Keys of the settings have no limits."""
        assert not [name for name in (await gateway.post(GOOD)).headers if name.startswith("x-ratelimit")]

    async def test_tokens_a_minute(self, gateway, make_key):
        """Requests are counted at an estimate, then at what they used."""
        _, headers = await make_key(tokens_per_minute=100)
        answers = [await gateway.post(GOOD | {"max_tokens": 60}, headers=headers) for _ in range(8)]
        codes = [answer.status_code for answer in answers]
        assert codes[:3] == [200, 200, 200] and codes[-1] == 429
        assert "tokens a minute" in check(answers[-1], 429, "rate_limit_exceeded")

    async def test_concurrent_streams(self, gateway, make_key):
        """A key's third choice at once is 429; one that could never run is 400; a place that ends is free again."""
        gateway.verifier.gate = asyncio.Event()
        _, headers = await make_key(concurrent_streams=2)
        running = asyncio.create_task(gateway.post(GOOD | {"n": 2}, headers=headers))
        await gateway.verifier.asked.wait()
        refused = await gateway.post(GOOD, headers=headers)
        check(refused, 429, "rate_limit_exceeded")
        assert refused.headers["retry-after"] == "1"
        check(await gateway.post(GOOD | {"n": 3}, headers=headers), 400, "invalid_request", "n")
        gateway.verifier.gate.set()
        assert (await running).status_code == 200
        assert (await gateway.post(GOOD, headers=headers)).status_code == 200

    async def test_refused_requests_of_every_kind_hold_nothing(self, gateway, make_key):
        """After invalid, unknown and failing requests a key with one stream can still have it."""
        key, headers = await make_key(concurrent_streams=1, monthly_budget=nano("1"))
        await gateway.post(GOOD | {"top_p": 9}, headers=headers)
        await gateway.post(GOOD | {"model": "huge"}, headers=headers)
        gateway.verifier.status, gateway.verifier.body = 400, {"error": {"message": "no"}}
        assert (await gateway.post(GOOD, headers=headers)).status_code == 400
        gateway.verifier.status = 200
        gateway.verifier.error_after = 1
        assert "error" in (await gateway.post(GOOD | {"stream": True}, headers=headers)).text
        gateway.verifier.error_after = None
        assert (await gateway.post(GOOD, headers=headers)).status_code == 200
        recorded = await charges(gateway, key)
        assert [(c.outcome, c.cost) for c in recorded] == [("answered", 7500), ("failed", 0), ("failed", 0)]


class TestMoney:
    """What an answer costs, and who pays."""

    async def test_prices_are_listed(self, gateway):
        """Strings, dollars for one token."""
        [card] = (await gateway.http.get("/v1/models")).json()["data"]
        assert card["pricing"] == {"prompt": "0.000001", "completion": "0.000002", "input_cache_read": "0.0000005"}
        assert card["max_output_length"] == 2048

    async def test_cost_is_told_and_recorded(self, gateway, make_key):
        """In the answer, in its header, in the last chunk of a stream, in the key's spending and in the metrics: the
        same amount.
        """
        key, headers = await make_key(monthly_budget=nano("1"))
        whole = await gateway.post(GOOD, headers=headers)
        assert whole.headers["x-nexus-cost"] == whole.json()["nexus"]["cost"] == COST
        streamed = await gateway.post(GOOD | {"stream": True}, headers=headers)
        assert f'"cost":"{COST}"' in streamed.text.split("\n\n")[-3] and "x-nexus-cost" not in streamed.headers
        recorded = await charges(gateway, key)
        assert {(c.cost, c.prompt_tokens, c.cached_tokens, c.completion_tokens) for c in recorded} == {(7500, 5, 3, 2)}
        assert sorted(c.streamed for c in recorded) == [False, True] and len({c.request_id for c in recorded}) == 2
        assert whole.headers["x-request-id"] in {c.request_id for c in recorded}
        spent = {s.key.id: s.spent for s in await gateway.app.state.accounts.statements()}[key]
        assert spent == 15_000 == await metric(gateway, "nexus_cost_nanodollars_total")

    async def test_choices_share_the_prompt(self, gateway, make_key):
        """The prompt is paid once, the output of each choice."""
        _, headers = await make_key()
        answer = await gateway.post(GOOD | {"n": 3}, headers=headers)
        assert Decimal(answer.headers["x-nexus-cost"]) == Decimal("0.0000155")

    async def test_a_spent_budget_is_402(self, gateway, make_key):
        """Decided from the worst case before any work; the client does not retry it; a smaller request may fit."""
        key, headers = await make_key(monthly_budget=nano("0.000500"))
        client = gateway.client.with_options(api_key=headers["authorization"][7:], max_retries=3)
        with pytest.raises(openai.APIStatusError) as refused:
            await client.chat.completions.create(**GOOD | {"max_tokens": 200})
        assert refused.value.status_code == 402 and refused.value.code == "insufficient_quota"
        assert refused.value.type == "insufficient_quota" and gateway.verifier.requests == []
        assert await client.chat.completions.create(**GOOD)
        assert [c.cost for c in await charges(gateway, key)] == [7500]

    async def test_a_request_may_bound_its_price(self, gateway):
        """What could cost more is refused by name before any work; what is free fits any bound."""
        ask = GOOD | {"nexus": {"max_price": "0.0005"}}
        assert (await gateway.post(ask)).status_code == 200
        refused = await gateway.post(ask | {"max_tokens": 200})
        assert "could cost $0.000" in check(refused, 400, "invalid_request", "nexus.max_price")
        assert len(gateway.verifier.requests) == 1

    async def test_running_requests_count_at_their_worst(self, gateway, make_key):
        """Two requests that the budget could pay only one of are not both begun."""
        gateway.verifier.gate = asyncio.Event()
        _, headers = await make_key(monthly_budget=nano("0.000500"))
        first = asyncio.create_task(gateway.post(GOOD, headers=headers))
        await gateway.verifier.asked.wait()
        check(await gateway.post(GOOD, headers=headers), 402, "insufficient_quota")
        gateway.verifier.gate.set()
        assert (await first).status_code == 200
        assert (await gateway.post(GOOD, headers=headers)).status_code == 200


async def leave(gateway, headers, body):
    """Ask, and close the connection once the verifier has been asked and is held at its gate."""
    async with httpx2.AsyncClient(base_url=gateway.url, headers=headers, trust_env=False) as http:
        task = asyncio.create_task(http.post(CHAT, json=body))
        await gateway.verifier.asked.wait()
        await until(lambda: gateway.coordinator.handles)
        handle = gateway.coordinator.of(gateway.verifier.requests[-1])
        handle.numbers.prompt_tokens, handle.numbers.output_tokens = 5, 9
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await gateway.verifier.gone.wait()
    await handle.released.wait()


class TestDatabase:
    """With a database behind it."""

    @pytest.fixture
    def extra(self, tmp_path):
        return {"prices": PRICES, "database": str(tmp_path / "gateway.db")}

    async def test_a_request_waits_for_no_database(self, gateway, make_key, monkeypatch):
        """Neither key nor budget is read for it; its charge is written after it, by itself."""
        key, headers = await make_key(monthly_budget=nano("1"), requests_per_minute=100)
        reads = []
        read = Database.read

        async def read_counted(database, work):
            reads.append(asyncio.current_task())
            return await read(database, work)

        monkeypatch.setattr(Database, "read", read_counted)
        monkeypatch.setattr(Database, "write", held := Held(Database.write))
        answers = await asyncio.gather(*(gateway.post(GOOD, headers=headers) for _ in range(5)))
        assert [answer.status_code for answer in answers] == [200] * 5
        assert {task.get_coro().__qualname__ for task in reads} <= {"KeyRing.run"}
        held.gate.set()
        await until(lambda: not gateway.app.state.bookkeeper.waiting)
        assert len(await charges(gateway, key)) == 5


class Held:
    """Holds every write back until its gate is opened."""

    def __init__(self, write):
        self.gate = asyncio.Event()
        self._write = write

    def __get__(self, database, _):
        async def write(work):
            await self.gate.wait()
            return await self._write(database, work)

        return write


class TestLeaving:
    """A caller who goes away pays for what was committed, and holds nothing."""

    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize("gate_at", [0, 1])
    async def test_billed_for_what_was_committed(self, gateway, make_key, stream, gate_at):
        """By the draft port's count, before and after the first token, streamed or not; the key's stream is free."""
        gateway.verifier.gate, gateway.verifier.gate_at = asyncio.Event(), gate_at
        key, headers = await make_key(concurrent_streams=1, monthly_budget=nano("1"))
        await leave(gateway, headers, GOOD | {"stream": stream})
        [charge] = await charges(gateway, key)
        assert (charge.outcome, charge.prompt_tokens, charge.completion_tokens) == ("left", 5, 9)
        assert charge.cost == 5 * 1000 + 9 * 2000
        gateway.verifier.gate = None
        assert (await gateway.post(GOOD, headers=headers)).status_code == 200

    async def test_billed_without_a_draft_port(self, gateway, make_key):
        """Without one, every chunk tells the engine's count."""
        gateway.coordinator.about = None
        gateway.verifier.gate = asyncio.Event()
        key, headers = await make_key()
        async with gateway.http.stream("POST", CHAT, json=GOOD | {"stream": True}, headers=headers) as response:
            async for line in response.aiter_lines():
                if "Hel" in line:
                    break
        await gateway.verifier.gone.wait()
        recorded = await until(lambda: charges(gateway, key))
        assert (recorded[0].outcome, recorded[0].prompt_tokens, recorded[0].completion_tokens) == ("left", 5, 1)

    async def test_leaving_the_queue(self, gateway, make_key):
        """A caller who goes while waiting is not billed and leaves no place behind."""
        gateway.verifier.gate = asyncio.Event()
        gate = gateway.app.state.desk.gate
        gate._settings = AdmissionOptions(max_streams=1).to_gate()
        key, headers = await make_key()
        first = asyncio.create_task(gateway.post(GOOD))
        await gateway.verifier.asked.wait()
        async with httpx2.AsyncClient(base_url=gateway.url, headers=headers, trust_env=False) as http:
            task = asyncio.create_task(http.post(CHAT, json=GOOD))
            await until(lambda: gate.waiting)
            assert await metric(gateway, "nexus_waiting_requests") == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await until(lambda: not gate.waiting)
        gateway.verifier.gate.set()
        assert (await first).status_code == 200
        assert gate.requests == 0 and await charges(gateway, key) == [] and len(gateway.verifier.requests) == 1


class TestCapacity:
    """503 when there is no place."""

    @pytest.fixture
    def extra(self):
        return {"admission": AdmissionOptions(max_streams=1, queue_requests=1, deadline_s=0.2)}

    async def test_full_and_late(self, gateway):
        """A full queue is told at once, a place that never comes at the deadline; both say when to try again."""
        gateway.verifier.gate = asyncio.Event()
        running = asyncio.create_task(gateway.post(GOOD))
        await gateway.verifier.asked.wait()
        late, full = await asyncio.gather(gateway.post(GOOD), gateway.post(GOOD))
        messages = {check(refused, 503, "unavailable") for refused in (late, full)}
        assert {message[:8] for message in messages} == {"Too many", "No place"}
        gateway.verifier.gate.set()
        assert (await running).status_code == 200
        assert len(gateway.verifier.requests) == 1

    async def test_draining(self, gateway):
        """A running stream is finished; new requests are 503 and say when; health says so too."""
        gateway.verifier.gate = asyncio.Event()
        running = asyncio.create_task(gateway.post(GOOD | {"stream": True}))
        await gateway.verifier.asked.wait()
        gateway.app.state.desk.gate.drain()
        check(await gateway.post(GOOD), 503, "unavailable")
        health = await gateway.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "draining")
        assert (await gateway.http.get("/v1/models")).status_code == 200
        gateway.verifier.gate.set()
        assert (await running).text.endswith("data: [DONE]\n\n")
        await gateway.app.state.desk.gate.idle()


class TestPrivacy:
    """The key's tier is for requests that name none."""

    CASES = (
        (None, {}, None),
        ("any", {}, True),
        ("verifier_only", {}, False),
        ("own_nodes", {}, False),
        ("trusted", {}, False),
        ("verifier_only", {"privacy": "any"}, True),
        ("any", {"privacy": "verifier_only"}, False),
        ("any", {"nodes": False}, False),
        ("verifier_only", {"max_draft_tokens": 3}, False),
    )

    async def test_default_tier(self, gateway, make_key):
        """Named by key, by request, by both or by none."""
        for tier, asked, allowed in self.CASES:
            _, headers = await make_key(privacy=tier)
            assert (await gateway.post(GOOD | {"nexus": asked}, headers=headers)).status_code == 200
            policy = gateway.coordinator.of(gateway.verifier.requests[-1]).policy
            assert policy.allow_nodes is allowed, (tier, asked)
