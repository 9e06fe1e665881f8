"""Seeds, choices, log probabilities and the parameters that shape an answer."""

import math
from typing import Any

from cloud.conformance.case import Findings, NotOffered, case
from cloud.conformance.cases.answers import check_usage
from cloud.conformance.target import LENGTH, Answer, Target

Json = dict[str, Any]


@case("seed.repeats")
async def repeats(target: Target, see: Findings) -> None:
    """The same seed gives the same answer."""
    texts = {see.offered(await target.ask(temperature=1, seed=7), "seed").said() for _ in range(3)}
    see.must(all(texts), "an answer is empty")
    see.strictly(len(texts) == 1, f"{len(texts)} answers with one seed")


@case("seed.matters")
async def matters(target: Target, see: Findings) -> None:
    """Other seeds give other answers, and so does leaving the seed out."""
    seeded = {see.ok(await target.ask(temperature=1, seed=seed)).said() for seed in range(4)}
    see.must(len(seeded) > 1, "four seeds give the same answer at temperature 1")
    free = {see.ok(await target.ask(temperature=1, seed=...)).said() for _ in range(4)}
    see.must(len(free) > 1, "four requests without a seed give the same answer at temperature 1")


@case("seed.greedy")
async def greedy(target: Target, see: Findings) -> None:
    """At temperature 0 the seed does not matter."""
    texts = {see.ok(await target.ask(seed=seed)).said() for seed in (1, 2, 3)}
    see.strictly(len(texts) == 1, f"{len(texts)} greedy answers")


@case("choices.count")
async def count(target: Target, see: Findings) -> None:
    """`n` choices with their own index and end; the prompt counts once."""
    answer = see.offered(await target.kept(n=3, temperature=1), "n")
    indices = sorted(str(each.get("index")) for each in answer.choices())
    see.must(indices == ["0", "1", "2"], f"indices {indices}")
    see.must(all(each.get("finish_reason") for each in answer.choices()), "a choice has no finish_reason")
    see.must(len({answer.said(index) for index in range(3)}) > 1, "all choices are the same at temperature 1")
    check_usage(see, answer, 3 * LENGTH)
    single = (await target.kept()).usage("prompt_tokens")
    see.must(answer.usage("prompt_tokens") == single, f"{answer.usage('prompt_tokens')} prompt tokens, alone {single}")
    ends = [answer.finish(index) for index in range(3)]
    least = sum(LENGTH if end == "length" else 1 for end in ends)
    see.must((answer.usage("completion_tokens") or 0) >= least, "the tokens of some choices are not counted")


@case("choices.own_seed")
async def own_seed(target: Target, see: Findings) -> None:
    """Choice i of a request with a seed is what seed + i gives alone."""
    answer = see.offered(await target.kept(n=3, temperature=1), "n")
    for index in (1, 2):
        alone = see.ok(await target.ask(temperature=1, seed=1 + index)).said()
        see.strictly(alone == answer.said(index), f"choice {index}: {answer.said(index)!r:.40}, alone {alone!r:.40}")


@case("choices.streamed")
async def streamed(target: Target, see: Findings) -> None:
    """Streamed choices keep apart, each by all rules of a stream."""
    answer, stream = await target.stream(n=3, temperature=1, stream_options={"include_usage": True})
    see.offered(answer, "n")
    see.stream(stream.faults())


def _entries(answer: Answer) -> list[Json]:
    logprobs = answer.choice().get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


@case("logprobs.count")
async def logprobs_count(target: Target, see: Findings) -> None:
    """As many entries as output tokens, each with the asked number of alternatives, all numbers finite."""
    answer = see.offered(await target.kept(logprobs=True, top_logprobs=3, max_tokens=8), "logprobs")
    entries, used = _entries(answer), answer.usage("completion_tokens")
    see.must(len(entries) == used, f"{len(entries)} entries for {used} tokens")
    tops = [len(entry.get("top_logprobs") or ()) for entry in entries]
    see.must(all(top == 3 for top in tops), f"{tops} alternatives instead of 3")
    values = [each.get("logprob") for entry in entries for each in (entry, *(entry.get("top_logprobs") or ()))]
    good = all(isinstance(value, int | float) and math.isfinite(value) and value <= 0 for value in values)
    see.must(good, "a log probability is no finite number of at most 0")
    if good:
        ranks = [[each["logprob"] for each in entry.get("top_logprobs") or ()] for entry in entries]
        see.strictly(
            all(rank == sorted(rank, reverse=True) for rank in ranks), "alternatives are not the likeliest first"
        )
    see.note(f"{len(entries)} entries")


@case("logprobs.text")
async def logprobs_text(target: Target, see: Findings) -> None:
    """The entries' bytes are the answer's text."""
    answer = see.offered(await target.kept(logprobs=True, top_logprobs=3, max_tokens=8), "logprobs")
    spelled = b"".join(bytes(entry.get("bytes") or ()) for entry in _entries(answer))
    said = answer.said().encode()
    see.strictly(spelled.startswith(said), f"{spelled[:40]!r} is not the text {said[:40]!r}")
    rest = len(_entries(answer)) - 1
    most = b"".join(bytes(entry.get("bytes") or ()) for entry in _entries(answer)[:rest])
    see.strictly(len(most) <= len(said) or answer.finish() == "stop", "entries go beyond the text")


@case("logprobs.streamed")
async def logprobs_streamed(target: Target, see: Findings) -> None:
    """A stream gives the same entries, in order."""
    asked: Json = {"logprobs": True, "top_logprobs": 3, "max_tokens": 8}
    whole = see.offered(await target.kept(**asked), "logprobs")
    answer, stream = await target.stream(**asked)
    see.ok(answer)
    parts = [(each.get("logprobs") or {}).get("content") or [] for each in stream.choices()]
    told = [entry.get("token") for part in parts for entry in part]
    wanted = [entry.get("token") for entry in _entries(whole)]
    see.must(told == wanted, f"streamed {told[:4]}, whole {wanted[:4]}")
    see.stream(stream.faults())


@case("logprobs.unasked")
async def logprobs_unasked(target: Target, see: Findings) -> None:
    """Without `logprobs` there are none."""
    see.must(not see.ok(await target.kept()).choice().get("logprobs"), "log probabilities come unasked")


@case("logprobs.completion")
async def logprobs_completion(target: Target, see: Findings) -> None:
    """A text completion gives four parallel lists, one entry for each token, with running offsets."""
    answer = see.offered(await target.ask("completion", logprobs=2, max_tokens=8), "logprobs")
    logprobs = answer.choice().get("logprobs") or {}
    used = answer.usage("completion_tokens")
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        size = len(logprobs.get(name) or ())
        see.must(size == used, f"{name} has {size} entries for {used} tokens")
    offsets, at = logprobs.get("text_offset") or [], 0
    for token, offset in zip(logprobs.get("tokens") or [], offsets, strict=False):
        see.strictly(offset == at, f"offset {offset} instead of {at}")
        at += len(token)
    see.strictly("".join(logprobs.get("tokens") or []).startswith(answer.said()), "the tokens are not the text")


@case("parameters.honoured")
async def honoured(target: Target, see: Findings) -> None:
    """A parameter that is accepted has its effect: a strong bias leaves one token only."""
    answer = see.offered(await target.ask(logit_bias={"5": 100}, logprobs=True, max_tokens=4), "logit_bias")
    tokens = {entry.get("token") for entry in _entries(answer)}
    see.must(len(tokens) == 1, f"a bias of 100 on one token gives {sorted(map(str, tokens))}")


@case("parameters.accepted")
async def accepted(target: Target, see: Findings) -> None:
    """Common parameters inside their ranges are accepted, on both endpoints."""
    changes: Json = {"top_p": 0.9, "presence_penalty": 0.5, "frequency_penalty": -0.5, "temperature": 2}
    see.ok(await target.ask(**changes, max_tokens=4))
    answer = await target.ask("completion", **changes, max_tokens=4)
    if answer.status != 404:
        see.ok(answer)


@case("parameters.bias_of_no_token")
async def bias_of_no_token(target: Target, see: Findings) -> None:
    """A bias for a token that the model does not have is 400, not dropped."""
    see.error(await target.ask(logit_bias={"4294967294": 1}), 400, 422, param="logit_bias", served=True)
    see.error(await target.ask(logit_bias={"word": 1}), 400, 422, param="logit_bias")


@case("parameters.extensions")
async def extensions(target: Target, see: Findings) -> None:
    """`top_k`, `min_p` and `repetition_penalty` are honoured or refused by name."""
    narrow: Json = {"top_k": 1, "min_p": 1.0}
    for name, value in narrow.items():
        answer = await target.ask(temperature=2, **{name: value})
        if answer.status == 400 and name in f"{answer.param()}{answer.message()}":
            continue
        alone = see.ok(await target.kept()).said()
        see.strictly(see.ok(answer).said() == alone, f"{name} {value} at temperature 2 is not the greedy answer")
    answer = await target.ask(repetition_penalty=1.1, max_tokens=4)
    if answer.status == 400:
        raise NotOffered(answer.message())
    see.ok(answer)
