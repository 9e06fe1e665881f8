"""Callers who leave, silence, and what the verifier is spared."""

import asyncio

import msgspec
import pytest

from cloud.api.settings import Limits

GOOD = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("gate_at", [0, 1])
async def test_a_caller_who_leaves_stops_the_verifier(gateway, stream, gate_at):
    """Before or after the first token, streamed or not, the request to the verifier is closed."""
    verifier = gateway.verifier
    verifier.gate, verifier.gate_at = asyncio.Event(), gate_at
    asked = asyncio.create_task(gateway.post(GOOD | {"stream": stream}))
    await verifier.asked.wait()
    asked.cancel()
    async with asyncio.timeout(30):
        await verifier.gone.wait()
    for handle in gateway.coordinator.handles.values():
        await handle.released.wait()
    assert "nexus_client_disconnects_total 1.0" in (await gateway.http.get("/metrics")).text


async def test_all_choices_stop_together(gateway):
    """When one of several choices fails, the requests of the others are closed."""
    verifier = gateway.verifier
    verifier.gate = asyncio.Event()

    def fail_second(payload, place):
        if payload["seed"] == 2:
            raise ConnectionAbortedError

    verifier.on_step = fail_second
    response = await gateway.post(GOOD | {"n": 2, "seed": 1})
    assert response.status_code == 502
    async with asyncio.timeout(30):
        await verifier.gone.wait()


class TestKeepAlive:
    """Comment lines in silence."""

    @pytest.fixture
    def limits(self):
        return Limits(keep_alive_s=0.01, shutdown_s=1)

    async def test_comments_between_events(self, gateway):
        """They come while the verifier is silent, also before its first token, and never inside an event."""
        verifier = gateway.verifier
        verifier.gate, verifier.gate_at = asyncio.Event(), 0
        text = ""
        async with gateway.http.stream("POST", "/v1/chat/completions", json=GOOD | {"stream": True}) as response:
            async for block in response.aiter_text():
                text += block
                if text.count(": keep-alive\n\n") >= 2:
                    verifier.gate.set()
        blocks = text.strip().split("\n\n")
        assert all(block == ": keep-alive" or block.startswith("data: ") for block in blocks)
        assert blocks[-1] == "data: [DONE]"

    async def test_the_official_client_skips_them(self, gateway):
        """The SDK reads text through them."""
        verifier = gateway.verifier
        verifier.gate = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, verifier.gate.set)
        stream = await gateway.client.chat.completions.create(**GOOD, stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in stream]) == "Hello"


async def test_first_bytes_wait_for_the_verifier(gateway):
    """No status is sent before the verifier's first result."""
    verifier = gateway.verifier
    verifier.gate, verifier.gate_at = asyncio.Event(), 0
    sent = asyncio.create_task(gateway.post(GOOD | {"stream": True}))
    await verifier.asked.wait()
    verifier.error_after = 0
    verifier.gate.set()
    assert (await sent).status_code == 502


class TestStalledClient:
    """A caller who takes nothing."""

    @pytest.fixture
    def limits(self):
        return Limits(stalled_client_s=0.2, shutdown_s=1)

    async def test_is_cut_off(self, gateway, step):
        """When the buffers are full for too long, the stream and its request to the verifier are closed."""
        gateway.verifier.steps = [step("x" * 1_000_000) for _ in range(60)]
        body = msgspec.json.encode(GOOD | {"stream": True})
        host, port = gateway.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: {gateway.key}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(60):
            await gateway.verifier.gone.wait()
        for handle in gateway.coordinator.handles.values():
            await handle.released.wait()
        writer.transport.abort()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_who_stays_is_no_disconnect(gateway, stream):
    """The end of an answer is not taken for its caller's."""
    for _ in range(10):
        assert (await gateway.post(GOOD | {"stream": stream, "n": 3})).status_code == 200
    assert "nexus_client_disconnects_total 0.0" in (await gateway.http.get("/metrics")).text
