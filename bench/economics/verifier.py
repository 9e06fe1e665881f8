"""A verifier under load: what its steps cost, how long drafts are that pay, and how many streams it then carries."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from bench.economics import inputs
from bench.economics.drafts import MOST, Floats, Gains
from bench.simulate import H100
from cloud.api.accounts.money import Pico
from cloud.api.market.cost import BILLION, StepCosts

LEAST_GAIN = 1.05
"""As the default of `nexus verifier serve --least-gain`."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """One rented machine."""

    name: str
    words: str
    table: Mapping[int, float]
    """Seconds of a step by its tokens."""
    stream_s: float = 0.0
    """More for each stream: reading its keys and values."""
    hour: float = inputs.GPU_HOUR * inputs.GPUS
    """Dollars."""
    most: int = inputs.MOST_STREAMS
    draft_part: float = inputs.COLOCATED_PART
    """What a step of the draft model takes on this machine, of a step of the target for one stream."""

    def step_s(self, streams: Floats | float, drafted: Floats | float = 0.0) -> Floats:
        """Of a step with so many streams and, together, so many draft tokens."""
        sizes, times = np.array(list(self.table), dtype=np.float64), np.array(list(self.table.values()))
        tokens = np.asarray(streams, dtype=np.float64) + drafted
        slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
        seconds: Floats = np.interp(tokens, sizes, times) + slope * np.maximum(tokens - sizes[-1], 0)
        return seconds + self.stream_s * np.asarray(streams)

    def plain(self, streams: float) -> float:
        """Tokens per second without drafts."""
        return streams / float(self.step_s(streams))

    @property
    def second(self) -> Pico:
        """Pico-dollars."""
        return Pico(round(self.hour * 10**12 / 3600))

    def costs(self, streams: int) -> StepCosts:
        """As the gateway would have learned them with so many streams: draft tokens read no keys of their own."""
        sizes = sorted({1, streams, *(streams + extra for extra in (16, 64, 256, 1024))})
        seconds = [float(self.step_s(min(size, streams), max(size - streams, 0))) for size in sizes]
        return StepCosts({size: round(second * BILLION) for size, second in zip(sizes, seconds, strict=True)})


def _table(path: Path) -> dict[int, float]:
    return {int(tokens): seconds for tokens, seconds in json.loads(path.read_text()).items()}


def table() -> Verifier:
    """The step-cost table of `bench.simulate`; it charges a draft token as much as a request."""
    return Verifier("table", "70B FP8, two H100, bench/data/step-cost-2xh100-70b-fp8.json", _table(H100))


TOKEN_S, CONTEXT_S = 57.5e-6, 43e-9
"""Of a computed token and of a token of context that is read, fitted to the published latencies of NIM 1.5.0 at 100
requests, 200 in and 200 out against 500 in and 2,000 out; see `fitted`."""


def split(context: float = inputs.PROMPT_TOKENS + inputs.OUTPUT_TOKENS / 2) -> Verifier:
    """The same machine, with a request's reading of its context told apart from what a token costs to compute."""
    tokens = {size: 0.0189 + TOKEN_S * size for size in (1, 1024)}
    return Verifier("split", "the same machine, context told apart from computing", tokens, CONTEXT_S * context)


def h200() -> Verifier:
    """Projected, not measured and not published: `split` on two H200, which compute as fast and read memory faster."""
    faster = 3.35 / 4.8
    tokens = {size: 0.0189 * faster + TOKEN_S * size for size in (1, 1024)}
    context = CONTEXT_S * faster * (inputs.PROMPT_TOKENS + inputs.OUTPUT_TOKENS / 2)
    return Verifier("h200", "the same on two H200, projected by memory bandwidth", tokens, context, most=256)


def fitted() -> list[tuple[str, int, float, float]]:
    """The fit against what was published: workload, requests, milliseconds between tokens published and fitted.

    In a steady state each request brings `prompt / output` tokens of prompts to every step.
    """
    published = (
        (200, 200, {25: 21.99, 50: 23.94, 100: 31.79, 250: 49.83}),
        (500, 2000, {25: 23.28, 50: 25.58, 100: 32.83, 150: 45.57}),
        (5000, 500, {25: 42.12, 50: 63.72}),
    )
    rows = []
    for prompt, output, latencies in published:
        each = TOKEN_S * (1 + prompt / output) + CONTEXT_S * (prompt + output / 2)
        rows += [(f"{prompt} in, {output} out", n, ms, 18.9 + 1000 * n * each) for n, ms in latencies.items()]
    return rows


def measured_cpu() -> Verifier:
    """The machine of docs/benchmark.md, the only one that we measured; at the price of a small cloud VM. Steps of 2, 4
    and 8 tokens took 349, 274 and 316 ms in no order: each counts as their mean."""
    seconds = {1: 0.304, 2: 0.313, 8: 0.313, 16: 0.415, 32: 0.750}
    return Verifier("cpu", "1.5B float32 on two CPU cores, measured", seconds, hour=0.08, most=16, draft_part=1 / 3)


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True)
class Drafting:
    """Who drafts for the streams of a step: round trip and pace of each node in seconds, and its part of all streams.
    What is missing to one is the part of streams without a node."""

    rtt_s: Floats = field(default_factory=_none)
    pace_s: Floats = field(default_factory=_none)
    part: Floats = field(default_factory=_none)

    @property
    def anybody(self) -> bool:
        return bool(self.part.sum() > 0)


@dataclass(frozen=True, slots=True)
class Steps:
    """A verifier's usual step."""

    streams: float
    seconds: float
    length: int
    """Draft tokens that are checked of a draft at most; 0 = none pays."""
    slots: float = 0.0
    """Draft tokens checked, of all streams."""
    accepted: float = 0.0
    marginal: Floats = field(default_factory=_none)
    """By node, per step of one of its streams."""

    @property
    def rate(self) -> float:
        return (self.streams + self.accepted) / self.seconds

    @property
    def speed(self) -> float:
        """Tokens per second of a stream, on average."""
        return self.rate / self.streams


def steps(verifier: Verifier, streams: float, drafting: Drafting, gains: Gains, settle: int = 6) -> Steps:
    """With the length of drafts that gives the most tokens per second, as cloud.verifier.policy chooses it."""
    plain = Steps(streams, float(verifier.step_s(streams)), 0, marginal=np.zeros(len(drafting.part)))
    if not drafting.anybody:
        return plain
    seconds = np.full(MOST + 1, plain.seconds)
    slots = accepted = marginal = np.zeros((MOST + 1, len(drafting.part)))
    for _ in range(settle):
        # Steps with longer drafts take longer, so that the same node is fewer of them away.
        slots, accepted, marginal = gains.at(drafting.rtt_s / seconds[:, None], drafting.pace_s / seconds[:, None])
        seconds = np.asarray(verifier.step_s(streams, streams * (slots @ drafting.part)))
    rates = streams * (1 + accepted @ drafting.part) / seconds
    best = int(np.argmax(rates))
    if rates[best] < LEAST_GAIN * plain.rate:
        return plain
    return Steps(
        streams,
        float(seconds[best]),
        best,
        float(streams * (slots[best] @ drafting.part)),
        float(streams * (accepted[best] @ drafting.part)),
        marginal[best],
    )


def carrying(verifier: Verifier, rate: float, drafting: Drafting, gains: Gains, guess: float) -> Steps:
    """The step at which one verifier gives `rate` tokens a second: as many streams are open as that takes.

    At most `verifier.most`; with more demand than that, requests wait, and the rate is what it can give.
    """
    streams = guess
    found = steps(verifier, streams, drafting, gains, settle=3)
    for turn in range(12):
        wanted = float(np.clip(rate * found.seconds * streams / (streams + found.accepted), 0.25, verifier.most))
        if abs(wanted - streams) <= 0.003 * streams:
            break
        streams = wanted if turn < 4 else (streams + wanted) / 2
        found = steps(verifier, streams, drafting, gains, settle=3)
    return found


def colocated(verifier: Verifier, streams: float, offers: tuple[Floats, Floats], draft_s: float | None = None) -> Steps:
    """The same with the draft model on the verifier's own GPUs: always there, and each of its tokens takes a step."""
    slots, accepted = offers
    lengths = np.arange(MOST + 1)
    own_s = verifier.draft_part * float(verifier.step_s(1)) if draft_s is None else draft_s
    own = lengths * (own_s + inputs.COLOCATED_ROW_S * streams)
    seconds = np.asarray(verifier.step_s(streams, streams * slots)) + own
    best = int(np.argmax((1 + accepted) / seconds))
    return Steps(streams, float(seconds[best]), best, float(streams * slots[best]), float(streams * accepted[best]))


def own_lookup(verifier: Verifier, streams: float, offers: tuple[Floats, Floats]) -> Steps:
    """With prompt lookup alone, where it pays."""
    return colocated(verifier, streams, offers, draft_s=-inputs.COLOCATED_ROW_S * streams)


@lru_cache(maxsize=4)
def by_name(name: str) -> Verifier:
    return {"table": table, "split": split, "h200": h200, "cpu": measured_cpu}[name]()
