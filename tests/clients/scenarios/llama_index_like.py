"""LlamaIndex's OpenAILike: chat and completions, whole and streamed, asynchronous, tools, errors, retries."""

import httpx  # noqa: TID251 - what this client takes
import openai
from checks import KEY, MODEL, URL, check, counts, fail_next, main, raises, served, wait_for
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

MESSAGES = [
    ChatMessage(role=MessageRole.SYSTEM, content="You are brief."),
    ChatMessage(role=MessageRole.USER, content="Name three colours of the sea."),
]


def model(**changes):
    """The model that all checks use."""
    fields = {"temperature": 0, "max_tokens": 24, "max_retries": 0, "timeout": 300, "is_chat_model": True, **changes}
    return OpenAILike(model=MODEL, api_base=URL, api_key=KEY, context_window=1024, **fields)


@check
def chat():
    """`chat` and `stream_chat` give the same text, with usage"""
    whole = model().chat(MESSAGES)
    assert whole.message.role == MessageRole.ASSISTANT and whole.message.content
    assert whole.raw.usage.completion_tokens > 0 and whole.raw.choices[0].finish_reason in ("stop", "length")
    pieces = list(model().stream_chat(MESSAGES))
    assert "".join(piece.delta or "" for piece in pieces) == whole.message.content
    assert pieces[-1].message.content == whole.message.content


@check
def completions():
    """The completions endpoint, for a model that is not a chat model"""
    plain = model(is_chat_model=False)
    whole = plain.complete("The capital of France is")
    assert whole.text and whole.raw.object == "text_completion"
    assert "".join(piece.delta or "" for piece in plain.stream_complete("The capital of France is")) == whole.text


@check
async def asynchronous():
    """The asynchronous side"""
    whole = await model().achat(MESSAGES)
    pieces = [piece async for piece in await model().astream_chat(MESSAGES)]
    assert pieces[-1].message.content == whole.message.content


@check
def logprobs():
    """Log probabilities"""
    answer = model(logprobs=True, top_logprobs=2).chat(MESSAGES)
    assert len(answer.logprobs) == answer.raw.usage.completion_tokens


@check
def extensions():
    """Nexus' own fields through `additional_kwargs`"""
    kwargs = {"extra_body": {"nexus": {"trace": True}}, "seed": 5}
    answer = model(additional_kwargs=kwargs).chat(MESSAGES)
    assert answer.raw.model_extra["nexus"]["seed"] == 5 and answer.raw.model_extra["nexus"]["trace"]


@check
def tools():
    """A forced tool call"""
    served("tools")

    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"18 degrees in {city}"

    calling = model(is_function_calling_model=True, max_tokens=100)
    answer = calling.chat_with_tools(
        [FunctionTool.from_defaults(get_weather)],
        user_msg="Weather in Paris?",
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    )
    [call] = calling.get_tool_calls_from_response(answer)
    assert call.tool_name == "get_weather" and isinstance(call.tool_kwargs["city"], str)


@check
def errors():
    """Errors are the OpenAI client's classes"""
    error = raises(openai.BadRequestError, model(additional_kwargs={"top_p": 7}).chat, MESSAGES)
    assert error.param == "top_p"
    raises(
        openai.NotFoundError, OpenAILike(model="other", api_base=URL, api_key=KEY, is_chat_model=True).chat, MESSAGES
    )
    wrong = OpenAILike(model=MODEL, api_base=URL, api_key="wrong-key", is_chat_model=True, max_retries=0)
    raises(openai.AuthenticationError, wrong.chat, MESSAGES)


@check
def retries():
    """503 is retried and succeeds at the second try"""
    seed = {"additional_kwargs": {"seed": 904}}
    fail_next("503")
    raises(openai.InternalServerError, model(**seed).chat, MESSAGES)
    before = counts()["generations"]
    fail_next("503")
    assert model(max_retries=2, **seed).chat(MESSAGES).message.content
    assert counts()["generations"] - before == 2


@check
def leaving():
    """A connection that is closed ends the verifier's request; a failure in mid-stream raises"""
    before = counts()["gone"]
    kwargs = {"logit_bias": {"2": -100}}
    with httpx.Client(timeout=300) as connections:  # it closes no stream of its own accord
        leaving = model(max_tokens=900, additional_kwargs=kwargs, http_client=connections)
        next(leaving.stream_chat(MESSAGES))
    wait_for(lambda: counts()["gone"] == before + 1)
    fail_next("cut")
    raises(openai.APIError, lambda: list(model(max_tokens=200).stream_chat(MESSAGES)))


main()
