"""Text completions through the official client."""

import pytest


async def test_whole_answer(gateway):
    """Text, finish reason and id are in OpenAI's shape; the default output limit is OpenAI's 16."""
    answer = await gateway.client.completions.create(model="tiny", prompt="say")
    assert answer.id.startswith("cmpl-") and answer.object == "text_completion"
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello", "stop")
    [sent] = gateway.verifier.requests
    assert (sent["prompt"], sent["max_tokens"]) == ("say", 16)


@pytest.mark.parametrize(("prompt", "sent"), [([1, 2], [1, 2]), (["one"], "one"), ([[3]], [3])])
async def test_prompt_forms(gateway, prompt, sent):
    """Token ids, and a list that holds one prompt, are accepted."""
    await gateway.client.completions.create(model="tiny", prompt=prompt)
    assert gateway.verifier.requests[0]["prompt"] == sent


async def test_streamed(gateway):
    """Streamed texts add up to the whole text."""
    stream = await gateway.client.completions.create(model="tiny", prompt="say", stream=True)
    chunks = [c async for c in stream]
    assert "".join(c.choices[0].text for c in chunks) == "Hello"
    assert [c.choices[0].finish_reason for c in chunks] == [None, None, "stop"]


async def test_logprobs(gateway):
    """The four parallel lists have one entry for each token, with running offsets."""
    answer = await gateway.client.completions.create(model="tiny", prompt="say", logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert (logprobs.tokens, logprobs.token_logprobs) == (["Hel", "lo"], [-0.5, -0.5])
    assert logprobs.text_offset == [0, 3] and logprobs.top_logprobs == [{"Hel": -0.5}, {"lo": -0.5}]


async def test_trace(gateway):
    """nexus.trace works here as well."""
    answer = await gateway.client.completions.create(model="tiny", prompt="say", extra_body={"nexus": {"trace": True}})
    assert [(t["id"], t["text"]) for t in answer.nexus["trace"]] == [(1, "Hel"), (2, "lo")]
