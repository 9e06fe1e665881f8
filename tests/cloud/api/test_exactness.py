"""One property over everything that may cut an answer, on an engine that is known exactly.

Whatever the engine speculates, however its tokens come in chunks, streamed or not: the same text, tokens, log
probabilities, usage and ends as decoding token by token gives.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.token_engine import EOS, PROMPT_TOKENS, TokenEngine, logprob

from cloud.api.settings import Limits

K = 4
"""Draft tokens of one step: it commits up to K + 1."""
LARGE = 30
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
PIECES = [b"a", b"b", b"ab", b"ba", b" ", b". ", b"aab", b"END", b"E", "é".encode(), "👩‍💻".encode()[:3]]
"""Few characters, so that stop strings match here, there and across; the last one begins a character."""
REST = ["👩‍💻".encode()[3:5], "👩‍💻".encode()[5:]]


def script(seed: int, eos_at: int | None) -> list[bytes]:
    """A choice's tokens; the pieces of a long character stay together."""
    rng = random.Random(seed)
    tokens: list[bytes] = []
    while len(tokens) <= LARGE:
        tokens.append(rng.choice(PIECES))
        if tokens[-1] == PIECES[-1]:
            tokens += REST
    return tokens if eos_at is None else [*tokens[:eos_at], EOS]


def decoded(tokens: Sequence[bytes]) -> str:
    """Up to the last token that leaves no character unfinished."""
    for count in range(len(tokens), -1, -1):
        with contextlib.suppress(UnicodeDecodeError):
            return b"".join(tokens[:count]).decode()
    raise AssertionError


@dataclass(frozen=True)
class Expected:
    """What one choice must be."""

    text: str
    count: int
    """Tokens that were generated, the deciding one included."""
    visible: int
    """Of them, those that begin before the end of the text."""
    reason: str


def expected(tokens: Sequence[bytes], stops: Sequence[str], limit: int) -> Expected:
    """Token by token: the first one that ends the choice decides."""
    for count in range(1, len(tokens) + 1):
        if tokens[count - 1] == EOS:
            return Expected(decoded(tokens[:count]), count, count - 1, "stop")
        text = decoded(tokens[:count])
        matches = [(text.find(s) + len(s), place, text.find(s)) for place, s in enumerate(stops) if s in text]
        if matches:
            _, _, cut = min(matches)
            visible = sum(len(decoded(tokens[:place])) < cut for place in range(count))
            return Expected(text[:cut], count, visible, "stop")
        if count == limit:
            return Expected(text, count, count, "length")
    raise AssertionError("the script is too short")


@st.composite
def stop_strings(draw: st.DrawFn, text: str, tokens: Sequence[bytes]) -> list[str]:
    """None, one character, across tokens, across the border of a draft, or four strings; most of them occur."""
    kind = draw(st.sampled_from(["none", "character", "tokens", "draft", "four", "strange"]))
    borders = [len(decoded(tokens[:place])) for place in range(len(tokens) + 1)]

    def around(border: int) -> str:
        start = max(0, border - draw(st.integers(1, 3)))
        return text[start : border + draw(st.integers(1, 3))] or "a"

    match kind:
        case "none":
            return []
        case "character":
            return [draw(st.sampled_from(sorted({*text, "."})))]
        case "tokens":
            return [around(draw(st.sampled_from(borders[1:])))]
        case "draft":
            return [around(draw(st.sampled_from(borders[K + 1 :: K + 1] or borders[-1:])))]
        case "four":
            return [around(draw(st.sampled_from(borders[1:]))) for _ in range(3)] + ["never this"]
    return [draw(st.text("abE. ", min_size=1, max_size=6)) for _ in range(draw(st.integers(1, 4)))]


def random_sizes(rng: random.Random) -> Iterator[int]:
    while True:
        yield rng.randint(1, K + 1)


GROUPS: dict[str, Any] = {
    "off": lambda seed: repeat(1),
    "reject-all": lambda seed: repeat(1),
    "accept-all": lambda seed: repeat(K + 1),
    "random": lambda seed: random_sizes(random.Random(seed)),
}


@dataclass
class Case:
    seed: int
    path: str
    n: int
    stops: list[str]
    limit: int | None
    eos_at: int | None
    speculation: str
    merged: bool
    logprobs: bool
    trouble: str | None
    """`error` and `cut` break the engine, `disconnect` is the client's."""
    trouble_at: int

    def body(self, **more: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"model": "tiny", "seed": self.seed, "n": self.n, **more}
        chat = self.path == "chat"
        body |= {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
        if self.stops:
            body["stop"] = self.stops if len(self.stops) != 1 else self.stops[0]
        if self.limit:
            body["max_completion_tokens" if self.seed % 2 else "max_tokens"] = self.limit
        if self.logprobs:
            body["logprobs"] = True if chat else 1
        return body

    def choices(self) -> list[Expected]:
        limit = self.limit or (LARGE if self.path == "chat" else 16)
        return [expected(script(self.seed + i, self.eos_at), self.stops, limit) for i in range(self.n)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    seed = draw(st.integers(0, 10_000))
    eos_at = draw(st.one_of(st.none(), st.integers(0, 12)))
    limit = draw(st.sampled_from([1, K - 1, K, K + 1, LARGE, *([] if eos_at is None else [None])]))
    tokens = [token for token in script(seed, eos_at) if token != EOS] or [b"a"]
    return Case(
        seed=seed,
        path=draw(st.sampled_from(sorted(PATHS))),
        n=draw(st.sampled_from([1, 1, 1, 2, 3, 8])),
        stops=draw(stop_strings(decoded(tokens), tokens)),
        limit=limit,
        eos_at=eos_at,
        speculation=draw(st.sampled_from(sorted(GROUPS))),
        merged=draw(st.booleans()),
        logprobs=draw(st.booleans()),
        trouble=draw(st.sampled_from([None, None, None, "error", "cut", "disconnect"])),
        trouble_at=draw(st.integers(0, 3)),
    )


@pytest.fixture
def limits() -> Limits:
    return Limits(keep_alive_s=60, shutdown_s=1)


@pytest.fixture
def verifier() -> TokenEngine:
    return TokenEngine()


def prepare(engine: TokenEngine, case: Case) -> None:
    engine.reset()
    engine.script = lambda seed: script(seed, case.eos_at)
    engine.groups = GROUPS[case.speculation]
    engine.merge = random.Random(case.seed) if case.merged else None


Ask = Callable[[dict[str, Any], str], Awaitable[httpx2.Response]]


def told(choice: dict[str, Any], path: str) -> tuple[str, Any]:
    """Text and log probabilities of a choice of an answer or a chunk."""
    if path == "chat":
        message = choice.get("message", choice.get("delta"))
        return message.get("content") or "", (choice["logprobs"] or {}).get("content")
    return choice["text"], choice["logprobs"]


def check_logprobs(got: Any, case: Case, index: int, want: Expected) -> None:
    """One for each visible token, in order; spelled one after the other they are the text, as far as it is shown."""
    tokens = script(case.seed + index, case.eos_at)[: want.visible]
    if case.path == "chat":
        values, spellings = [each["logprob"] for each in got], [each["token"] for each in got]
    else:
        values, spellings = got["token_logprobs"], got["tokens"]
        assert len(got["top_logprobs"]) == len(got["text_offset"]) == len(values)
        assert got["text_offset"] == [len("".join(spellings[:place])) for place in range(len(spellings))]
    assert values == [logprob(place) for place in range(len(tokens))]
    assert "".join(spellings).startswith(want.text) and "".join(spellings) == decoded(tokens)


def check_usage(usage: dict[str, Any], choices: list[Expected]) -> None:
    completion = sum(choice.count for choice in choices)
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (PROMPT_TOKENS, completion)
    assert usage["total_tokens"] == PROMPT_TOKENS + completion
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3}


def check_whole(answer: dict[str, Any], case: Case) -> None:
    choices = case.choices()
    assert [choice["index"] for choice in answer["choices"]] == list(range(case.n))
    for index, (choice, want) in enumerate(zip(answer["choices"], choices, strict=True)):
        text, logprobs = told(choice, case.path)
        assert (text, choice["finish_reason"]) == (want.text, want.reason)
        assert (logprobs is None) is not case.logprobs
        if case.logprobs:
            check_logprobs(logprobs, case, index, want)
    check_usage(answer["usage"], choices)


def events(text: str) -> tuple[list[dict[str, Any]], bool]:
    """The JSON of each event, and whether the stream ended as a success does."""
    datas = [block.removeprefix("data: ") for block in text.split("\n\n") if block.startswith("data: ")]
    done = datas[-1:] == ["[DONE]"]
    assert "[DONE]" not in datas[:-1]
    return [json.loads(data) for data in datas[: len(datas) - done]], done


def joined(parts: list[Any], path: str) -> Any:
    if path == "chat":
        return [entry for part in parts for entry in part]
    return {name: [entry for part in parts for entry in part[name]] for name in parts[0]} if parts else None


def check_stream(text: str, case: Case) -> None:
    chunks, done = events(text)
    assert done
    *others, last = chunks
    assert last["choices"] == [] and "nexus" in last
    check_usage(last["usage"], case.choices())
    assert all(chunk["usage"] is None and len(chunk["choices"]) == 1 for chunk in others)
    for index, want in enumerate(case.choices()):
        own = [chunk["choices"][0] for chunk in others if chunk["choices"][0]["index"] == index]
        parts = [told(choice, case.path) for choice in own]
        assert "".join(part for part, _ in parts) == want.text
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + [want.reason]
        assert parts[-1][0] == ""
        if case.path == "chat":
            assert [("role" in choice["delta"]) for choice in own] == [True] + [False] * (len(own) - 1)
            assert own[-1]["delta"] == {}
        logprobs = [each for _, each in parts if each is not None]
        if case.logprobs and (logprobs or want.visible):
            check_logprobs(joined(logprobs, case.path), case, index, want)
        assert case.logprobs or not logprobs


@pytest.fixture
def ask(gateway: Any) -> Ask:
    """A function and not the gateway itself, which is long when it is printed with a failure."""

    async def post(body: dict[str, Any], path: str) -> httpx2.Response:
        answer: httpx2.Response = await gateway.post(body, path)
        return answer

    return post


async def check_trouble(ask: Ask, engine: TokenEngine, case: Case, *, stream: bool) -> None:
    """A failure is a status before the first byte and an event after it, never an end; a caller who leaves ends all."""
    prepare(engine, case)
    setattr(engine, {"error": "error_at", "cut": "cut_at"}.get(case.trouble or "", "pause_at"), case.trouble_at)
    request = ask(case.body(stream=stream), PATHS[case.path])
    if case.trouble != "disconnect":
        answer = await request
        if answer.status_code == 200 and not stream:
            check_whole(answer.json(), case)  # every choice ended before the failure
        elif answer.status_code == 200:
            chunks, done = events(answer.text)
            errors = [chunk for chunk in chunks if "error" in chunk]
            assert (len(errors), done) in ((0, True), (1, False))
            if errors:
                assert chunks[-1] == errors[0]
                assert set(errors[0]["error"]) == {"message", "type", "param", "code"}
                ended = [c for chunk in chunks[:-1] for c in chunk["choices"] if c["finish_reason"]]
                for choice in ended:
                    assert choice["finish_reason"] == case.choices()[choice["index"]].reason
        else:
            assert answer.status_code == 502 and set(answer.json()) == {"error"}
        return
    asked = asyncio.create_task(request)
    asked.add_done_callback(lambda _: engine.changed.set())
    ending = _ended_before_pause(case)
    pausing = case.n - ending
    await engine.until(lambda: asked.done() or (engine.paused >= pausing > 0 and engine.ended >= ending))
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    paused, steps = engine.paused, engine.steps
    await engine.until(lambda: engine.gone >= paused)
    assert engine.steps == steps


def _ended_before_pause(case: Case) -> int:
    """Choices that end before the step at which the engine pauses."""
    engine = TokenEngine()
    prepare(engine, case)
    limit = case.limit or (LARGE if case.path == "chat" else 16)
    payloads = [{"seed": case.seed + i, "stop": case.stops, "max_tokens": limit} for i in range(case.n)]
    return sum(len(list(engine.outputs(payload))) <= case.trouble_at for payload in payloads)


@pytest.mark.parametrize("seed", [23, 29, 68])
async def test_a_choice_that_is_late_is_waited_for(ask: Ask, verifier: TokenEngine, seed: int) -> None:
    """Some choices pause before others have begun, as on a slow machine: what those commit is no step for nobody."""
    verifier.late_s = 0.05
    case = Case(
        seed=seed,
        path="chat" if seed % 2 else "completions",
        n=8,
        stops=[],
        limit=K + 1,
        eos_at=None,
        speculation="random",
        merged=False,
        logprobs=False,
        trouble="disconnect",
        trouble_at=2,
    )
    assert 0 < _ended_before_pause(case) < case.n
    await check_trouble(ask, verifier, case, stream=seed % 3 > 0)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(case=cases())
async def test_answers_are_those_of_decoding_token_by_token(ask: Ask, verifier: TokenEngine, case: Case) -> None:
    """See the top of this module."""
    engine = verifier
    if case.trouble is not None:
        await check_trouble(ask, engine, case, stream=case.seed % 3 > 0)
        return
    prepare(engine, case)
    whole = await ask(case.body(), PATHS[case.path])
    assert whole.status_code == 200, whole.text
    check_whole(whole.json(), case)
    prepare(engine, case)
    streamed = await ask(case.body(stream=True, stream_options={"include_usage": True}), PATHS[case.path])
    assert streamed.status_code == 200, streamed.text
    check_stream(streamed.text, case)
    case.speculation, case.merged = "off", False
    prepare(engine, case)
    plain = await ask(case.body(), PATHS[case.path])
    assert comparable(plain.json()) == comparable(whole.json())


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("id", "created")}
