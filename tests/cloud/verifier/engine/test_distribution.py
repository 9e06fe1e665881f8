"""What the whole sampler commits follows the target's distribution, with drafts as without, on a small vocabulary.

The noise is a function of seed and position, so every figure here is the same in every run.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.statistics import binomial_limit, check_fit

from cloud.verifier.sampling.seed import effective_seed
from shared.coupling.choice import RowParameters, choose
from shared.draftport.messages import LOGIT_BIAS_ARG, MIN_P_ARG
from shared.noise.seeds import derived

if TYPE_CHECKING:
    from support.tiny_engine import TinyEngine

VOCABULARY = 8
TABLE = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(4)) * 1.2
PROMPT = (5, 1, 1, 2)
REQUESTS, RESTARTS = 4000, 50
"""Together 200,000 samples."""

PARAMETERS: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 0.6": {"temperature": 0.6},
    "top-k": {"top_k": 3},
    "top-p": {"top_p": 0.8},
    "min-p": {"extra_args": {MIN_P_ARG: 0.15}},
    "penalties": {"presence_penalty": 0.6, "frequency_penalty": 0.5, "repetition_penalty": 1.3},
    "bias": {"extra_args": {LOGIT_BIAS_ARG: [2, 1.5, 5, -2.0]}},
    "all": {
        "temperature": 0.9,
        "top_k": 6,
        "top_p": 0.93,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.2,
        "extra_args": {MIN_P_ARG: 0.05, LOGIT_BIAS_ARG: [2, 1.5, 5, -2.0]},
    },
}


def exact(given: dict[str, Any], history: Sequence[int]) -> NDArray[np.float64]:
    """The next token's probabilities, from the parameters' definitions and in double precision."""
    extra = given.get("extra_args", {})
    x = TABLE[history[-1] if history else PROMPT[-1]].double().numpy().copy()
    pairs = extra.get(LOGIT_BIAS_ARG, [])
    for token, bias in zip(pairs[::2], pairs[1::2], strict=True):
        x[token] += bias
    counts = Counter(history)
    for token in range(VOCABULARY):
        if token in counts or token in PROMPT:
            x[token] *= given.get("repetition_penalty", 1.0) ** (-1 if x[token] > 0 else 1)
        x[token] -= given.get("frequency_penalty", 0.0) * counts[token]
        x[token] -= given.get("presence_penalty", 0.0) * (token in counts)
    x /= given.get("temperature", 1.0)
    order = np.argsort(-x)
    x[order[given.get("top_k", VOCABULARY) :]] = -np.inf
    p = np.exp(x - x.max())
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= given.get("top_p", 1.0)]] = 0
    p[p < extra.get(MIN_P_ARG, 0.0) * p.max()] = 0
    return np.asarray(p / p.sum())


def likeliest(engine: "TinyEngine") -> list[list[int]]:
    """Two tokens by argmax."""
    best = TABLE.argmax(dim=1).tolist()
    return [[first := best[engine.last(request)], best[first]] for request in range(REQUESTS)]


def coupled(engine: "TinyEngine") -> list[list[int]]:
    """Two tokens by other logits and the same noise."""
    other = TABLE + 0.3 * torch.randn(TABLE.shape, generator=torch.Generator().manual_seed(5))
    seeds = torch.tensor([effective_seed(None, 0, name) for name in engine.names])
    last = torch.tensor([engine.last(request) for request in range(REQUESTS)])
    drafts = []
    for ahead in range(2):
        position = torch.tensor([engine.offset + len(output) + ahead - 1 for output in engine.outputs])
        last = choose(other[last], RowParameters(torch.ones(REQUESTS), seeds, position))
        drafts.append(last)
    return torch.stack(drafts, dim=1).tolist()


def garbage(engine: "TinyEngine") -> list[list[int]]:
    """Any tokens, up to three, as many in one step as it happens: none, too, after a step that had some."""
    rng = random.Random(engine.offset * 100_000 + sum(map(len, engine.outputs)))
    return [[rng.randrange(VOCABULARY) for _ in range(rng.randrange(4))] for _ in range(REQUESTS)]


@pytest.fixture(scope="module")
def tiny_engine() -> Iterator[Any]:
    """The class; a fixture, since importing vLLM takes long. One thread: small arrays want no more."""
    from support.tiny_engine import TinyEngine

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield TinyEngine
    torch.set_num_threads(threads)


def pairs(engine: "TinyEngine", drafter: Callable[["TinyEngine"], list[list[int]]] | None) -> NDArray[np.int64]:
    """Counts of the first two tokens of 200,000 streams [first, second]."""
    seen = torch.zeros(VOCABULARY * VOCABULARY, dtype=torch.int64)
    for number in range(RESTARTS):
        engine.restart(len(PROMPT) + 11 * number)
        tokens = engine.run(2, drafter)
        seen += torch.bincount(tokens[:, 0] * VOCABULARY + tokens[:, 1], minlength=len(seen))
    return np.asarray(seen.view(VOCABULARY, VOCABULARY).numpy())


@pytest.mark.parametrize(
    ("name", "drafter"),
    [("top-p", coupled), ("penalties", coupled), ("all", coupled), ("all", None), ("all", garbage)]
    + [
        pytest.param(*case, marks=pytest.mark.soak)
        for case in (
            *((name, coupled) for name in ("temperature 1", "temperature 0.6", "top-k", "min-p", "bias")),
            *((name, None) for name in ("temperature 1", "top-p")),
            ("all", likeliest),
        )
    ],
)
def test_200_000_samples_follow_the_target(
    tiny_engine: Any, name: str, drafter: Callable[["TinyEngine"], list[list[int]]] | None
) -> None:
    """Chi-square at 0.001: of the first token, and of two positions jointly, the second depending on the first."""
    given = {"temperature": 1.0, **PARAMETERS[name]}
    engine = tiny_engine(TABLE, PROMPT, [f"request-{number}" for number in range(REQUESTS)], lambda _: given)
    seen = pairs(engine, drafter)
    first = exact(given, ())
    check_fit(seen.sum(axis=1), first)
    check_fit(seen, first[:, None] * np.stack([exact(given, (token,)) for token in range(VOCABULARY)]))


STREAMS, LENGTH, TOKENS = 1000, 64, 16


@pytest.mark.parametrize("seeds", ["derived by the engine", "drawn by the gateway", "those of n choices"])
def test_no_two_of_1_000_streams_are_correlated(tiny_engine: Any, seeds: str) -> None:
    """Over a uniform distribution two streams agree as often as chance has it: all pairs, at the same and at
    neighbouring positions.

    Agreements of different pairs of independent uniform streams are independent two by two, so the variance of their
    sum is the sum of their variances, and that of their squares likewise.
    """
    rng = random.Random(6)
    drawn = [rng.getrandbits(63) for _ in range(STREAMS)]
    given: dict[str, list[int | None]] = {
        "derived by the engine": [None] * STREAMS,
        "drawn by the gateway": [*drawn],
        "those of n choices": [drawn[0] + number for number in range(STREAMS)],
    }
    names = [f"cmpl-{number:032x}-0-{rng.getrandbits(32):08x}" for number in range(STREAMS)]
    effective = [effective_seed(seed, 0, name) for seed, name in zip(given[seeds], names, strict=True)]
    assert len(set(effective)) == STREAMS
    engine = tiny_engine(
        torch.zeros(TOKENS, TOKENS), [3], names, lambda number: {"temperature": 1.0, "seed": given[seeds][number]}
    )
    tokens = engine.run(LENGTH)
    check_fit(torch.bincount(tokens.flatten(), minlength=TOKENS).numpy(), np.full(TOKENS, 1 / TOKENS))
    for lag in range(4):
        check_agreement(tokens, lag)


def check_agreement(tokens: torch.Tensor, lag: int) -> None:
    """Position t of each stream against position t + lag of each other one."""
    length, chance = LENGTH - lag, 1 / TOKENS
    one_hot = torch.nn.functional.one_hot(tokens, TOKENS).float()
    counts = one_hot[:, :length].flatten(1) @ one_hot[:, lag:].flatten(1).T
    apart = torch.triu(torch.ones(STREAMS, STREAMS, dtype=torch.bool), 1)
    agreements = counts[apart | (apart.T if lag else torch.zeros_like(apart))].double()
    number, variance = agreements.numel(), length * chance * (1 - chance)
    # Fourth central moment of a binomial, for the spread of the squares.
    fourth = variance * (1 + (3 * length - 6) * chance * (1 - chance))
    mean = float(agreements.mean()) - length * chance
    squares = float(((agreements - length * chance) ** 2).mean()) - variance
    assert abs(mean) < 4 * (variance / number) ** 0.5
    assert abs(squares) < 4 * ((fourth - variance**2) / number) ** 0.5
    assert int(agreements.max()) <= binomial_limit(length, chance, 0.001 / number)


def test_derived_seeds_do_not_repeat() -> None:
    """One per request, over 100,000 requests and two engines; the engine's own seed tells the engines apart."""
    seeds = {derived(engine, f"cmpl-{number:032x}") for number in range(50_000) for engine in (0, 1)}
    assert len(seeds) == 100_000
