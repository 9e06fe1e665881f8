"""Answers that are asked for again, through the real gateway: made once, billed once."""

import asyncio
import contextlib
import time

import httpx2
import msgspec
import openai
import pytest
from support.api_errors import check
from support.waiting import until

from cloud.api.accounts.keys import KeyId, Terms
from cloud.api.app import create_app
from cloud.api.idempotency.answers import call_from
from cloud.api.server import uvicorn_config
from cloud.api.settings import GatewaySettings, Limits, PriceOptions, ReplayOptions, VerifierSettings

CHAT = "/v1/chat/completions"
GOOD = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
STREAM = GOOD | {"stream": True}
PRICES = {"tiny": PriceOptions(prompt="0.000001", completion="0.000002")}
COST = 9000
"""Of the fake verifier's whole answer, nano-dollars: five prompt tokens and two of output."""
KEYED = {"idempotency-key": "order-66"}


def retry(count):
    return {"x-stainless-retry-count": str(count)}


@pytest.fixture
def extra(tmp_path):
    return {"prices": PRICES, "database": str(tmp_path / "gateway.db")}


@pytest.fixture
async def key(gateway):
    """A key of the database; requests use it from here on. Gives its id."""
    new = await gateway.app.state.accounts.create(Terms(name="test"))
    gateway.http.headers["authorization"] = f"Bearer {new.secret}"
    return new.key.id


@contextlib.asynccontextmanager
async def restarted(gateway, run_server, extra):
    """Another gateway on the same database, after the first has stopped looking after its claims."""
    settings = GatewaySettings(
        port=0,
        api_keys=["unused-key-1"],
        verifiers=[VerifierSettings(url=gateway.verifier.url, draft_ports=["ipc:///nowhere"])],
        **extra,
    )
    app = create_app(settings, gateway.coordinator)
    async with (
        run_server(uvicorn_config(app, settings)) as url,
        httpx2.AsyncClient(base_url=url, headers=dict(gateway.http.headers), trust_env=False) as http,
    ):
        yield http, app


async def charged(gateway, key, *expected):
    """Wait until nothing is at work and compare what is recorded of a key's requests, in no order, with what should
    be: costs, or outcomes and costs.
    """
    await until(lambda: not gateway.app.state.desk.gate.requests)
    await gateway.app.state.bookkeeper.flush()
    charges = await gateway.app.state.accounts.charges(KeyId(key), 99)
    found = [(c.outcome, c.cost) if isinstance(expected[0], tuple) else c.cost for c in charges]
    assert sorted(found) == sorted(expected)


@contextlib.asynccontextmanager
async def reading(gateway, body, headers):
    """A stream of which the first token has come; leaving closes the connection."""
    async with (
        httpx2.AsyncClient(base_url=gateway.url, headers=gateway.http.headers, trust_env=False) as http,
        http.stream("POST", CHAT, json=body, headers=headers) as response,
    ):
        lines = response.aiter_lines()  # kept: when it is collected, it closes the connection
        async for line in lines:
            if "Hel" in line:
                break
        yield


class TestIdempotencyKey:
    """The same key and body are one request."""

    @pytest.mark.parametrize("body", [GOOD, STREAM], ids=["whole", "streamed"])
    async def test_replayed(self, gateway, key, body):
        """The second answer is the first, byte for byte, with a request id of its own; it is made and billed once."""
        first = await gateway.post(body, headers=KEYED)
        second = await gateway.post(body, headers=KEYED)
        assert first.status_code == second.status_code == 200 and first.content == second.content
        assert "idempotency-replayed" not in first.headers and second.headers["idempotency-replayed"] == "true"
        assert first.headers["content-type"] == second.headers["content-type"]
        assert first.headers.get("x-nexus-cost") == second.headers.get("x-nexus-cost")
        assert first.headers["x-request-id"] != second.headers["x-request-id"]
        assert len(gateway.verifier.requests) == 1
        await charged(gateway, key, COST)

    async def test_another_body_is_a_conflict(self, gateway, key):
        """Also another endpoint; another caller may use the same key for what it likes."""
        assert (await gateway.post(GOOD, headers=KEYED)).status_code == 200
        check(await gateway.post(GOOD | {"max_tokens": 6}, headers=KEYED), 409, "conflict")
        completion = {"model": "tiny", "prompt": "hi"}
        check(await gateway.post(completion, "/v1/completions", headers=KEYED), 409, "conflict")
        other = await gateway.app.state.accounts.create(Terms(name="other"))
        headers = {**KEYED, "authorization": f"Bearer {other.secret}"}
        assert (await gateway.post(GOOD | {"max_tokens": 6}, headers=headers)).status_code == 200
        check(await gateway.post(GOOD, headers={"idempotency-key": "a b"}), 400, "invalid_request")

    async def test_together(self, gateway, key):
        """Of many at once one is worked on and the others follow it, from its start."""
        gateway.verifier.gate = asyncio.Event()
        tasks = [asyncio.create_task(gateway.post(STREAM, headers=KEYED)) for _ in range(5)]
        await gateway.verifier.asked.wait()
        [attempt] = gateway.app.state.replays._claims.values()
        await until(lambda: attempt.recording.readers == 5)
        late = asyncio.create_task(gateway.post(STREAM, headers=KEYED))
        conflict = await gateway.post(GOOD, headers=KEYED)
        check(conflict, 409, "conflict")
        await until(lambda: attempt.recording.readers == 6)
        gateway.verifier.gate.set()
        answers = await asyncio.gather(*tasks, late)
        assert len({answer.content for answer in answers}) == 1 and answers[0].text.endswith("data: [DONE]\n\n")
        assert len(gateway.verifier.requests) == 1
        await charged(gateway, key, COST)

    async def test_followers_keep_it_going(self, gateway, key):
        """The first caller may leave: the answer goes on for the second, and ends with the last."""
        gateway.verifier.gate = asyncio.Event()
        async with reading(gateway, STREAM, KEYED):
            [attempt] = gateway.app.state.replays._claims.values()
            second = asyncio.create_task(gateway.post(STREAM, headers=KEYED))
            await until(lambda: attempt.recording.readers == 2)
        await until(lambda: attempt.recording.readers == 1)
        assert not gateway.verifier.gone.is_set()
        gateway.verifier.gate.set()
        assert '"lo"' in (await second).text
        await charged(gateway, key, ("answered", COST))

    async def test_all_leave(self, gateway, key):
        """Then the engine is stopped, and who comes back gets the same answer and pays only what is new."""
        gateway.verifier.gate = asyncio.Event()
        async with reading(gateway, STREAM, KEYED):
            [attempt] = gateway.app.state.replays._claims.values()
            handle = gateway.coordinator.of(gateway.verifier.requests[0])
            handle.numbers.prompt_tokens, handle.numbers.output_tokens = 5, 1
            async with reading(gateway, STREAM, KEYED):
                assert attempt.recording.readers == 2
        await gateway.verifier.gone.wait()
        gateway.verifier.gate = None
        again = await gateway.post(STREAM, headers=KEYED)
        assert again.status_code == 200 and "idempotency-replayed" not in again.headers
        first, second = gateway.verifier.requests
        assert first["seed"] == second["seed"]
        await charged(gateway, key, ("left", 7000), ("answered", 2000))
        assert (await gateway.post(STREAM, headers=KEYED)).content == again.content

    async def test_failures_are_not_kept(self, gateway, key):
        """Neither a status nor a failure in mid-stream: the next attempt is a new one."""
        gateway.verifier.status, gateway.verifier.body = 500, {"error": {"message": "no"}}
        assert (await gateway.post(STREAM, headers=KEYED)).status_code == 502
        gateway.verifier.status, gateway.verifier.error_after = 200, 1
        assert '"error"' in (await gateway.post(STREAM, headers=KEYED)).text
        gateway.verifier.error_after = None
        assert (await gateway.post(STREAM, headers=KEYED)).text.endswith("data: [DONE]\n\n")
        await charged(gateway, key, 0, 0, COST)

    async def test_refusals_leave_the_key_free(self, gateway, key):
        """A request that is wrong or refused claims nothing."""
        check(await gateway.post(GOOD | {"top_p": 9}, headers=KEYED), 400, "invalid_request", "top_p")
        check(await gateway.post(GOOD | {"model": "huge"}, headers=KEYED), 404, "model_not_found", "model")
        gateway.app.state.desk.gate.draining = True
        check(await gateway.post(GOOD, headers=KEYED), 503, "unavailable")
        gateway.app.state.desk.gate.draining = False
        assert (await gateway.post(STREAM, headers=KEYED)).status_code == 200

    async def test_followers_hear_why_it_failed(self, gateway, key):
        """With the same status."""
        gateway.verifier.gate, gateway.verifier.gate_at, gateway.verifier.error_after = asyncio.Event(), 0, 0
        tasks = [asyncio.create_task(gateway.post(GOOD, headers=KEYED)) for _ in range(2)]
        await gateway.verifier.asked.wait()
        [attempt] = gateway.app.state.replays._claims.values()
        await until(lambda: attempt.recording.readers == 2)
        gateway.verifier.gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*tasks)] == [502, 502]

    async def test_a_drained_key_still_gets_its_answer(self, gateway, key):
        """What was paid for is given again also when nothing new would be."""
        first = await gateway.post(GOOD, headers=KEYED)
        gateway.app.state.desk.gate.drain()
        check(await gateway.post(GOOD), 503, "unavailable")
        assert (await gateway.post(GOOD, headers=KEYED)).content == first.content


class TestFollowing:
    """Whoever follows a stream hears of it what the contract says of every stream."""

    @pytest.fixture
    def limits(self):
        return Limits(keep_alive_s=0.01, shutdown_s=1)

    @pytest.fixture
    def extra(self, extra):
        return extra | {"replays": ReplayOptions(max_answer_bytes=3000)}

    @contextlib.asynccontextmanager
    async def following(self, gateway):
        """The texts of a stream that follows another, of which the first token has come."""
        gateway.verifier.gate = asyncio.Event()
        async with (
            reading(gateway, STREAM, KEYED),
            httpx2.AsyncClient(base_url=gateway.url, headers=gateway.http.headers, trust_env=False) as http,
            http.stream("POST", CHAT, json=STREAM, headers=KEYED) as response,
        ):
            assert response.headers["idempotency-replayed"] == "true"
            yield response.aiter_text()

    async def test_comments_keep_it_alive(self, gateway, key):
        """As they do the stream that it follows."""
        text = ""
        async with self.following(gateway) as texts:
            async for more in texts:
                text += more
                if text.count(": keep-alive\n\n") >= 2:
                    gateway.verifier.gate.set()
        assert text.endswith("data: [DONE]\n\n")

    async def test_an_early_end_is_told(self, gateway, key, step):
        """An answer that becomes too long to be remembered ends for its followers with one error event."""
        gateway.verifier.steps.append(step("x" * 3000, [(3, "x")]))
        async with self.following(gateway) as texts:
            gateway.verifier.gate.set()
            text = "".join([more async for more in texts])
        events = [event for event in text.strip().split("\n\n") if event != ": keep-alive"]
        error = msgspec.json.decode(events[-1].removeprefix("data: "))["error"]
        assert error["code"] == "unavailable" and '"finish_reason":"' not in text
        await charged(gateway, key, 11000)


class TestStalled:
    """The caller for whom an answer is made takes nothing of it, while another follows."""

    @pytest.fixture
    def limits(self):
        return Limits(stalled_client_s=2, shutdown_s=1)

    @pytest.fixture
    def extra(self, extra):
        return extra | {"replays": ReplayOptions(max_answer_bytes=1 << 28)}

    @pytest.fixture
    def judged(self):
        return False

    @pytest.mark.parametrize("before", [True, False], ids=["follows before", "follows after"])
    async def test_followers_do_not_wait_for_it(self, gateway, key, step, before):
        """It is left behind, as it would be after a while without them; they get the whole answer, paid once."""
        gateway.verifier.steps += [step("x" * 1_000_000) for _ in range(20)]
        gateway.verifier.gate = asyncio.Event()
        body = msgspec.json.encode(STREAM)
        host, port = gateway.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        authorization = gateway.http.headers["authorization"]
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\nidempotency-key: order-66\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await gateway.verifier.asked.wait()
        [attempt] = gateway.app.state.replays._claims.values()
        if not before:
            gateway.verifier.gate.set()
            await until(lambda: attempt.recording.delivering)
        follower = asyncio.create_task(gateway.post(STREAM, headers=KEYED))
        await until(lambda: attempt.recording.readers == 2)
        gateway.verifier.gate.set()
        text = (await follower).text
        writer.transport.abort()
        assert text.count("x" * 1_000_000) == 20 and text.endswith("data: [DONE]\n\n")
        await charged(gateway, key, COST)


class TestRestart:
    """What was kept outlives the gateway."""

    @pytest.mark.parametrize("body", [GOOD, STREAM], ids=["whole", "streamed"])
    @pytest.mark.parametrize(("first", "second"), [(KEYED, KEYED), (retry(0), retry(1))], ids=["keyed", "retried"])
    async def test_replayed(self, gateway, key, run_server, extra, body, first, second):
        """Both kinds and both forms, from another gateway on the same database, with nothing more to pay."""
        answer = await gateway.post(body, headers=first)
        await until(lambda: not gateway.app.state.replays._attempts)
        await gateway.app.state.replays.stop()
        async with restarted(gateway, run_server, extra) as (http, _):
            again = await http.post(CHAT, content=answer.request.content, headers=second)
        assert again.content == answer.content and again.headers["idempotency-replayed"] == "true"
        assert len(gateway.verifier.requests) == 1
        await charged(gateway, key, COST)

    async def test_killed_in_the_middle(self, gateway, key, run_server, extra):
        """A claim whose gateway is gone is busy until its lease ends, then anybody's, with the same seed."""
        gateway.verifier.gate = asyncio.Event()
        first = asyncio.create_task(gateway.post(GOOD, headers=KEYED))
        await gateway.verifier.asked.wait()
        async with restarted(gateway, run_server, extra) as (http, app):
            body = msgspec.json.encode(GOOD)
            busy = await http.post(CHAT, content=body, headers=KEYED)
            check(busy, 503, "unavailable")
            assert 1 <= int(busy.headers["retry-after"]) <= 15
            app.state.replays._clock = lambda: time.time() + 3600
            gateway.verifier.gate.set()
            assert (await http.post(CHAT, content=body, headers=KEYED)).status_code == 200
        assert len({request["seed"] for request in gateway.verifier.requests}) == 1
        await first


class TestMarkedRetries:
    """A retry that the client's header marks gets the answer that was lost."""

    @pytest.mark.parametrize("stored", [True, False], ids=["stored", "in memory"])
    async def test_of_a_refusal_is_not_given_an_older_answer(self, gateway, key, stored):
        """The same question asked anew, refused, and retried: a new answer, not that of the first time."""
        assert (await gateway.post(GOOD, headers=retry(0))).status_code == 200
        if stored:
            await until(lambda: not gateway.app.state.replays._attempts)
        gateway.app.state.desk.gate.draining = True
        check(await gateway.post(GOOD, headers=retry(0)), 503, "unavailable")
        gateway.app.state.desk.gate.draining = False
        again = await gateway.post(GOOD, headers=retry(1))
        assert again.status_code == 200 and "idempotency-replayed" not in again.headers
        assert len(gateway.verifier.requests) == 2
        repeated = await gateway.post(GOOD, headers=retry(2))
        assert repeated.content == again.content and repeated.headers["idempotency-replayed"] == "true"
        await charged(gateway, key, COST, COST)

    async def test_equal_requests_are_not_retries(self, gateway, key):
        """Without the mark, and with a count of 0, each is answered anew, with a seed of its own."""
        for headers in ({}, {}, retry(0), retry(0)):
            assert "idempotency-replayed" not in (await gateway.post(GOOD, headers=headers)).headers
        assert len({request["seed"] for request in gateway.verifier.requests}) == 4

    async def test_a_lost_answer_is_given_again(self, gateway, key):
        """Each of two equal requests has one retry; a third retry, another body and another caller find nothing."""
        originals = [await gateway.post(GOOD, headers=retry(0)) for _ in range(2)]
        retries = [await gateway.post(GOOD, headers=retry(1)) for _ in range(2)]
        assert {r.content for r in retries} == {o.content for o in originals} and len(gateway.verifier.requests) == 2
        assert (await gateway.post(GOOD, headers=retry(2))).headers["idempotency-replayed"] == "true"
        await charged(gateway, key, COST, COST)
        for body, more in ((GOOD, {}), (GOOD | {"max_tokens": 6}, {}), (GOOD, {"authorization": gateway.key})):
            assert "idempotency-replayed" not in (await gateway.post(body, headers=retry(1) | more)).headers

    async def test_the_window(self, gateway, key):
        """After it, or when it is switched off, a retry is a new request."""
        await gateway.post(GOOD, headers=retry(0))
        replays = gateway.app.state.replays
        await until(lambda: not replays._attempts)
        replays._clock = lambda: time.time() + 121
        assert "idempotency-replayed" not in (await gateway.post(GOOD, headers=retry(1))).headers

    async def test_still_at_work(self, gateway, key):
        """A retry follows the answer that is being made, also when its first connection is still open."""
        gateway.verifier.gate = asyncio.Event()
        first = asyncio.create_task(gateway.post(STREAM, headers=retry(0)))
        await gateway.verifier.asked.wait()
        second = asyncio.create_task(gateway.post(STREAM, headers=retry(1)))
        [[attempt]] = gateway.app.state.replays._attempts.values()
        await until(lambda: attempt.recording.readers == 2)
        gateway.verifier.gate.set()
        assert (await first).content == (await second).content and len(gateway.verifier.requests) == 1

    async def test_a_broken_connection_is_paid_once(self, gateway, key):
        """The engine stops when the connection breaks; the retry gets the same answer for the rest of the price."""
        gateway.verifier.gate = asyncio.Event()
        async with reading(gateway, STREAM, retry(0)):
            handle = gateway.coordinator.of(gateway.verifier.requests[0])
            handle.numbers.prompt_tokens, handle.numbers.output_tokens = 5, 1
        again = asyncio.create_task(gateway.post(STREAM, headers=retry(1)))
        await gateway.verifier.gone.wait()
        gateway.verifier.gate.set()
        assert (await again).text.endswith("data: [DONE]\n\n")
        first, second = gateway.verifier.requests
        assert first["seed"] == second["seed"]
        await charged(gateway, key, ("left", 7000), ("answered", 2000))

    async def test_a_credit_is_used_once(self, gateway, key):
        """Two retries of one broken request do not both get what it paid."""
        gateway.verifier.gate = asyncio.Event()
        async with reading(gateway, STREAM, retry(0)):
            handle = gateway.coordinator.of(gateway.verifier.requests[0])
            handle.numbers.prompt_tokens, handle.numbers.output_tokens = 5, 1
        await gateway.verifier.gone.wait()
        gateway.verifier.gate = None
        for _ in range(2):
            await gateway.post(STREAM, headers=retry(1))
        await charged(gateway, key, 7000, 2000, COST)

    async def test_with_the_official_client(self, gateway, key):
        """A response that is lost on its way is asked for again by the client itself, and paid once."""

        class Losing(httpx2.AsyncHTTPTransport):
            lost = 0

            async def handle_async_request(self, request):
                response = await super().handle_async_request(request)
                if not self.lost:
                    self.lost += 1
                    await response.aread()
                    raise httpx2.ReadTimeout("lost", request=request)
                return response

        transport = Losing()
        secret = gateway.http.headers["authorization"][7:]
        async with openai.AsyncOpenAI(
            base_url=gateway.url + "/v1",
            api_key=secret,
            max_retries=2,
            http_client=httpx2.AsyncClient(transport=transport),
        ) as client:
            answer = await client.chat.completions.create(**GOOD)
        assert answer.choices[0].message.content == "Hello" and transport.lost == 1
        assert len(gateway.verifier.requests) == 1
        await charged(gateway, key, COST)


class TestTooLarge:
    """Answers beyond the bound are made and paid once, and made again when they are asked for again."""

    @pytest.fixture
    def extra(self, tmp_path):
        replays = ReplayOptions(max_answer_bytes=10)
        return {"prices": PRICES, "database": str(tmp_path / "gateway.db"), "replays": replays}

    @pytest.mark.parametrize(("first", "second"), [(KEYED, KEYED), (retry(0), retry(1))], ids=["keyed", "retried"])
    async def test_made_again_without_pay(self, gateway, key, first, second):
        """The same answer, by its seed; nothing of it is stored."""
        for headers in (first, second):
            assert (await gateway.post(STREAM, headers=headers)).text.endswith("data: [DONE]\n\n")
        assert len({request["seed"] for request in gateway.verifier.requests}) == 1
        await charged(gateway, key, COST, 0)


async def test_a_hostile_client_cannot_go_on_for_ever(gateway, key):
    """After some attempts what was paid is forgotten, so that breaking off and trying again is no way to free work."""
    call = call_from([(b"idempotency-key", b"x")], KeyId(key), CHAT, b"{}", None)
    replays = gateway.app.state.replays
    credits = []
    for _ in range(8):
        attempt = await replays.begin(call)
        credits.append(attempt.credit)
        await replays.end(attempt, 100 if not attempt.credit else 0)
    assert credits == [0, 100, 100, 100, 100, 100, 0, 0]
