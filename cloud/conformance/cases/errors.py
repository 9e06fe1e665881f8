"""Errors: the right status, the one shape, the field named, nothing internal."""

from typing import Any

from cloud.conformance.case import Findings, NotOffered, case
from cloud.conformance.cases.models import cards
from cloud.conformance.target import PATHS, Target

HUGE = 1 << 40
"""Announced length of a body, bytes; no server can mean to take it."""
DECLARED_WAIT_S = 5.0
PROMPT_BYTES_MAX = 1 << 20
"""Longest prompt that is sent to see it refused; a longer one would be refused for its size."""


@case("errors.shape")
async def shape(target: Target, see: Findings) -> None:
    """An error is `{"error": {message, type, param, code}}`, all four keys, `code` a string or null, as JSON."""
    see.error(await target.ask(temperature=-1), 400, 422)


@case("errors.no_key")
async def no_key(target: Target, see: Findings) -> None:
    """Without a key the answer is 401."""
    if not target.key:
        raise NotOffered("the server is judged without a key")
    see.error(await target.ask(headers={"authorization": ""}), 401, 403)


@case("errors.wrong_key")
async def wrong_key(target: Target, see: Findings) -> None:
    """With a key that is not known the answer is 401."""
    if not target.key:
        raise NotOffered("the server is judged without a key")
    see.error(await target.ask(headers={"authorization": "Bearer no-such-key"}), 401, 403, code="invalid_api_key")


@case("errors.unknown_path")
async def unknown_path(target: Target, see: Findings) -> None:
    """An address that does not exist is 404 with the error object, never HTML."""
    see.error(await target.get("/no/such/thing"), 404)
    see.error(await target.send("POST", "/chat/completion", b"{}"), 404)


@case("errors.wrong_method")
async def wrong_method(target: Target, see: Findings) -> None:
    """A method that an address does not take is 405 with the error object."""
    see.error(await target.get(PATHS["chat"]), 405, 404)
    see.error(await target.send("DELETE", PATHS["chat"]), 405, 404)


@case("errors.unknown_model")
async def unknown_model(target: Target, see: Findings) -> None:
    """A model that is not served is 404 `model_not_found`."""
    see.error(await target.ask(model="no-such-model"), 404, 400, param="model", code="model_not_found")


@case("errors.malformed")
async def malformed(target: Target, see: Findings) -> None:
    """A body that is no JSON object is 400."""
    for content in (b"{", b"", b"[1]", b'"text"', b"\xff\xfe", b'{"model": NaN}'):
        see.error(await target.send("POST", PATHS["chat"], content), 400, 422)


@case("errors.missing")
async def missing(target: Target, see: Findings) -> None:
    """A missing field is 400 and named in `param`."""
    see.error(await target.ask(messages=...), 400, 422, param="messages")
    see.error(await target.ask(model=...), 400, 404, 422, param="model", served=True)


@case("errors.wrong_type")
async def wrong_type(target: Target, see: Findings) -> None:
    """A value of the wrong type is 400 and its field named in `param`."""
    wrong: dict[str, Any] = {"temperature": "hot", "max_tokens": 1.5, "messages": "hi", "stop": 7, "n": True}
    for name, value in wrong.items():
        see.error(await target.ask(**{name: value}), 400, 422, param=name, served=name == "n")


@case("errors.messages")
async def messages(target: Target, see: Findings) -> None:
    """Messages that are none, of a role that does not exist, or without content are 400."""
    for wrong in ([], [{"role": "alien", "content": "hi"}], [{"role": "user"}], ["hi"], [{"content": "hi"}]):
        answer = await target.ask(messages=wrong)
        see.error(answer, 400, 422, served=True)
        see.strictly(
            answer.status == 200 or str(answer.param()).startswith("messages"), f"`param` is {answer.param()!r}"
        )


@case("errors.out_of_range")
async def out_of_range(target: Target, see: Findings) -> None:
    """A number outside its range is 400 and its field named in `param`."""
    beyond: dict[str, Any] = {
        "temperature": 2.5,
        "top_p": 1.5,
        "presence_penalty": 2.5,
        "frequency_penalty": -2.5,
        "n": 0,
    }
    for name, value in beyond.items():
        see.error(await target.ask(**{name: value}), 400, 422, param=name, served=name != "n")


@case("errors.unknown_field")
async def unknown_field(target: Target, see: Findings) -> None:
    """A field that does not exist is 400 and named, not ignored."""
    see.error(await target.ask(no_such_field=1), 400, 422, param="no_such_field", served=True)


@case("errors.null_is_absent")
async def null_is_absent(target: Target, see: Findings) -> None:
    """`null` in an optional field means that it is not there."""
    names = ["stop", "n", "top_p", "logprobs", "top_logprobs", "stream", "stream_options", "logit_bias", "user"]
    names += ["tools", "tool_choice", "response_format", "max_completion_tokens"]
    names += ["presence_penalty", "frequency_penalty"]
    answer = see.ok(await target.ask(**dict.fromkeys(names)))
    see.note(f"{len(names)} nulls, finish_reason {answer.finish()!r}")


@case("errors.max_tokens_zero")
async def max_tokens_zero(target: Target, see: Findings) -> None:
    """An output limit of 0 is 400."""
    see.error(await target.ask(max_tokens=0), 400, 422, param="max_tokens", served=True)


@case("errors.stop_count")
async def stop_count(target: Target, see: Findings) -> None:
    """More than four stop strings, or an empty one, is 400."""
    see.error(await target.ask(stop=["1", "2", "3", "4", "5"]), 400, 422, param="stop", served=True)
    answer = await target.ask(stop=[""])
    see.error(answer, 400, 422, served=True)


@case("errors.stream_options")
async def stream_options(target: Target, see: Findings) -> None:
    """`stream_options` without `stream` is 400 with that `param`."""
    see.error(await target.ask(stream_options={"include_usage": True}), 400, 422, param="stream_options", served=True)


@case("errors.top_logprobs")
async def top_logprobs(target: Target, see: Findings) -> None:
    """`top_logprobs` without `logprobs`, or above 20, is 400 with that `param`."""
    see.error(await target.ask(top_logprobs=2), 400, 422, param="top_logprobs", served=True)
    see.error(await target.ask(logprobs=True, top_logprobs=21), 400, 422, param="top_logprobs", served=True)


@case("errors.before_the_stream")
async def before_the_stream(target: Target, see: Findings) -> None:
    """A streamed request that cannot be served gets its real status, not a stream that begins with 200."""
    see.error(await target.ask(stream=True, model="no-such-model"), 404, 400)
    see.error(await target.ask(stream=True, temperature=-1), 400, 422)


@case("errors.context_length")
async def context_length(target: Target, see: Findings) -> None:
    """A prompt that does not fit is 400 `context_length_exceeded`, with the numbers in the message."""
    size = await _context(target)
    if size is None:
        raise NotOffered("the models list does not tell a context length")
    prompt = " the" * (size + 64)
    if len(prompt) > PROMPT_BYTES_MAX:
        raise NotOffered(f"a context of {size} tokens is too long to fill for a test")
    answer = await target.ask(messages=[{"role": "user", "content": prompt}])
    see.error(answer, 400, 413, 422, param="messages", code="context_length_exceeded")
    see.strictly(str(size) in answer.message(), f"the message does not give the limit: {answer.message()[:100]}")
    streamed = await target.ask(messages=[{"role": "user", "content": prompt}], stream=True)
    see.error(streamed, 400, 413, 422, param="messages", code="context_length_exceeded")


async def _context(target: Target) -> int | None:
    """As the models list tells it, in the words of any of the servers that do."""
    for card in cards(await target.kept_get("/models")):
        if card.get("id") == target.model:
            size = card.get("context_length") or card.get("max_model_len")
            return size if isinstance(size, int) else None
    return None


@case("errors.too_large")
async def too_large(target: Target, see: Findings) -> None:
    """A body that is too large is 413 by its announced length, before it is read."""
    answer = await target.declared(HUGE, DECLARED_WAIT_S)
    if not see.strictly(answer is not None, f"no answer to an announced body of {HUGE} bytes"):
        return
    assert answer is not None
    see.error(answer, 413, 400)
