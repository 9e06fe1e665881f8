"""What load generators send beside OpenAI's parameters is honoured."""

import json

import pytest

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def judged() -> bool:
    """Usage in every chunk is not OpenAI's."""
    return False


def chunks_of(response) -> list[dict]:
    return [json.loads(event[6:]) for event in response.text.split("\n\n") if event.startswith("data: {")]


async def test_usage_in_every_chunk(gateway, step):
    """The count grows to the final one; a stream that does not ask for it has null until its end."""
    gateway.verifier.steps = [step("a", [(1, "a")]), step("bc", [(2, "b"), (3, "c")]), step("d", [(4, "d")])]
    asked = {"include_usage": True, "continuous_usage_stats": True}
    told = chunks_of(await gateway.post(CHAT | {"stream": True, "stream_options": asked}))
    assert gateway.verifier.requests[-1]["stream_options"] == asked
    counts = [chunk["usage"]["completion_tokens"] for chunk in told]
    assert counts == sorted(counts) and counts[0] >= 1 and counts[-1] == 4
    assert [chunk["choices"] == [] for chunk in told] == [False] * (len(told) - 1) + [True]
    told = chunks_of(await gateway.post(CHAT | {"stream": True, "stream_options": {"include_usage": True}}))
    assert [chunk["usage"] for chunk in told[:-1]] == [None] * (len(told) - 1)


async def test_without_include_usage_it_says_nothing(gateway):
    """As in vLLM."""
    asked = {"continuous_usage_stats": True}
    told = chunks_of(await gateway.post(CHAT | {"stream": True, "stream_options": asked}))
    assert told and all("usage" not in chunk for chunk in told)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_ignoring_the_end(gateway, path):
    """`ignore_eos` reaches the engine, and only when it is asked for."""
    body = CHAT if "chat" in path else {"model": "tiny", "prompt": "hi"}
    for value, sent in ((True, True), (False, None), (None, None)):
        assert (await gateway.post(body | {"ignore_eos": value}, path)).status_code == 200
        assert gateway.verifier.requests[-1].get("ignore_eos") == sent
