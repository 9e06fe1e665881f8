"""Drafters of every kind, played against a real verifier: what they draft, and what comes of it."""

import random
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.played_gateway import PlayedGateway, Story
from support.verifier import PROMPTS, Verifier

from shared.draftport.messages import DropTape

VOCABULARY = 49152
Drafter = Callable[[list[int], random.Random], Sequence[int]]
"""(the tokens that the reference has next, randomness) -> what to draft."""
Request = Callable[[int], dict[str, Any]]
"""Number of the prompt -> the request's parameters."""


def perfect(truth: list[int], rng: random.Random) -> Sequence[int]:
    return truth[:6]


def garbage(truth: list[int], rng: random.Random) -> Sequence[int]:
    return [rng.randrange(VOCABULARY) for _ in range(2)]


def half_right(truth: list[int], rng: random.Random) -> Sequence[int]:
    return [token if rng.random() < 0.5 else rng.randrange(VOCABULARY) for token in truth[:4]]


def any_length(truth: list[int], rng: random.Random) -> Sequence[int]:
    return [token if rng.random() < 0.9 else 17 for token in truth[: rng.randrange(0, 20)]]


def nothing(truth: list[int], rng: random.Random) -> Sequence[int]:
    """A node that is there and has nothing: what is drafted is the verifier's own."""
    return ()


def ask(verifier: Verifier, request: Request, *, prompts: Sequence[str] = PROMPTS, batch: int = 64) -> list[list[int]]:
    """Token ids of all answers, with no drafts at all: requests that name no stream have none."""
    with ThreadPoolExecutor(min(batch, len(prompts))) as pool:
        return list(
            pool.map(
                lambda index: list(verifier.complete(prompts[index], **request(index))["token_ids"]),
                range(len(prompts)),
            )
        )


def ask_with_drafts(
    verifier: Verifier,
    references: Sequence[Sequence[int]],
    drafter: Drafter,
    request: Request,
    *,
    tapes: int = 1,
    delay_s: float = 0.0,
    dies_after: int | None = None,
    prompts: Sequence[str] = PROMPTS,
    batch: int = 64,
) -> tuple[list[list[int]], list[Story]]:
    """All prompts at once; token ids and what the draft port said of each stream.

    Args:
        references: what the drafter takes for the truth, for each prompt.
        drafter: drafts whenever tokens were committed.
        request: parameters of each prompt's request.
        tapes: nodes for each stream; each drafts by itself. Every stream has nodes of its own, on whose record no other
            stream's policy rests.
        delay_s: how long a draft is on its way.
        dies_after: output tokens after which a stream's nodes are gone: their tapes are dropped, as a gateway does when
            a connection breaks.
        batch: requests at a time.
    """
    run = uuid.uuid4().hex[:8]
    names = [f"{run}-{index}" for index in range(len(prompts))]
    truths = dict(zip(names, references, strict=True))
    rng = random.Random(3)

    def rule(stream: str, tokens: list[int]) -> Sequence[tuple[str, int, Sequence[int]]]:
        done = len(tokens) - gateway.stories[stream].opened.prompt
        nodes = [f"tape{number}-{stream}" for number in range(tapes)]
        if dies_after is not None and done >= dies_after:
            for node in nodes:
                gateway.send(DropTape(stream=stream, tape=node))
            return ()
        rest = list(truths[stream][done:])
        return [(node, len(tokens), draft) for node in nodes if (draft := drafter(rest, rng))]

    with PlayedGateway(verifier.draft_port, name=run) as gateway:
        gateway.rule, gateway.delay_s = rule, delay_s
        with ThreadPoolExecutor(min(batch, len(prompts))) as pool:

            def one(index: int) -> list[int]:
                answer = verifier.complete(prompts[index], stream=names[index], gateway=run, **request(index))
                return list(answer["token_ids"])

            answers = list(pool.map(one, range(len(prompts))))
        gateway.until_closed(*names)
        return answers, [gateway.stories[name] for name in names]


def total(stories: Sequence[Story], figure: str) -> int:
    """Sum of a figure of `Verified` over what nodes drafted; the verifier's own drafts do not count."""
    return sum(
        getattr(event, figure)
        for story in stories
        for event in story.verified
        if event.source is not None and event.source.startswith("tape")
    )


def check_books(stories: Sequence[Story], answers: Sequence[Sequence[int]]) -> None:
    """Every token that the client got was published once, in order, with figures that add up."""
    for story, answer in zip(stories, answers, strict=True):
        assert story.tokens[story.opened.prompt :] == list(answer)
        for event in story.verified:
            assert 0 <= event.accepted <= event.drafted
            assert event.accepted <= len(event.tokens) <= event.accepted + 1
            assert (event.source is not None) == (event.drafted > 0)
