"""Whole answers of both endpoints: form, usage, limits, and what requests may hold."""

from typing import Any

from cloud.conformance.case import Findings, case
from cloud.conformance.target import LENGTH, PROMPT, TEXT, Answer, Target
from cloud.conformance.transcript import Kind

EARLIEST, LATEST = 1_500_000_000, 10_000_000_000
"""Times in seconds lie between; milliseconds do not."""


def check_usage(see: Findings, answer: Answer, limit: int = LENGTH) -> None:
    """The identities of usage; `limit` is the most output tokens of all choices together."""
    prompt, completion, total = (answer.usage(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    numbers = all(isinstance(each, int) for each in (prompt, completion, total))
    if not see.must(numbers, f"usage is {prompt!r} + {completion!r} = {total!r}"):
        return
    see.must(total == prompt + completion, f"usage does not add up: {prompt} + {completion} is not {total}")
    see.must(prompt > 0, "no prompt tokens are counted")
    see.must(0 < completion <= limit, f"{completion} output tokens, at most {limit} were asked for")
    cached = (answer.usage("prompt_tokens_details") or {}).get("cached_tokens")
    see.strictly(
        isinstance(cached, int) and 0 <= cached <= prompt, f"prompt_tokens_details.cached_tokens is {cached!r}"
    )
    guessed = (answer.usage("completion_tokens_details") or {}).get("accepted_prediction_tokens")
    see.strictly(not guessed, "accepted_prediction_tokens is set although no prediction was sent")
    see.note(f"{prompt} + {completion} tokens")


@case("chat.schema")
async def chat_schema(target: Target, see: Findings) -> None:
    """A chat completion has OpenAI's published form, and no fields beyond it that are not documented."""
    answer = see.ok(await target.kept())
    see.schema("ChatCompletion", answer.json)
    see.must(answer.type == "application/json", f"content type {answer.type!r}")
    see.must(answer.said(), "the answer is empty")
    see.strictly(answer.json.get("model") == target.model, f"`model` is {answer.json.get('model')!r}")
    created = answer.json.get("created")
    see.strictly(
        isinstance(created, int) and EARLIEST < created < LATEST, f"`created` is {created!r}, no time in seconds"
    )
    see.note(repr(answer.said()[:60]))


@case("chat.ids")
async def chat_ids(target: Target, see: Findings) -> None:
    """Every answer has its own `id`."""
    ids = [see.ok(await target.ask(max_tokens=1)).json.get("id") for _ in range(2)]
    see.must(len(set(ids)) == 2, f"two answers have the id {ids[0]!r}")
    see.strictly(str(ids[0]).startswith("chatcmpl-"), f"the id {ids[0]!r} does not begin with chatcmpl-")


@case("chat.usage")
async def chat_usage(target: Target, see: Findings) -> None:
    """Usage adds up, has `cached_tokens`, and does not call speculation a prediction."""
    check_usage(see, see.ok(await target.kept()))


@case("chat.length")
async def chat_length(target: Target, see: Findings) -> None:
    """An answer that reaches its limit ends with `length`, exactly there."""
    for limit in (1, 5):
        answer = see.ok(await target.ask(max_tokens=limit))
        see.must(answer.finish() == "length", f"limit {limit}: finish_reason {answer.finish()!r}")
        used = answer.usage("completion_tokens")
        see.must(used == limit, f"limit {limit}: {used} tokens")


@case("chat.limit_names")
async def limit_names(target: Target, see: Findings) -> None:
    """`max_completion_tokens` and `max_tokens` both work, and the newer name wins."""
    for limits in ({"max_tokens": ..., "max_completion_tokens": 3}, {"max_tokens": 9, "max_completion_tokens": 3}):
        used = see.ok(await target.ask(**limits)).usage("completion_tokens")
        see.must(used == 3, f"{used} tokens instead of 3")


@case("chat.messages")
async def messages(target: Target, see: Findings) -> None:
    """Text parts are the same as a string; `system`, `developer` and `assistant` messages are accepted."""
    parts = [{"type": "text", "text": PROMPT}]
    answer = see.ok(await target.ask(messages=[{"role": "user", "content": parts}]))
    see.strictly(answer.said() == (await target.kept()).said(), "text parts get another answer than a string")
    user, assistant = {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}
    for role in ("system", "developer"):
        first = {"role": role, "content": "Be brief."}
        see.ok(await target.ask(messages=[first, user, assistant, user], max_tokens=2))


@case("chat.accepted")
async def accepted(target: Target, see: Findings) -> None:
    """`user`, `metadata` and `store: false` are accepted."""
    see.ok(await target.ask(user="someone", metadata={"purpose": "test"}, store=False, max_tokens=2))


@case("chat.fingerprint")
async def fingerprint(target: Target, see: Findings) -> None:
    """`system_fingerprint`, where there is one, is the same for the same server."""
    marks = {see.ok(await target.ask(max_tokens=1)).json.get("system_fingerprint") for _ in range(2)}
    see.strictly(len(marks) == 1, f"it changes: {sorted(map(str, marks))}")
    see.note(f"{marks.pop()}")


@case("completion.schema")
async def completion_schema(target: Target, see: Findings) -> None:
    """A text completion has OpenAI's published form, and no fields beyond it that are not documented."""
    answer = see.offered(await target.kept("completion"), "completions")
    see.schema("Completion", answer.json)
    see.must(answer.said(), "the answer is empty")
    see.strictly(str(answer.json.get("id")).startswith("cmpl-"), "the id does not begin with cmpl-")


@case("completion.usage")
async def completion_usage(target: Target, see: Findings) -> None:
    """Usage of a text completion adds up as well."""
    check_usage(see, see.offered(await target.kept("completion"), "completions"))


@case("completion.default_limit")
async def default_limit(target: Target, see: Findings) -> None:
    """Without a limit a text completion has at most 16 tokens."""
    answer = see.ok(await target.ask("completion", max_tokens=...))
    used = answer.usage("completion_tokens")
    see.must(isinstance(used, int) and used <= 16, f"{used} tokens")


@case("completion.limit_names")
async def completion_limit_names(target: Target, see: Findings) -> None:
    """`max_completion_tokens` works on text completions too."""
    answer = see.offered(await target.ask("completion", max_completion_tokens=3), "max_completion_tokens")
    used = answer.usage("completion_tokens")
    see.strictly(used == 3, f"{used} tokens instead of 3")


@case("completion.prompts")
async def prompts(target: Target, see: Findings) -> None:
    """A prompt may be token ids, or a list that holds one prompt."""
    text = see.ok(await target.kept("completion")).said()
    listed = see.offered(await target.ask("completion", prompt=[TEXT]), "prompt")
    see.strictly(listed.said() == text, "a list of one prompt gets another answer")
    answer = see.offered(await target.ask("completion", prompt=[5, 6, 7], max_tokens=2), "prompt")
    used = answer.usage("prompt_tokens")
    see.must(used == 3, f"three token ids count as {used} prompt tokens")


@case("completion.missing")
async def completion_missing(target: Target, see: Findings) -> None:
    """A text completion without a prompt is 400 with that `param`; so are messages instead of it."""
    see.error(await target.ask("completion", prompt=...), 400, 422, param="prompt")
    see.error(await target.ask("completion", messages=[]), 400, 422, param="messages", served=True)


async def whole_and_streamed(target: Target, see: Findings, kind: Kind, **changes: Any) -> None:
    """The streamed answer is the whole one in pieces: text, finish reason and usage."""
    whole = see.offered(await target.kept(kind, **changes), "completions" if kind == "completion" else "messages")
    answer, stream = await target.stream(kind, stream_options={"include_usage": True}, **changes)
    see.ok(answer)
    for index in range(changes.get("n", 1)):
        told = stream.text(index)
        see.must(told == whole.said(index), f"choice {index}: streamed {told!r:.60}, whole {whole.said(index)!r:.60}")
        same = stream.finish(index) == whole.finish(index)
        see.must(same, f"choice {index}: streamed {stream.finish(index)}, whole {whole.finish(index)}")
    told_usage, usage = stream.usage() or {}, whole.json.get("usage") or {}
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        see.must(told_usage.get(name) == usage.get(name), f"{name}: {told_usage.get(name)} and {usage.get(name)}")
