"""The main job on real processes: nodes draft over the WebSocket, vLLM verifies, the official client reads."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from openai import APIStatusError, AuthenticationError, BadRequestError, NotFoundError
from support.gateway import Gateway, Nodes, nexus_figures
from support.verifier import PROMPTS, Verifier, complete

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

CHAT = [{"role": "user", "content": "Tell me about the Moon in a few sentences."}]
GREEDY: dict[str, Any] = {"model": "smollm2-135m", "temperature": 0, "max_tokens": 40}


def text(gateway: Gateway, prompt: str, **body: Any) -> tuple[str, dict[str, Any]]:
    answer = gateway.client.completions.create(prompt=prompt, **{**GREEDY, **body})
    return answer.choices[0].text, nexus_figures(answer)


def drafted(gateway: Gateway, prompt: str, at_least: int, **body: Any) -> tuple[str, dict[str, Any]]:
    """An answer with so many accepted draft tokens. On a busy machine the first ones may be over before a node has
    begun: who has never answered is not waited for.
    """
    for _ in range(20):
        answer, figures = text(gateway, prompt, **body)
        if figures["accepted"] >= at_least:
            break
    assert figures["accepted"] >= at_least
    return answer, figures


def plain(verifier: Verifier, prompt: str, tokens: int = 40) -> str:
    """The verifier's own answer, with no gateway and no drafts."""
    return str(complete(verifier.url, prompt, temperature=0, max_tokens=tokens)["text"])


def test_without_a_node_everything_works(gateway: Gateway, verifier: Verifier) -> None:
    """Plain decoding through the gateway: one step for each token. The verifier's own drafts are left out."""
    answer, figures = text(gateway, PROMPTS[0], extra_body={"nexus": {"max_draft_tokens": 0}})
    assert answer == plain(verifier, PROMPTS[0])
    assert (figures["drafted"], figures["nodes"]) == (0, "none")
    assert figures["verify_steps"] == len(complete(verifier.url, PROMPTS[0], temperature=0, max_tokens=40)["token_ids"])


def test_a_node_drafts_for_an_answer_that_stays_the_same(gateway: Gateway, verifier: Verifier, nodes: Nodes) -> None:
    """The drafter is the target itself here, so nearly every draft is right; how many come in time depends on the
    machine: none but the first, where the drafter is no faster than a step. Whole and streamed chat agree.
    """
    nodes()
    answer, figures = drafted(gateway, PROMPTS[1], 1)
    assert answer == plain(verifier, PROMPTS[1])
    assert figures["tokens_per_step"] > 1
    client = gateway.client
    whole = client.chat.completions.create(messages=CHAT, **GREEDY)  # type: ignore[arg-type]
    pieces = []
    for chunk in client.chat.completions.create(messages=CHAT, stream=True, **GREEDY):  # type: ignore[call-overload]
        pieces += [choice.delta.content or "" for choice in chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content


def test_a_sampled_answer_is_the_same_with_and_without_a_node(
    gateway: Gateway, verifier: Verifier, nodes: Nodes
) -> None:
    """Coupled sampling end to end: same seed, same text, and drafts are accepted.

    Not nearly all: where the node has nothing yet, the verifier's prompt lookup drafts, and is mostly wrong here.
    """
    body = {"temperature": 0.8, "top_p": 0.95, "seed": 42}
    without, _ = text(gateway, PROMPTS[5], **body)
    nodes()
    answer, figures = drafted(gateway, PROMPTS[5], 8, **body)
    assert answer == without
    assert figures["seed"] == 42
    assert figures["accepted"] > 0.3 * figures["drafted"]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.95, "seed": 11}])
def test_a_node_killed_in_mid_answer_changes_nothing(
    gateway: Gateway, verifier: Verifier, nodes: Nodes, sampling: dict[str, Any]
) -> None:
    """SIGKILL after the first chunks: the stream goes on, and its text is the same, greedy and sampled."""
    node = nodes()
    workers = psutil.Process(node.process.pid).children(recursive=True)
    body = {"max_tokens": 80, **sampling}
    stream = gateway.client.completions.create(prompt=PROMPTS[2], stream=True, **{**GREEDY, **body})
    pieces = []
    for number, chunk in enumerate(stream):
        pieces += [choice.text for choice in chunk.choices]
        if number == 2:
            node.kill()
    assert "".join(pieces) == complete(verifier.url, PROMPTS[2], **body)["text"]
    _, still_there = psutil.wait_procs(workers, timeout=10)
    assert not still_there, "the worker must not outlive its agent"


def test_a_node_that_joins_in_mid_answer_serves_later_streams(
    gateway: Gateway, verifier: Verifier, nodes: Nodes
) -> None:
    """The running answer keeps its own node; the next ones use the newcomer as well."""
    first = nodes()
    joined = threading.Thread(target=nodes)
    stream = gateway.client.completions.create(prompt=PROMPTS[3], stream=True, **{**GREEDY, "max_tokens": 60})
    pieces = [choice.text for choice in next(iter(stream)).choices]
    joined.start()
    for chunk in stream:
        pieces += [choice.text for choice in chunk.choices]
    joined.join()
    assert "".join(pieces) == plain(verifier, PROMPTS[3], 60)
    first.process.send_signal(signal.SIGTERM)
    gateway.wait("the first node does not leave", lambda health: health["nodes"] == 1)
    answer, _ = drafted(gateway, PROMPTS[3], 1)
    assert answer == plain(verifier, PROMPTS[3])


def test_two_nodes_and_four_streams(gateway: Gateway, verifier: Verifier, nodes: Nodes) -> None:
    """Drafts go where they belong: every text is right, every stream has accepted drafts."""
    nodes()
    nodes()
    prompts = PROMPTS[6:10]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda prompt: text(gateway, prompt), prompts))
    for prompt, (answer, _) in zip(prompts, answers, strict=True):
        reference = complete(verifier.url, prompt, temperature=0, max_tokens=40)
        assert answer == reference["text"]
        if len(reference["token_ids"]) > 20:
            drafted(gateway, prompt, 1)


def test_trace_names_the_origin_of_every_token(gateway: Gateway, nodes: Nodes) -> None:
    """Joined, the pieces are the text; accepted ones are as many as the figures say."""
    nodes()
    answer, figures = text(gateway, PROMPTS[10], extra_body={"nexus": {"trace": True}})
    trace = figures["trace"]
    assert "".join(entry["text"] for entry in trace) == answer
    assert sum(entry["origin"] == "accepted" for entry in trace) == figures["accepted"]
    assert {entry["origin"] for entry in trace} <= {"accepted", "corrected", "bonus", "plain"}


def test_private_requests_are_not_shown_to_nodes(gateway: Gateway, nodes: Nodes) -> None:
    """`verifier_only`: no node drafts, although one is there; the verifier's own drafts may."""
    nodes()
    _, figures = text(gateway, PROMPTS[11], extra_body={"nexus": {"privacy": "verifier_only"}})
    assert figures["nodes"] == "none"


def test_bad_input_is_answered_in_words(gateway: Gateway) -> None:
    """Unknown model, wrong key, a prompt beyond the context, malformed JSON."""
    client = gateway.client
    with pytest.raises(NotFoundError, match="smollm2-135m"):
        client.completions.create(model="no-such-model", prompt="x")
    with pytest.raises(AuthenticationError, match="key"):
        client.with_options(api_key="nx_wrong").completions.create(prompt="x", **GREEDY)
    with pytest.raises(BadRequestError, match="1024") as caught:
        client.completions.create(prompt="word " * 3000, **GREEDY)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(APIStatusError, match="JSON"):
        client.post(
            "/completions",
            cast_to=object,
            content=b'{"model": ',
            options={"headers": {"content-type": "application/json"}},
        )


def test_an_agent_that_ends_leaves_no_process(nodes: Nodes) -> None:
    """SIGTERM: the worker is gone with it."""
    node = nodes()
    children = psutil.Process(node.process.pid).children(recursive=True)
    assert children
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(30) == 0
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive
