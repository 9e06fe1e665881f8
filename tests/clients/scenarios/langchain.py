"""LangChain's OpenAI chat model: invoke, stream, batch, structured output, tools, errors, retries."""

import openai
from checks import KEY, MODEL, URL, check, counts, fail_next, main, raises, served, wait_for
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

PROMPT = [SystemMessage("You are brief."), HumanMessage("Name three colours of the sea.")]


def model(**changes):
    """The chat model that all checks use."""
    fields = {"temperature": 0, "max_tokens": 24, "max_retries": 0, "timeout": 300, **changes}
    return ChatOpenAI(base_url=URL, api_key=KEY, model=MODEL, **fields)


@check
def invoke_and_stream():
    """`invoke` and `stream` give the same text, with usage"""
    whole = model().invoke(PROMPT)
    assert isinstance(whole, AIMessage) and whole.content
    usage = whole.usage_metadata
    assert usage["input_tokens"] > 0 and 0 < usage["output_tokens"] <= 24
    assert whole.response_metadata["finish_reason"] in ("stop", "length")
    chunks = list(model(stream_usage=True).stream(PROMPT))
    assert "".join(chunk.text for chunk in chunks) == whole.content and len(chunks) > 2
    merged = sum(chunks[1:], chunks[0])
    assert merged.usage_metadata["output_tokens"] == usage["output_tokens"]


@check
async def asynchronous():
    """The asynchronous side: ainvoke, astream and abatch"""
    whole = await model().ainvoke(PROMPT)
    assert "".join([chunk.text async for chunk in model().astream(PROMPT)]) == whole.content
    answers = await model(max_tokens=8).abatch([[HumanMessage(f"Say {number}.")] for number in range(6)])
    assert len(answers) == 6 and all(answer.content for answer in answers)


@check
def headers_and_logprobs():
    """Response headers and log probabilities"""
    answer = model(include_response_headers=True, logprobs=True, top_logprobs=2).invoke(PROMPT)
    assert answer.response_metadata["headers"]["x-request-id"].startswith("req_")
    entries = answer.response_metadata["logprobs"]["content"]
    assert len(entries) == answer.usage_metadata["output_tokens"] and len(entries[0]["top_logprobs"]) == 2


@check
def extensions():
    """Nexus' own fields through `extra_body`"""
    assert model(extra_body={"nexus": {"privacy": "verifier_only"}, "top_k": 5}).invoke(PROMPT).content
    error = raises(openai.BadRequestError, model(extra_body={"nexus": {"privacy": "nobody"}}).invoke, PROMPT)
    assert error.param == "nexus.privacy"


@check
def structured():
    """Structured output by JSON schema"""

    class City(BaseModel):
        name: str
        capital: bool

    chain = model(max_tokens=200).with_structured_output(City, method="json_schema")
    assert isinstance(chain.invoke("A city, as JSON."), City)


@check
def tools():
    """A forced tool call, whole and streamed, and its result sent back"""
    served("tools")

    @tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"18 degrees in {city}"

    bound = model(max_tokens=100).bind_tools([get_weather], tool_choice="get_weather")
    question = HumanMessage("Weather in Paris?")
    answer = bound.invoke([question])
    [call] = answer.tool_calls
    assert call["name"] == "get_weather" and isinstance(call["args"]["city"], str)
    chunks = list(bound.stream([question]))
    [streamed] = sum(chunks[1:], chunks[0]).tool_calls
    assert (streamed["name"], streamed["args"]) == (call["name"], call["args"])
    result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
    assert model().bind_tools([get_weather], tool_choice="none").invoke([question, answer, result]).content


@check
def errors():
    """Errors are the OpenAI client's classes"""
    error = raises(openai.BadRequestError, model(temperature=3).invoke, PROMPT)
    assert error.param == "temperature"
    raises(openai.AuthenticationError, ChatOpenAI(base_url=URL, api_key="wrong-key", model=MODEL).invoke, "x")
    long = [HumanMessage("word " * 3000)]
    error = raises(openai.BadRequestError, model().invoke, long)
    assert error.code == "context_length_exceeded"


@check
def retries():
    """503 is retried and succeeds at the second try"""
    fail_next("503")
    raises(openai.InternalServerError, model(seed=903).invoke, PROMPT)
    before = counts()["generations"]
    fail_next("503")
    assert model(max_retries=2, seed=903).invoke(PROMPT).content
    assert counts()["generations"] - before == 2


@check
def leaving():
    """A stream that is left ends the verifier's request; a failure in mid-stream raises"""
    before = counts()["gone"]
    stream = model(max_tokens=900, logit_bias={2: -100}).stream(PROMPT)
    assert next(stream) is not None
    stream.close()
    wait_for(lambda: counts()["gone"] == before + 1)
    fail_next("cut")
    raises(openai.APIError, lambda: list(model(max_tokens=200).stream(PROMPT)))


main()
