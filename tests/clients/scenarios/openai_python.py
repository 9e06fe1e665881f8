"""The official Python client: whole and streamed answers, raw headers, errors, retries, log probabilities, tools."""

import asyncio
import json
import threading
import time
import uuid

import openai
from checks import KEY, LIMITED_KEY, MODEL, QUESTION, URL, check, counts, fail_next, main, raises, served, wait_for
from pydantic import BaseModel

client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=300)
chat = client.chat.completions.create
GREEDY = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 24}
ENDLESS = {**GREEDY, "max_tokens": 900, "logit_bias": {"2": -100}}
"""Nearly: token 2 is the model's end of text."""
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def text_of(chunks):
    """All content deltas of one choice."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


@check
def models():
    """The models list and one card."""
    assert MODEL in [model.id for model in client.models.list()]
    card = client.models.retrieve(MODEL)
    assert card.object == "model" and card.model_extra["context_length"] > 0
    error = raises(openai.NotFoundError, client.models.retrieve, "no-such-model")
    assert error.code == "model_not_found" and error.param == "model"


@check
def whole():
    """A whole answer with its usage"""
    answer = chat(**GREEDY)
    [choice] = answer.choices
    assert answer.object == "chat.completion" and choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length") and choice.message.tool_calls is None
    usage = answer.usage
    assert usage.prompt_tokens > 0 and 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0
    assert answer.model_extra["nexus"]["seed"] >= 0


@check
def streamed():
    """A streamed answer is the whole one, with the same usage"""
    answer = chat(**GREEDY)
    chunks = list(chat(**GREEDY, stream=True, stream_options={"include_usage": True}))
    assert text_of(chunks) == answer.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == answer.choices[0].finish_reason and reasons[:-1] == [None] * (len(reasons) - 1)
    usages = [chunk.usage for chunk in chunks]
    assert chunks[-1].choices == [] and usages[:-1] == [None] * (len(usages) - 1)
    same = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [getattr(usages[-1], name) for name in same] == [getattr(answer.usage, name) for name in same]
    assert len({chunk.id for chunk in chunks}) == 1


@check
def no_usage_unasked():
    """No usage in a stream that did not ask for it"""
    assert all(chunk.usage is None and chunk.choices for chunk in chat(**GREEDY, stream=True))


@check
async def asynchronous():
    """The asynchronous client, ten requests at once, whole and streamed"""
    async with openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=300) as other:

        async def ask(seed):
            body = {**GREEDY, "seed": seed, "max_tokens": 8}
            if seed % 2:
                return (await other.chat.completions.create(**body)).model_extra["nexus"]["seed"]
            stream = await other.chat.completions.create(**body, stream=True)
            return [chunk async for chunk in stream][-1].model_extra["nexus"]["seed"]

        assert await asyncio.gather(*map(ask, range(10))) == list(range(10))


@check
def raw_headers():
    """Raw responses give our headers, and the caller's id comes back"""
    label = {"x-client-request-id": "scenario-1"}
    raw = client.chat.completions.with_raw_response.create(**GREEDY, extra_headers=label)
    assert raw.headers["x-request-id"].startswith("req_") and int(raw.headers["openai-processing-ms"]) >= 0
    assert raw.headers["x-client-request-id"] == "scenario-1"
    assert raw.parse()._request_id == raw.headers["x-request-id"]
    with client.chat.completions.with_streaming_response.create(**GREEDY, stream=True) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]" and lines.count("data: [DONE]") == 1
    assert all(line.startswith(("data: ", ":")) for line in lines)


@check
def seeds():
    """A seed gives the same answer again, and choice i of n the answer to seed + i"""
    body = {**GREEDY, "temperature": 1.0, "seed": 41, "max_tokens": 12}
    three = chat(**body, n=3)
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    for choice in three.choices:
        alone = chat(**{**body, "seed": 41 + choice.index})
        assert alone.choices[0].message.content == choice.message.content
    assert three.usage.prompt_tokens == chat(**body).usage.prompt_tokens
    chunks = [chunk for chunk in chat(**body, n=3, stream=True) if chunk.choices]
    for choice in three.choices:
        own = [chunk for chunk in chunks if chunk.choices[0].index == choice.index]
        assert text_of(own) == choice.message.content
        assert [chunk.choices[0].finish_reason for chunk in own if chunk.choices[0].finish_reason] == [
            choice.finish_reason
        ]


@check
def logprobs():
    """Log probabilities: one entry a token, the same streamed"""
    body = {**GREEDY, "logprobs": True, "top_logprobs": 2}
    answer = chat(**body)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in entries)
    chunks = [chunk for chunk in chat(**body, stream=True) if chunk.choices and chunk.choices[0].logprobs]
    streamed_entries = [entry for chunk in chunks for entry in chunk.choices[0].logprobs.content or []]
    assert [entry.token for entry in streamed_entries] == [entry.token for entry in entries]


@check
def stop():
    """A stop string cuts exactly before itself, streamed too"""
    full = chat(**GREEDY).choices[0].message.content
    word = full[len(full) // 2 :][:3]
    for choice in (
        chat(**GREEDY, stop=word).choices[0],
        chat(**GREEDY, stop=["never in there", word]).choices[0],
    ):
        assert choice.message.content == full[: full.index(word)] and choice.finish_reason == "stop"
    assert text_of(chat(**GREEDY, stop=word, stream=True)) == full[: full.index(word)]


@check
def completions():
    """Legacy completions, whole and streamed, with log probabilities"""
    body = {"model": MODEL, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    answer = client.completions.create(**body, logprobs=2)
    [choice] = answer.choices
    assert answer.object == "text_completion" and choice.text and answer.usage.completion_tokens
    assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == answer.usage.completion_tokens
    assert "".join(each.choices[0].text for each in client.completions.create(**body, stream=True)) == choice.text
    assert client.completions.create(**{**body, "prompt": [1, 2, 3]}).choices


@check
def structured():
    """Structured output: `parse` gives an object of the class, and the stream helper the same"""

    class City(BaseModel):
        name: str
        capital: bool

    body = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 200}
    answer = client.chat.completions.parse(**body, response_format=City)
    assert isinstance(answer.choices[0].message.parsed, City)
    with client.chat.completions.stream(**body, response_format=City) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.parsed == answer.choices[0].message.parsed


@check
def tools():
    """A forced tool call, whole and streamed, and its result sent back"""
    served("tools")
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Weather in Paris?"}], "temperature": 0}
    body |= {
        "max_tokens": 200,
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    }
    choice = chat(**body).choices[0]
    [call] = choice.message.tool_calls
    assert call.type == "function" and call.id and call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
    assert choice.finish_reason in ("tool_calls", "stop")
    deltas = [
        delta
        for chunk in chat(**body, stream=True)
        if chunk.choices
        for delta in chunk.choices[0].delta.tool_calls or []
    ]
    assert {delta.index for delta in deltas} == {0} and deltas[0].id and deltas[0].function.name == "get_weather"
    assert all(delta.id is None and delta.function.name is None for delta in deltas[1:])
    assert "".join(delta.function.arguments or "" for delta in deltas) == call.function.arguments
    told = [*body["messages"], choice.message.model_dump(exclude_none=True)]
    told.append({"role": "tool", "tool_call_id": call.id, "content": "18 degrees"})
    answer = chat(**{**body, "messages": told, "tool_choice": "none", "max_tokens": 8})
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls


@check
def trace():
    """The `nexus` extension: origins of tokens"""
    answer = chat(**GREEDY, extra_body={"nexus": {"privacy": "verifier_only", "trace": True}})
    told = answer.model_extra["nexus"]
    assert len(told["trace"]) == answer.usage.completion_tokens and told["nodes"] == "none"


@check
def errors():
    """Errors are the client's own classes, with `param` and `code`"""
    error = raises(openai.BadRequestError, chat, **{**GREEDY, "temperature": 3})
    assert (error.status_code, error.param, error.code) == (400, "temperature", "invalid_request")
    assert error.request_id.startswith("req_")
    error = raises(openai.BadRequestError, chat, **GREEDY, extra_body={"unheard_of": 1})
    assert error.param == "unheard_of"
    error = raises(openai.NotFoundError, chat, **{**GREEDY, "model": "other"})
    assert error.code == "model_not_found"
    error = raises(openai.AuthenticationError, client.with_options(api_key="wrong-key").models.list)
    assert error.code == "invalid_api_key"
    long = [{"role": "user", "content": "word " * 3000}]
    error = raises(openai.BadRequestError, chat, **{**GREEDY, "messages": long})
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    error = raises(
        openai.APIStatusError, chat, **{**GREEDY, "messages": [{"role": "user", "content": "x" * 3_000_000}]}
    )
    assert error.status_code == 413


@check
def retries():
    """503 carries Retry-After; the client waits for it and succeeds at the second try"""
    body = {**GREEDY, "seed": 901}  # a retry of what was answered before would be given that answer
    fail_next("503")
    error = raises(openai.InternalServerError, chat, **body)
    assert error.status_code == 503 and int(error.response.headers["retry-after"]) >= 1
    before, began = counts()["generations"], time.monotonic()
    fail_next("503")
    answer = client.with_options(max_retries=2).chat.completions.create(**body)
    assert answer.choices[0].message.content
    assert counts()["generations"] - before == 2
    assert time.monotonic() - began >= int(error.response.headers["retry-after"])


@check
def limits():
    """429 with Retry-After when a key is over its limit; the client waits and succeeds when there is room again"""
    limited = client.with_options(api_key=LIMITED_KEY)
    with limited.chat.completions.create(**ENDLESS, stream=True) as stream:
        next(iter(stream))
        error = raises(openai.RateLimitError, limited.chat.completions.create, **GREEDY)
        assert error.code == "rate_limit_exceeded" and int(error.response.headers["retry-after"]) >= 1
        error = raises(openai.BadRequestError, limited.chat.completions.create, **GREEDY, n=2)
        assert error.param == "n"
        threading.Timer(0.5, stream.close).start()
        raw = limited.with_options(max_retries=5).chat.completions.with_raw_response.create(**GREEDY)
    assert raw.retries_taken >= 1 and raw.parse().choices[0].message.content
    assert raw.headers["x-ratelimit-limit-requests"] == "1000"
    assert 0 < int(raw.headers["x-ratelimit-remaining-requests"]) <= 1000
    assert raw.headers["x-nexus-cost"] and raw.headers["x-ratelimit-reset-requests"]


@check
def idempotency():
    """An Idempotency-Key gives the same answer again, made once; another body with it is a conflict"""
    body = {**GREEDY, "temperature": 1.0, "max_tokens": 12}
    named = {"extra_headers": {"idempotency-key": "scenario-" + uuid.uuid4().hex}}
    first = chat(**body, **named)
    before = counts()["generations"]
    again = chat(**body, **named)
    assert again.id == first.id and again.choices == first.choices and counts()["generations"] == before
    error = raises(openai.ConflictError, chat, **{**body, "max_tokens": 13}, **named)
    assert error.status_code == 409


@check
def lost_answers():
    """A retry of an answer that got lost is given that answer: it is not made, and paid, twice"""
    body = {**GREEDY, "temperature": 1.0, "max_tokens": 12, "user": uuid.uuid4().hex}
    first = chat(**body)
    before = counts()["generations"]
    again = chat(**body, extra_headers={"x-stainless-retry-count": "1"})
    assert again.choices == first.choices and counts()["generations"] == before


@check
def failure_before_the_first_token():
    """A verifier that fails is a 502, and the client retries it"""
    fail_next("500")
    error = raises(openai.InternalServerError, chat, **GREEDY)
    assert error.status_code == 502 and error.code == "upstream_error"
    fail_next("500")
    assert client.with_options(max_retries=1).chat.completions.create(**GREEDY, stream=True)


@check
def failure_in_mid_stream():
    """A failure in mid-stream raises, after the text that came before it"""
    fail_next("cut")
    chunks, long = [], {**GREEDY, "max_tokens": 200}

    def read():
        for chunk in chat(**long, stream=True):
            chunks.append(chunk)

    error = raises(openai.APIError, read)
    assert "verifier" in error.message
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks)


@check
def leaving():
    """Closing a stream ends the verifier's request; a time limit raises the client's own error"""
    before = counts()
    with chat(**ENDLESS, stream=True) as stream:
        assert next(iter(stream)).choices[0].delta.role == "assistant"
    wait_for(lambda: counts()["gone"] == before["gone"] + 1)
    raises(openai.APITimeoutError, client.with_options(timeout=0.05).chat.completions.create, **ENDLESS)
    wait_for(lambda: counts()["gone"] == before["gone"] + 2)


main()
