"""Chat completions through the official client, against a verifier that speaks vLLM's dialect."""

import asyncio
import json
import threading
from typing import Any

import openai
import pytest

from cloud.api.broker.policy import StreamPolicy
from cloud.api.openai.shapes import ChatShape

HELLO: list[Any] = [{"role": "user", "content": "hi"}]


def events(text: str) -> list[dict[str, Any]]:
    """The JSON of each event; the stream must end with [DONE]."""
    datas = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    assert datas[-1] == "[DONE]"
    return [json.loads(data) for data in datas[:-1]]


async def test_whole_answer(gateway):
    """A non-streamed answer has OpenAI's fields, usage with cached tokens, and the nexus object."""
    answer = await gateway.client.chat.completions.create(model="tiny", messages=HELLO, seed=7)
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion"
    assert answer.model == "tiny" and answer.created > 1_600_000_000
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Hello", "stop")
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 2, 7)
    assert usage.prompt_tokens_details.cached_tokens == 3
    assert answer.nexus["seed"] == 7


async def test_streamed_answer_equals_the_whole_one(gateway):
    """Role first, text, one finish chunk with an empty delta, then [DONE]; no usage unless asked for."""
    response = await gateway.post({"model": "tiny", "messages": HELLO, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache" and response.headers["x-accel-buffering"] == "no"
    chunks = events(response.text)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "Hello"
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, None, None, "stop"]
    assert chunks[-1]["choices"][0]["delta"] == {}
    assert all("usage" not in c and c["id"] == chunks[0]["id"] for c in chunks)
    assert ["nexus" in c for c in chunks] == [False, False, False, True]


async def test_usage_only_in_the_trailing_chunk(gateway):
    """With include_usage every other chunk carries usage: null and the last one has no choices."""
    body = {"model": "tiny", "messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
    *others, last = events((await gateway.post(body)).text)
    assert all(c["usage"] is None for c in others)
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 2
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 3} and "seed" in last["nexus"]


async def test_sync_client_streams(gateway):
    """The synchronous client reads the same stream."""

    def read() -> str:
        with gateway.sync_client() as client:
            stream = client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
            return "".join(c.choices[0].delta.content or "" for c in stream)

    assert await asyncio.to_thread(read) == "Hello"


async def test_sync_client_gets_a_whole_answer(gateway):
    """The synchronous client reads a whole answer."""

    def read() -> str | None:
        with gateway.sync_client() as client:
            answer = client.chat.completions.create(model="tiny", messages=HELLO)
            return answer.choices[0].message.content

    assert await asyncio.to_thread(read) == "Hello"


async def test_async_client_streams(gateway):
    """The asynchronous client reads the stream."""
    stream = await gateway.client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
    assert [c.choices[0].delta.content async for c in stream if c.choices[0].delta.content] == ["Hel", "lo"]


async def test_every_sampling_parameter_is_spelled_out(gateway):
    """What the caller leaves out is sent as OpenAI's default, so no model folder's default applies."""
    await gateway.client.chat.completions.create(model="tiny", messages=HELLO)
    [sent] = gateway.verifier.requests
    assert sent["temperature"] == 1 and sent["top_p"] == 1 and sent["top_k"] == 0 and sent["min_p"] == 0
    assert sent["repetition_penalty"] == 1 and sent["presence_penalty"] == 0 and sent["frequency_penalty"] == 0
    assert sent["stop"] == [] and "max_tokens" not in sent and isinstance(sent["seed"], int)
    assert sent["stream"] is True and sent["stream_options"] == {"include_usage": True}
    assert sent["vllm_xargs"]["nexus_gateway"] == "gateway-under-test" and sent["vllm_xargs"]["nexus_stream"]


async def test_parameters_reach_the_verifier(gateway):
    """Given parameters are forwarded; the newer name of the output limit wins; developer becomes system."""
    await gateway.client.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ],
        max_tokens=9,
        max_completion_tokens=4,
        temperature=0,
        top_p=0.5,
        stop=["\n", "END"],
        presence_penalty=0.1,
        frequency_penalty=-0.2,
        user="someone",
        metadata={"a": "b"},
        store=False,
        extra_body={"tools": [], "logit_bias": None},
    )
    [sent] = gateway.verifier.requests
    assert sent["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert (sent["max_tokens"], sent["temperature"], sent["top_p"]) == (4, 0, 0.5)
    assert (sent["stop"], sent["presence_penalty"], sent["frequency_penalty"]) == (["\n", "END"], 0.1, -0.2)
    assert not {"user", "metadata", "store", "tools", "logit_bias", "nexus"} & set(sent)


async def test_several_choices_have_their_own_stream_and_seed(gateway):
    """n = 2: two streams with seed and seed + 1, own indices, the prompt counted once."""
    answer = await gateway.client.chat.completions.create(model="tiny", messages=HELLO, n=2, seed=40, logprobs=True)
    assert [c.index for c in answer.choices] == [0, 1]
    assert [c.message.content for c in answer.choices] == ["Hello", "Hello"]
    assert sorted(r["seed"] for r in gateway.verifier.requests) == [40, 41]
    assert len({r["vllm_xargs"]["nexus_stream"] for r in gateway.verifier.requests}) == 2
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 4)


async def test_several_choices_streamed(gateway):
    """n = 2, streamed: each choice opens with its role and ends once, and one [DONE] ends all."""
    body = {"model": "tiny", "messages": HELLO, "stream": True, "n": 2}
    chunks = events((await gateway.post(body)).text)
    for index in (0, 1):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(c["delta"].get("content", "") for c in own) == "Hello"
        assert [c["finish_reason"] for c in own][-1] == "stop"
        assert sum(c["finish_reason"] is not None for c in own) == 1
    assert ["nexus" in c for c in chunks].count(True) == 1 and "nexus" in chunks[-1]


async def test_logprobs(gateway):
    """Log probabilities come for each token with bytes and the asked number of alternatives."""
    answer = await gateway.client.chat.completions.create(model="tiny", messages=HELLO, logprobs=True, top_logprobs=1)
    content = answer.choices[0].logprobs.content
    assert [(t.token, t.logprob, t.bytes) for t in content] == [("Hel", -0.5, [72, 101, 108]), ("lo", -0.5, [108, 111])]
    assert [t.top_logprobs[0].token for t in content] == ["Hel", "lo"]


async def test_text_with_any_character_split_anywhere(gateway, step):
    """Multi-byte text, line separators and network splits in the middle of characters come out whole."""
    text = "caf\u00e9 \u2028 \x85 \U0001f600 \u65e5\u672c"
    gateway.verifier.steps = [step(char, [(1, char)]) for char in text]
    gateway.verifier.split = 7
    response = await gateway.post({"model": "tiny", "messages": HELLO, "stream": True})
    chunks = events(response.text)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == text
    answer = await gateway.client.chat.completions.create(model="tiny", messages=HELLO)
    assert answer.choices[0].message.content == text


async def test_length_is_told(gateway):
    """The verifier's finish reason is passed on when it is one of OpenAI's."""
    gateway.verifier.finish = "length"
    answer = await gateway.client.chat.completions.create(model="tiny", messages=HELLO)
    assert answer.choices[0].finish_reason == "length"


async def test_privacy_keeps_nodes_out(gateway):
    """nexus.privacy decides whether nodes may see the stream; without a word the deployment decides."""
    for extra in ({}, {"nexus": {"privacy": "verifier_only"}}):
        await gateway.client.chat.completions.create(model="tiny", messages=HELLO, extra_body=extra)
    allowed = [gateway.coordinator.of(r).policy.allow_nodes for r in gateway.verifier.requests]
    assert allowed == [None, False]


async def test_figures_are_summed(gateway):
    """The nexus object holds the broker's figures, and every handle is released."""

    def count(payload: dict[str, Any], place: int) -> None:
        numbers = gateway.coordinator.of(payload).numbers
        numbers.drafted, numbers.accepted, numbers.verify_steps, numbers.output_tokens = 4, 3, 2, 5
        numbers.node_class = "any"

    gateway.verifier.on_step = count
    answer = await gateway.client.chat.completions.create(model="tiny", messages=HELLO, n=2, seed=1)
    assert answer.nexus == {
        "drafted": 8,
        "accepted": 6,
        "verify_steps": 4,
        "tokens_per_step": 2.5,
        "seed": 1,
        "nodes": "any",
        "cost": "0",
    }
    assert all(h.released.is_set() and h.waited for h in gateway.coordinator.handles.values())


async def test_trace_live_and_final(gateway, step):
    """trace: pieces while it streams, the whole list at the end; its texts are exactly the answer's text."""
    gateway.verifier.steps = [step("Hel", [(1, "Hel")]), step("lo w", [(2, "lo"), (3, " w")]), step("", [(9, "<eos>")])]
    origins = [["plain"], ["plain", "accepted", "corrected"], ["plain", "accepted", "corrected", "bonus"]]

    def count(payload: dict[str, Any], place: int) -> None:
        gateway.coordinator.of(payload).numbers.origins = origins[place]

    gateway.verifier.on_step = count
    body = {"model": "tiny", "messages": HELLO, "stream": True, "nexus": {"trace": True}}
    chunks = events((await gateway.post(body)).text)
    expected = [
        {"id": 1, "text": "Hel", "origin": "plain"},
        {"id": 2, "text": "lo", "origin": "accepted"},
        {"id": 3, "text": " w", "origin": "corrected"},
        {"id": 9, "text": "", "origin": "bonus"},
    ]
    pieces = [t for c in chunks[:-1] for t in c.get("nexus", {}).get("trace", [])]
    assert pieces == expected and chunks[-1]["nexus"]["trace"] == expected
    assert all(c["choices"][0]["logprobs"] is None for c in chunks)
    answer = await gateway.client.chat.completions.create(
        model="tiny", messages=HELLO, extra_body={"nexus": {"trace": True}}
    )
    assert answer.nexus["trace"] == expected and answer.choices[0].logprobs is None


async def test_trace_without_origins_does_not_wait_for_each_token(gateway, step):
    """When the draft port is silent, the answer still comes and every token counts as plain."""
    gateway.verifier.steps = [step("a", [(1, "a")]) for _ in range(50)]
    answer = await gateway.client.chat.completions.create(
        model="tiny", messages=HELLO, extra_body={"nexus": {"trace": True}}
    )
    assert {t["origin"] for t in answer.nexus["trace"]} == {"plain"}


@pytest.mark.parametrize("stream", [False, True])
async def test_sampling_parameters_by_the_official_client(gateway, stream):
    """OpenAI's own as arguments, the others in extra_body; what the engine refuses goes to the sampler beside them."""
    answer = await gateway.client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        stream=stream,
        n=2,
        logit_bias={"5": -100, "7": 2.5},
        response_format={"type": "json_object"},
        extra_body={"min_p": 0.1, "top_k": 9, "repetition_penalty": 1.2},
    )
    if stream:
        assert [chunk async for chunk in answer]
    for sent in gateway.verifier.requests:
        extra = sent["vllm_xargs"]
        assert (extra["nexus_min_p"], extra["nexus_logit_bias"]) == (0.1, [5, -100, 7, 2.5])
        assert extra["nexus_stream"] and extra["nexus_gateway"]
        assert (sent["top_k"], sent["repetition_penalty"], sent["min_p"]) == (9, 1.2, 0)
        assert sent["response_format"] == {"type": "json_object"} and "logit_bias" not in sent
        assert gateway.coordinator.of(sent).shaped
    assert len(gateway.verifier.requests) == 2


async def test_wishes_reach_the_broker(gateway):
    """Each choice of the request has them."""
    wishes = {"nodes": True, "max_draft_tokens": 3, "max_wait_ms": 20}
    await gateway.client.chat.completions.create(model="tiny", messages=HELLO, n=2, extra_body={"nexus": wishes})
    wanted = StreamPolicy(allow_nodes=True, max_draft_tokens=3, max_wait_ms=20)
    assert [gateway.coordinator.of(sent).policy for sent in gateway.verifier.requests] == [wanted] * 2


async def test_a_bias_beyond_the_vocabulary_never_reaches_the_verifier(gateway):
    """The model's size is known from the draft port."""
    with pytest.raises(openai.BadRequestError, match=r"token 100.*end at 99") as caught:
        await gateway.client.chat.completions.create(model="tiny", messages=HELLO, logit_bias={"100": 1})
    assert caught.value.param == "logit_bias" and not gateway.verifier.requests


async def test_without_the_plugin_nothing_is_ignored(gateway):
    """A plain engine gets what it would not look for beside its own fields as those; one with the plugin refuses them
    under speculation, and its draft port will come."""
    gateway.coordinator.about = None
    body = {"model": "tiny", "messages": HELLO, "logit_bias": {"5": -100}, "min_p": 0.1}
    assert (await gateway.post(body)).status_code == 200
    [sent] = gateway.verifier.requests
    assert (sent["logit_bias"], sent["min_p"]) == ({"5": -100}, 0.1)
    assert set(sent["vllm_xargs"]) == {"nexus_stream", "nexus_gateway"}
    words = "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
    gateway.verifier.status, gateway.verifier.body = 400, {"error": {"message": words, "code": 400}}
    answer = await gateway.post(body)
    assert answer.status_code == 503 and answer.headers["retry-after"]


@pytest.mark.parametrize(("path", "param"), [("chat/completions", "top_logprobs"), ("completions", "logprobs")])
async def test_more_alternatives_than_the_verifier_lists(gateway, path, param):
    """Ours lists enough; another one's limit is told."""
    words = "Requested sample logprobs of 21, which is greater than max allowed: 20"
    gateway.verifier.status, gateway.verifier.body = 400, {"error": {"message": words, "code": 400}}
    more = (
        {"messages": HELLO, "logprobs": True, "top_logprobs": 20} if "chat" in path else {"prompt": "x", "logprobs": 5}
    )
    error = (await gateway.post({"model": "tiny", **more}, f"/v1/{path}")).json()["error"]
    assert error["param"] == param and "20" in error["message"] and "21" not in error["message"]


@pytest.mark.parametrize(("tokens", "on_loop"), [(20, True), (3000, False)])
async def test_a_large_answer_is_not_built_on_the_event_loop(gateway, step, monkeypatch, tokens, on_loop):
    """Log probabilities of many tokens take long, and other streams would wait."""
    gateway.verifier.steps = [step("x" * tokens, [(1, "x")] * tokens)]
    build, seen = ChatShape.whole, []

    def whole(*given, **more):
        seen.append(threading.current_thread() is threading.main_thread())
        return build(*given, **more)

    monkeypatch.setattr(ChatShape, "whole", whole)
    answer = await gateway.client.chat.completions.create(model="tiny", messages=HELLO, logprobs=True)
    assert len(answer.choices[0].logprobs.content) == tokens and seen == [on_loop]
