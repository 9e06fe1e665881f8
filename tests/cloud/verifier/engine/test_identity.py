"""Whoever drafts, the answer is the target model's own: real engine, real draft port, played drafters."""

import random
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.played_gateway import PlayedGateway, Story
from support.verifier import PROMPTS, Verifier

from shared.draftport.messages import Policy, PortDraft

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]

VOCABULARY = 49152
Drafter = Callable[[list[int], random.Random], Sequence[int]]
"""(the tokens that the reference has next, randomness) -> what to draft."""


def perfect(truth: list[int], rng: random.Random) -> Sequence[int]:
    return truth[:6]


def garbage(truth: list[int], rng: random.Random) -> Sequence[int]:
    return [rng.randrange(VOCABULARY) for _ in range(2)]


def half_right(truth: list[int], rng: random.Random) -> Sequence[int]:
    return [token if rng.random() < 0.5 else rng.randrange(VOCABULARY) for token in truth[:4]]


def any_length(truth: list[int], rng: random.Random) -> Sequence[int]:
    return [token if rng.random() < 0.9 else 17 for token in truth[: rng.randrange(0, 20)]]


def run(
    verifier: Verifier,
    references: Sequence[Sequence[int]],
    drafter: Drafter | None,
    *,
    tapes: int = 1,
    delay_s: float = 0.0,
    prompts: Sequence[str] = PROMPTS,
    batch: int = 64,
    per_request: Callable[[int], dict[str, Any]] = lambda index: {"temperature": 0},
) -> tuple[list[list[int]], list[Story]]:
    """All prompts at once; token ids and what the draft port said of each stream."""
    run_id = uuid.uuid4().hex[:8]
    names = [f"{run_id}-{index}" for index in range(len(prompts))]
    truths = dict(zip(names, references, strict=True))
    rng = random.Random(3)

    def rule(stream: str, tokens: list[int]) -> Sequence[tuple[str, int, Sequence[int]]]:
        if drafter is None:
            return ()
        done = len(tokens) - gateway.stories[stream].opened.prompt
        rest = list(truths[stream][done:])
        return [(f"tape{number}", len(tokens), drafter(rest, rng)) for number in range(tapes)]

    with PlayedGateway(verifier.draft_port, name=run_id) as gateway:
        gateway.rule, gateway.delay_s = (rule if drafter else None), delay_s
        with ThreadPoolExecutor(min(batch, len(prompts))) as pool:

            def ask(index: int) -> list[int]:
                answer = verifier.complete(prompts[index], stream=names[index], gateway=run_id, **per_request(index))
                return list(answer["token_ids"])

            answers = list(pool.map(ask, range(len(prompts))))
        gateway.until_closed(*names)
        return answers, [gateway.stories[name] for name in names]


def sampled(index: int) -> dict[str, Any]:
    return {"temperature": 0.8, "top_p": 0.95, "seed": 1000 + index}


@pytest.fixture(scope="module")
def plain_sampled(verifier: Verifier) -> list[list[int]]:
    """Sampled answers with no drafts at all."""
    answers, stories = run(verifier, [[]] * len(PROMPTS), None, per_request=sampled)
    assert all(not event.drafted for story in stories for event in story.verified)
    return answers


@pytest.mark.parametrize("drafter", [None, perfect, garbage, half_right, any_length])
def test_greedy_answers_are_stock_vllms(
    verifier: Verifier, stock_greedy: list[list[int]], drafter: Drafter | None
) -> None:
    """24 prompts at batch 8 in float32: token for token what vLLM without our plugin says."""
    answers, stories = run(verifier, stock_greedy, drafter)
    assert answers == stock_greedy
    check_books(stories, answers)
    drafted = sum(event.drafted for story in stories for event in story.verified)
    accepted = sum(event.accepted for story in stories for event in story.verified)
    assert bool(drafted) == (drafter is not None)
    if drafter is perfect:
        assert accepted == drafted
        assert sum(len(story.verified) for story in stories) < sum(map(len, answers)) / 4
    if drafter is garbage:
        assert accepted < drafted / 50


@pytest.mark.parametrize("drafter", [perfect, garbage, half_right, any_length])
def test_sampled_answers_do_not_depend_on_the_drafter(
    verifier: Verifier, plain_sampled: list[list[int]], drafter: Drafter
) -> None:
    """Temperature 0.8, top-p 0.95, fixed seeds: a function of prompt, parameters and seed only."""
    answers, stories = run(verifier, plain_sampled, drafter, per_request=sampled)
    assert answers == plain_sampled
    check_books(stories, answers)


def test_late_drafts_two_rivals_and_another_batch_size_change_nothing(
    verifier: Verifier, plain_sampled: list[list[int]]
) -> None:
    """Drafts that come after their positions passed; two tapes that disagree; three requests at a time."""
    late, _ = run(verifier, plain_sampled, half_right, delay_s=0.04, per_request=sampled)
    rivals, stories = run(verifier, plain_sampled, half_right, tapes=2, batch=3, per_request=sampled)
    assert late == plain_sampled
    assert rivals == plain_sampled
    assert {event.source for story in stories for event in story.verified if event.drafted} == {"tape0", "tape1"}


def test_penalties_and_drafts_go_together(verifier: Verifier) -> None:
    """The history that penalties look at includes the draft's own tokens."""

    def penalised(index: int) -> dict[str, Any]:
        return {"temperature": 0, "presence_penalty": 0.6, "frequency_penalty": 0.4, "repetition_penalty": 1.1}

    prompts = PROMPTS[:8]
    plain, _ = run(verifier, [[]] * 8, None, prompts=prompts, per_request=penalised)
    drafted, stories = run(verifier, plain, half_right, prompts=prompts, per_request=penalised)
    assert drafted == plain
    assert sum(event.accepted for story in stories for event in story.verified) > 0


def test_the_limit_of_tokens_holds_to_the_token(verifier: Verifier, stock_greedy: list[list[int]]) -> None:
    """A draft that reaches past max_tokens is cut: no answer is longer."""
    for limit in (1, 2, 6, 7, 8):
        answers, stories = run(
            verifier,
            stock_greedy[:4],
            perfect,
            prompts=PROMPTS[:4],
            per_request=lambda index, limit=limit: {"temperature": 0, "max_tokens": limit},  # type: ignore[misc]
        )
        assert answers == [tokens[:limit] for tokens in stock_greedy[:4]]
        check_books(stories, answers)


def test_logprobs_are_the_targets_with_and_without_drafts(verifier: Verifier, stock_greedy: list[list[int]]) -> None:
    """Same tokens listed, values equal up to rounding."""
    body = {"temperature": 0, "logprobs": 3, "max_tokens": 24}
    plain = verifier.complete(PROMPTS[4], **body)["logprobs"]
    with PlayedGateway(verifier.draft_port, name="logprobs") as gateway:
        gateway.rule = lambda stream, tokens: [
            ("t", len(tokens), stock_greedy[4][len(tokens) - gateway.stories[stream].opened.prompt :][:5])
        ]
        drafted = verifier.complete(PROMPTS[4], stream="logprobs-1", gateway="logprobs", **body)["logprobs"]
        gateway.until_closed("logprobs-1")
        assert sum(event.accepted for event in gateway.stories["logprobs-1"].verified) > 10
    assert drafted["tokens"] == plain["tokens"]
    assert drafted["token_logprobs"] == pytest.approx(plain["token_logprobs"], abs=1e-4)
    assert [list(top) for top in drafted["top_logprobs"]] == [list(top) for top in plain["top_logprobs"]]


def test_a_prompt_in_the_prefix_cache_is_no_draft(verifier: Verifier) -> None:
    """The engine pads such a request's first step with empty draft rows; they are nobody's and count for nobody."""
    prompt = [300 + (7 * index) % 900 for index in range(65)]  # two blocks of 32, and one token that is left to compute
    with PlayedGateway(verifier.draft_port, name="cached") as gateway:
        answers = []
        for number in range(2):
            stream = f"cached-{number}"
            answers.append(verifier.complete(prompt, stream=stream, gateway="cached", temperature=0, max_tokens=8))
            gateway.until_closed(stream)
        assert answers[0]["token_ids"] == answers[1]["token_ids"]
        check_books([gateway.stories["cached-1"]], [answers[1]["token_ids"]])
        assert all(event.drafted == 0 for event in gateway.stories["cached-1"].verified)


def test_hostile_drafts_are_counted_and_harm_nobody(verifier: Verifier, stock_greedy: list[list[int]]) -> None:
    """Ids beyond the vocabulary, negative positions, gaps, floods, other streams: the engine lives and answers."""
    with PlayedGateway(verifier.draft_port, name="hostile") as gateway:
        assert gateway.about is not None

        def rule(stream: str, tokens: list[int]) -> Sequence[tuple[str, int, Sequence[int]]]:
            end = len(tokens)
            return [
                ("t", end, [VOCABULARY, 2**31 - 1]),
                ("t", end, [-1]),
                ("t", end + 50, [1, 2]),
                ("t", end, [1] * 4000),
                ("t", max(0, end - 3), [9, 9, 9, 9]),
            ]

        gateway.rule = rule
        gateway.send(PortDraft(stream="nobody", tape="t", epoch=0, pos=-5, tokens=(1,)))
        gateway.send(Policy(stream="nobody", wait_ms=1e9, k=-4))
        answer = verifier.complete(PROMPTS[0], stream="hostile-1", gateway="hostile", temperature=0)
        assert answer["token_ids"] == stock_greedy[0]
        gateway.until_closed("hostile-1")
    with PlayedGateway(verifier.draft_port, name="hostile") as gateway:
        assert gateway.about is not None
        counts = gateway.about.counts
        assert counts.invalid > 0
        assert counts.unknown_stream > 0
        assert counts.overflow > 0
        assert counts.stale + counts.late > 0


def check_books(stories: Sequence[Story], answers: Sequence[Sequence[int]]) -> None:
    """Every token that the client got was published once, in order, with figures that add up."""
    for story, answer in zip(stories, answers, strict=True):
        assert story.tokens[story.opened.prompt :] == list(answer)
        for event in story.verified:
            assert 0 <= event.accepted <= event.drafted
            assert event.accepted <= len(event.tokens) <= event.accepted + 1
            assert (event.source is not None) == (event.drafted > 0)
