"""Many callers at once that come, leave, retry and contradict themselves: nothing is held, lost or paid twice."""

import asyncio
import random
from collections import Counter, defaultdict

import msgspec
import pytest
from support.waiting import until

from cloud.api.accounts.keys import Terms
from cloud.api.accounts.money import nano
from cloud.api.settings import AdmissionOptions, PriceOptions, ReplayOptions

CALLS = 150
WHOLE = 9000
"""Cost of the fake verifier's whole answer, nano-dollars."""


@pytest.fixture
def extra(tmp_path):
    return {
        "prices": {"tiny": PriceOptions(prompt="0.000001", completion="0.000002")},
        "database": str(tmp_path / "gateway.db"),
        "admission": AdmissionOptions(max_streams=6, queue_requests=20, deadline_s=5),
        "replays": ReplayOptions(max_answer_bytes=100_000),
    }


@pytest.fixture
def judged():
    return False


class Caller:
    """Calls the application without a socket, so that it can leave at any point it likes."""

    def __init__(self, app, secret, body, headers, patience):
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/v1/chat/completions",
            "raw_path": b"/v1/chat/completions",
            "query_string": b"",
            "headers": [(b"authorization", b"Bearer " + secret.encode()), *headers.items()],
        }
        self.app = app
        self.body = body
        self.patience = patience
        self.left = asyncio.Event()
        self.status = 0
        self.content = b""
        self.complete = False

    async def receive(self):
        if self.body is not None:
            body, self.body = self.body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        await asyncio.sleep(0)
        if self.left.is_set():
            return
        self.status = message.get("status", self.status)
        self.content += message.get("body", b"")
        self.complete = message["type"] == "http.response.body" and not message.get("more_body")
        if not self.complete and message["type"] == "http.response.body" and self.patience == "first byte":
            self.left.set()

    async def call(self):
        async def leave():
            await asyncio.sleep(self.patience)
            self.left.set()

        leaving = asyncio.create_task(leave()) if isinstance(self.patience, float) else None
        await self.app(self.scope, self.receive, self.send)
        self.left.set()
        if leaving:
            leaving.cancel()
        return self


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_callers_do(gateway, seed):
    """Afterwards every place, limit and hold is free; what keys have spent is what is recorded, within their budgets;
    what has one Idempotency-Key was paid at most once, and whoever got an answer got the same one.
    """
    chance = random.Random(seed)
    accounts, desk, replays = (getattr(gateway.app.state, name) for name in ("accounts", "desk", "replays"))
    terms = [
        {},
        {"concurrent_streams": 3, "requests_per_minute": 30},
        {"monthly_budget": nano("0.003"), "tokens_per_minute": 2000},
    ]
    keys = [await accounts.create(Terms(name=f"key {index}", **more)) for index, more in enumerate(terms)]

    def report(payload, step):
        handle = gateway.coordinator.of(payload)
        handle.numbers.prompt_tokens, handle.numbers.output_tokens = 5, step + 1

    gateway.verifier.on_step = report
    callers = []

    async def one(index):
        await asyncio.sleep(chance.random() * 0.8)
        key = chance.choice(keys)
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
        body |= {"stream": chance.random() < 0.5} | ({"n": 2} if chance.random() < 0.2 else {})
        headers = {}
        match chance.randrange(4):
            case 0 | 1:
                label = str(chance.randrange(6)).encode()
                headers[b"idempotency-key"] = label
                body = {"model": "tiny", "messages": [{"role": "user", "content": label.decode()}], "max_tokens": 8}
                body |= {"stream": label in b"024"} | ({"top_k": 1} if chance.random() < 0.1 else {})
            case 2:
                headers[b"x-stainless-retry-count"] = str(chance.randrange(3)).encode()
        patience = chance.choice([None, None, "first byte", chance.random() * 0.05])
        caller = Caller(gateway.app, key.secret, msgspec.json.encode(body), headers, patience)
        callers.append((key.key.id, headers.get(b"idempotency-key"), body, await caller.call()))

    async with asyncio.timeout(60):
        await asyncio.gather(*(one(index) for index in range(CALLS)))
        await until(lambda: not desk.gate.requests and not replays._claims and not replays._attempts)
    assert (desk.gate.streams, desk.gate.tokens, desk.gate.waiting) == (0, 0, 0)
    assert not accounts.budgets._held and all(meter.streams == 0 for meter in desk._meters.values())
    assert all(handle.released.is_set() for handle in gateway.coordinator.handles.values())

    statuses = Counter(caller.status for *_, caller in callers)
    assert set(statuses) <= {0, 200, 402, 409, 429, 503} and statuses[200] > 20 and statuses[409], statuses
    for _, _, _, caller in callers:
        assert caller.status != 200 or not caller.complete or b'"error"' not in caller.content

    await gateway.app.state.bookkeeper.flush()
    answers = defaultdict(set)
    for key, label, body, caller in callers:
        if label is not None and caller.status == 200 and caller.complete:
            answers[key, label, msgspec.json.encode(body)].add(caller.content)
    assert answers and all(len(contents) == 1 for contents in answers.values())
    for statement in await accounts.statements():
        recorded = await accounts.charges(statement.key.id, 10_000)
        assert sum(charge.cost for charge in recorded) == statement.spent
        assert statement.key.terms.monthly_budget is None or statement.spent <= statement.key.terms.monthly_budget
        paid = sum(charge.cost for charge in recorded)
        without = [c for k, label, _, c in callers if k == statement.key.id and label is None and c.status in (0, 200)]
        labels = {label for k, label, _, c in callers if k == statement.key.id and label is not None}
        assert paid <= WHOLE * len(labels) + (WHOLE + 4000) * len(without)
    assert len(gateway.verifier.requests) < 2 * CALLS
