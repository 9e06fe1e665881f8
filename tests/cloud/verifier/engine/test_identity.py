"""Whoever drafts, the answer is the target model's own: real engine, real draft port, played drafters."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.drafters import (
    VOCABULARY,
    Drafter,
    any_length,
    ask,
    ask_with_drafts,
    check_books,
    garbage,
    half_right,
    nothing,
    perfect,
    total,
)
from support.played_gateway import PlayedGateway
from support.verifier import PROMPTS, TOKENS, Verifier

from shared.draftport.messages import Policy, PortDraft

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

SOME = 24
"""Prompts of the greedy comparison."""


def greedy(index: int) -> dict[str, Any]:
    return {"temperature": 0}


def sampled(index: int) -> dict[str, Any]:
    return {"temperature": 0.8, "top_p": 0.95, "seed": 1000 + index}


@pytest.fixture(scope="module")
def plain_sampled(verifier: Verifier) -> list[list[int]]:
    """Sampled answers to all 40 prompts with no drafts at all."""
    assert len(PROMPTS) >= 40
    return ask(verifier, sampled)


@pytest.mark.parametrize(
    "drafter",
    [
        None,
        perfect,
        garbage,
        any_length,
        *(pytest.param(each, marks=pytest.mark.soak) for each in (nothing, half_right)),
    ],
)
def test_greedy_answers_are_stock_vllms(
    verifier: Verifier, stock_greedy: list[list[int]], drafter: Drafter | None
) -> None:
    """At batch 8 in float32: token for token what vLLM without our plugin says."""
    prompts, references = PROMPTS[:SOME], stock_greedy[:SOME]
    if drafter is None:
        assert ask(verifier, greedy, prompts=prompts) == references
        return
    answers, stories = ask_with_drafts(verifier, references, drafter, greedy, prompts=prompts)
    assert answers == references
    check_books(stories, answers)
    drafted, accepted = total(stories, "drafted"), total(stories, "accepted")
    assert bool(drafted) == (drafter is not nothing)
    if drafter is perfect:
        assert accepted == drafted
        assert sum(len(story.verified) for story in stories) < sum(map(len, answers)) / 3
    if drafter is garbage:
        assert accepted < drafted / 50


@pytest.mark.parametrize("drafter", [nothing, perfect, garbage, half_right, any_length])
def test_sampled_answers_do_not_depend_on_the_drafter(
    verifier: Verifier, plain_sampled: list[list[int]], drafter: Drafter
) -> None:
    """Temperature 0.8, top-p 0.95, fixed seeds, 40 prompts: a function of prompt, parameters and seed only."""
    answers, stories = ask_with_drafts(verifier, plain_sampled, drafter, sampled)
    assert answers == plain_sampled
    check_books(stories, answers)
    drafted, accepted = total(stories, "drafted"), total(stories, "accepted")
    if drafter is perfect:
        assert accepted == drafted > sum(map(len, answers)) / 2
    if drafter is garbage:
        # The verifier takes less and less of it, but goes on for long enough to show that it changes nothing.
        assert drafted > sum(map(len, answers)) / 4 and accepted < drafted / 50
    if drafter in (half_right, any_length):
        assert 0.1 * drafted < accepted < 0.95 * drafted


def test_late_drafts_change_nothing(verifier: Verifier, plain_sampled: list[list[int]]) -> None:
    """They come after many of their positions passed."""
    answers, stories = ask_with_drafts(verifier, plain_sampled, any_length, sampled, delay_s=0.4)
    assert answers == plain_sampled
    check_books(stories, answers)


def test_two_rival_nodes_change_nothing(verifier: Verifier, plain_sampled: list[list[int]]) -> None:
    """Two tapes for each stream that disagree; both are used."""
    answers, stories = ask_with_drafts(verifier, plain_sampled, half_right, sampled, tapes=2)
    assert answers == plain_sampled
    used = {str(event.source)[:5] for story in stories for event in story.verified if event.drafted}
    assert used >= {"tape0", "tape1"}


def test_nodes_that_die_in_mid_stream_change_nothing(verifier: Verifier, plain_sampled: list[list[int]]) -> None:
    """Both nodes of a stream are gone half way, with drafts of theirs still unverified."""
    half = TOKENS // 2
    answers, stories = ask_with_drafts(verifier, plain_sampled, any_length, sampled, tapes=2, dies_after=half)
    assert answers == plain_sampled
    check_books(stories, answers)
    assert total(stories, "accepted") > 0
    alone = [
        event
        for story in stories
        for event in story.verified
        if event.pos - story.opened.prompt > half and not str(event.source).startswith("tape")
    ]
    assert len(alone) > len(PROMPTS)


@pytest.mark.parametrize("batch", [3])
def test_another_batch_size_changes_nothing(verifier: Verifier, plain_sampled: list[list[int]], batch: int) -> None:
    """Fewer requests at a time, with drafts and without."""
    drafted, _ = ask_with_drafts(verifier, plain_sampled, perfect, sampled, batch=batch)
    assert drafted == plain_sampled
    assert ask(verifier, sampled, prompts=PROMPTS[:8], batch=batch) == plain_sampled[:8]


def test_the_limit_of_tokens_holds_to_the_token(verifier: Verifier, stock_greedy: list[list[int]]) -> None:
    """A draft that reaches past max_tokens is cut: no answer is longer."""
    for limit in (1, 2, 6, 7, 8):
        answers, stories = ask_with_drafts(
            verifier,
            stock_greedy[:4],
            perfect,
            lambda index, limit=limit: {"temperature": 0, "max_tokens": limit},  # type: ignore[misc]
            prompts=PROMPTS[:4],
        )
        assert answers == [tokens[:limit] for tokens in stock_greedy[:4]]
        check_books(stories, answers)


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
        assert gateway.stories["cached-1"].verified[0].drafted == 0


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
