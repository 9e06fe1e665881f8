"""Every sampling parameter that the engine knows goes together with drafts: the same tokens with them as without."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.drafters import Drafter, ask, ask_with_drafts, check_books, half_right, perfect, total
from support.played_gateway import PlayedGateway
from support.verifier import PROMPTS, Verifier, complete, post

from shared.draftport.messages import LOGIT_BIAS_ARG, MIN_P_ARG

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

SOME = PROMPTS[:5]
END = 2
"""Id of SmolLM2-Instruct's end of text, <|im_end|>."""
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
JSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}}
SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95}
BIAS = {"vllm_xargs": {LOGIT_BIAS_ARG: [260, 3.0, 28, -100.0, 30, 2.5]}}

BODIES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "temperature only": {"temperature": 1.0},
    "top-k": {"temperature": 0.9, "top_k": 20},
    "top-k, top-p, min-p": {"temperature": 1.1, "top_k": 40, "top_p": 0.9, "vllm_xargs": {MIN_P_ARG: 0.05}},
    "min-p": {"temperature": 1.2, "vllm_xargs": {MIN_P_ARG: 0.1}},
    "penalties": {**SAMPLED, "presence_penalty": 0.6, "frequency_penalty": 0.4, "repetition_penalty": 1.1},
    "greedy with penalties": {
        "temperature": 0,
        "presence_penalty": 0.6,
        "frequency_penalty": 0.4,
        "repetition_penalty": 1.1,
    },
    "logit bias": {**SAMPLED, **BIAS},
    "greedy with logit bias": {"temperature": 0, **BIAS},
    "bad words": {**SAMPLED, "bad_words": [" the", " of the", ","]},
    "allowed tokens": {**SAMPLED, "allowed_token_ids": list(range(0, 49152, 3))},
    "stop": {**SAMPLED, "stop": [".", "\n"]},
    "JSON": {**SAMPLED, **JSON},
    "greedy JSON with penalties": {"temperature": 0, "repetition_penalty": 1.1, **JSON},
}


def seeded(body: dict[str, Any], index: int) -> dict[str, Any]:
    return body if body["temperature"] == 0 else {**body, "seed": 50 + index}


@pytest.mark.parametrize("name", BODIES)
def test_a_parameter_gives_the_same_tokens_with_drafts(verifier: Verifier, name: str) -> None:
    """Half right drafts, so that rows of accepted, corrected and bonus tokens all occur."""

    def request(index: int) -> dict[str, Any]:
        return seeded(BODIES[name], index)

    plain = ask(verifier, request, prompts=SOME)
    drafted, stories = ask_with_drafts(verifier, plain, half_right, request, prompts=SOME)
    assert drafted == plain
    if name == "stop":  # the server's front end looks for stop strings, a step after the engine
        assert all(
            story.tokens[story.opened.prompt :][: len(tokens)] == tokens
            for story, tokens in zip(stories, drafted, strict=True)
        )
    else:
        check_books(stories, drafted)
    assert total(stories, "drafted") > total(stories, "accepted") > 0


def test_a_mixed_batch_gives_each_what_it_gets_alone(verifier: Verifier) -> None:
    """Greedy and sampled, filtered and unfiltered, with grammar and without, all in the same steps."""
    bodies = list(BODIES.values())
    prompts = PROMPTS[: len(bodies)]

    def request(index: int) -> dict[str, Any]:
        return seeded({**bodies[index], "logprobs": 2} if index % 3 == 0 else bodies[index], index)

    alone = ask(verifier, request, prompts=prompts, batch=1)
    mixed, stories = ask_with_drafts(verifier, alone, half_right, request, prompts=prompts, batch=8)
    assert mixed == alone
    assert sum(total([story], "drafted") > 0 for story in stories) > len(stories) * 0.7
    assert ask(verifier, request, prompts=prompts, batch=8) == alone


def test_json_is_valid_with_drafts_that_break_the_grammar(verifier: Verifier) -> None:
    """What the grammar forbids is withdrawn before the step; the answer is whole."""
    body = {**SAMPLED, **JSON, "seed": 5, "max_tokens": 40}
    plain = complete(verifier.url, "A person as JSON: ", **body)
    answers, stories = ask_with_drafts(
        verifier, [plain["token_ids"]], half_right, lambda index: body, prompts=["A person as JSON: "]
    )
    assert answers == [plain["token_ids"]]
    assert total(stories, "accepted") > 0
    assert set(json.loads(plain["text"])) == {"name", "age"}


def up_to_the_end(truth: list[int], rng: Any) -> list[int]:
    """All that comes, but not the end itself: that is left to the target, as a bonus."""
    return [token for token in truth[:6] if token != END]


@pytest.mark.parametrize("drafter", [up_to_the_end, perfect, half_right])
def test_an_end_before_min_tokens_is_held_back_alike(verifier: Verifier, drafter: Drafter) -> None:
    """The end is likely at every position and comes where it first may, drafts or not."""

    def request(index: int) -> dict[str, Any]:
        return {**SAMPLED, "seed": index, "min_tokens": 9, "vllm_xargs": {LOGIT_BIAS_ARG: [END, 60.0]}}

    plain = ask(verifier, request, prompts=SOME)
    assert [len(tokens) for tokens in plain] == [10] * len(SOME)
    assert all(tokens[-1] == END for tokens in plain)
    drafted, stories = ask_with_drafts(verifier, plain, drafter, request, prompts=SOME)
    assert drafted == plain
    assert total(stories, "accepted") > 0


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {**SAMPLED, "seed": 9, "presence_penalty": 0.5}])
def test_logprobs_are_the_targets_with_and_without_drafts(verifier: Verifier, sampling: dict[str, Any]) -> None:
    """Same tokens listed, values equal up to rounding; they are those before temperature, filters and penalties."""
    body = {**sampling, "logprobs": 3, "max_tokens": 24}
    plain = complete(verifier.url, PROMPTS[4], **body)
    with PlayedGateway(verifier.draft_port, name="logprobs") as gateway:
        gateway.rule = lambda stream, tokens: [
            ("tape", len(tokens), plain["token_ids"][len(tokens) - gateway.stories[stream].opened.prompt :][:5])
        ]
        stream = f"logprobs-{sampling['temperature']}"
        answer = verifier.complete(PROMPTS[4], stream=stream, gateway="logprobs", **body)
        gateway.until_closed(stream)
        assert total([gateway.stories[stream]], "accepted") > 10
    assert answer["token_ids"] == plain["token_ids"]
    drafted, undrafted = answer["logprobs"], plain["logprobs"]
    assert drafted["tokens"] == undrafted["tokens"]
    assert drafted["token_logprobs"] == pytest.approx(undrafted["token_logprobs"], abs=1e-4)
    assert [list(top) for top in drafted["top_logprobs"]] == [list(top) for top in undrafted["top_logprobs"]]
    # The model's own: what it gives to these tokens when they are a prompt.
    prompt = complete(verifier.url, PROMPTS[4], temperature=0, max_tokens=1)["prompt_token_ids"]
    echoed = complete(verifier.url, prompt + answer["token_ids"][:12], echo=True, logprobs=1, max_tokens=1)
    assert drafted["token_logprobs"][:12] == pytest.approx(
        echoed["logprobs"]["token_logprobs"][len(prompt) : len(prompt) + 12], abs=1e-4
    )


def choices(verifier: Verifier, stream: str | None, gateway: str, **body: Any) -> list[list[int]]:
    """All choices of one request, in order."""
    if stream is not None:
        body["vllm_xargs"] = {"nexus_stream": stream, "nexus_gateway": gateway}
    answer = post(verifier.url, PROMPTS[1], **body)
    assert answer.status_code == 200, answer.text
    return [choice["token_ids"] for choice in sorted(answer.json()["choices"], key=lambda choice: choice["index"])]


@pytest.mark.parametrize("seed", [7, 2**63 - 2, -5])
def test_n_choices_have_seeds_of_their_own(verifier: Verifier, seed: int) -> None:
    """Choice i is what seed + i alone gives, with drafts for each of them too; at the upper end seeds wrap around."""
    body = {**SAMPLED, "max_tokens": 12}
    single = [
        choices(verifier, None, "", **body, seed=(seed + number + 2**63) % 2**64 - 2**63)[0] for number in range(3)
    ]
    assert len({tuple(tokens) for tokens in single}) == 3
    assert choices(verifier, None, "", **body, seed=seed, n=3) == single
    name = f"choices{seed % 97}"
    truths = {f"{name}-1{tail}": tokens for tail, tokens in zip(("", "/1", "/2"), single, strict=True)}
    with PlayedGateway(verifier.draft_port, name=name) as gateway:
        gateway.rule = lambda stream, tokens: [
            ("tape", len(tokens), truths[stream][len(tokens) - gateway.stories[stream].opened.prompt :][:4])
        ]
        assert choices(verifier, f"{name}-1", name, **body, seed=seed, n=3) == single
        gateway.until_closed(*truths)
        assert all(total([gateway.stories[stream]], "accepted") > 0 for stream in truths)


def test_unseeded_requests_differ_and_repeat_nothing(verifier: Verifier) -> None:
    """Sixteen requests with one prompt and no seed: sixteen answers."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: tuple(complete(verifier.url, PROMPTS[1], temperature=1.0)["token_ids"]), range(16))
        )
    assert len(set(answers)) == 16


@pytest.mark.parametrize("refused", [{"min_p": 0.1}, {"logit_bias": {"260": 1.0}}])
def test_the_engines_own_names_of_two_parameters_are_refused(verifier: Verifier, refused: dict[str, Any]) -> None:
    """vLLM answers 400 to them whenever it speculates; ours come as extra arguments, which the gateway fills in."""
    answer = post(verifier.url, PROMPTS[0], temperature=0.8, **refused)
    assert answer.status_code == 400
    assert "speculative" in answer.text
