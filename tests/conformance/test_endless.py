"""Servers that never come to an end."""

import asyncio

import pytest

from cloud.conformance import suite, target
from cloud.conformance.case import CASES, Verdict
from cloud.conformance.target import Target

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\nconnection: close\r\n\r\n"


@pytest.fixture
async def endless():
    """Answers everything with more and more of the same, as fast as it is read or with a pause between."""
    made = {"kind": b"application/json", "piece": b" ", "pause_s": 0.01}
    tasks = set()

    async def answer(reader, writer):
        tasks.add(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD % made["kind"])
            while True:
                writer.write(made["piece"])
                await writer.drain()
                await asyncio.sleep(made["pause_s"])
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    made["url"] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("name", ["chat.schema", "stream.done", "stream.live", "models.list"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_answer_that_drips_for_ever_fails_its_case(endless, name, kind):
    """Something comes all the time, so that no wait for the next bytes is too long."""
    endless |= {"kind": kind.encode(), "piece": b'data: {"choices": []}\n\n'}
    async with Target.open(endless["url"], None, "model", timeout_s=0.2) as judged:
        result = await asyncio.wait_for(suite.run_case(CASES[name], judged), 5)
    assert (result.strict, result.compatible) == (Verdict.FAIL, Verdict.FAIL), result


async def test_no_more_is_read_of_an_answer_than_fits(endless, monkeypatch):
    """A server that is endless and quick is not kept in memory."""
    monkeypatch.setattr(target, "ANSWER_LIMIT", 1 << 20)
    endless |= {"piece": b"x" * 65536, "pause_s": 0}
    async with Target.open(endless["url"], None, "model", timeout_s=60) as judged:
        answer = await asyncio.wait_for(judged.ask(), 10)
    assert 1 << 20 <= len(answer.body) < 3 << 20
