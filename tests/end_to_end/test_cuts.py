"""Where an answer ends, on the real engine: with the verifier's own drafts as without, streamed as whole."""

from typing import Any

import pytest
from support.gateway import Gateway, nexus_figures

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

BODY: dict[str, Any] = {
    "model": "smollm2-135m",
    "prompt": "one two three four five six seven. one two three four five six seven. one two three",
    "temperature": 0,
    "logprobs": 1,
}
"""It goes on with what it has seen, which the verifier drafts by looking it up in the prompt."""


def ask(gateway: Gateway, *, drafts: bool, **body: Any) -> tuple[dict[str, Any], int]:
    """All that must be the same, and how many draft tokens were accepted."""
    extra = {} if drafts else {"nexus": {"max_draft_tokens": 0}}
    answer = gateway.client.completions.create(**{**BODY, **body}, extra_body=extra)
    [choice] = answer.choices
    logprobs, usage = choice.logprobs, answer.usage
    assert logprobs is not None and usage is not None
    seen = {
        "text": choice.text,
        "reason": choice.finish_reason,
        "tokens": logprobs.tokens,
        "logprobs": [pytest.approx(value, abs=1e-3) for value in logprobs.token_logprobs or []],
        "usage": (usage.prompt_tokens, usage.completion_tokens),
    }
    return seen, nexus_figures(answer)["accepted"]


def streamed(gateway: Gateway, **body: Any) -> tuple[str, list[str], tuple[int, int]]:
    options = {"include_usage": True}
    text, tokens, usage = "", [], (0, 0)
    for chunk in gateway.client.completions.create(stream=True, stream_options=options, **{**BODY, **body}):  # type: ignore[call-overload]
        for choice in chunk.choices:
            text += choice.text
            tokens += choice.logprobs.tokens if choice.logprobs else []
        if chunk.usage:
            usage = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
    return text, tokens, usage


def test_drafts_do_not_move_the_end(gateway: Gateway) -> None:
    """A stop string at each place of the text, within tokens and across them, and each length; drafts are accepted."""
    plain, _ = ask(gateway, drafts=False, max_tokens=24)
    text, accepted = plain["text"], 0
    stops = [text[at : at + size] for at, size in ((3, 1), (12, 4), (20, 9), (40, 12))]
    cuts: list[dict[str, Any]] = [{"stop": stop, "max_tokens": 40} for stop in stops if stop]
    cuts += [{"stop": [*filter(None, stops[1:]), "never this"], "max_tokens": 40}]
    cuts += [{"max_tokens": count} for count in (1, 8, 9)]
    for cut in cuts:
        without, none = ask(gateway, drafts=False, **cut)
        drafted, some = ask(gateway, drafts=True, **cut)
        assert none == 0
        assert drafted == without, cut
        assert streamed(gateway, **cut) == (without["text"], without["tokens"], without["usage"])
        shown = "".join(without["tokens"])
        assert shown.startswith(without["text"])
        for stop in [cut["stop"]] if isinstance(cut.get("stop"), str) else cut.get("stop", []):
            assert stop not in without["text"]
        accepted += some
    assert accepted > 10, "no drafts, no test"
