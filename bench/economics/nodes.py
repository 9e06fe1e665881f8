"""A thousand owners' machines: cards, lines, tariffs, and when each is on; and a day's demand."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.economics import inputs
from bench.economics.drafts import Floats, Ints

DAY_MIN = 1440


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes, one to an entry."""

    card: Ints
    """Index into `inputs.CARDS`."""
    streams: Ints
    rtt_s: Floats
    pace_s: Floats
    """Of a draft token while all its streams are drafted for."""
    prompt_s: Floats
    """To read a request's prompt."""
    tariff: Floats
    """Dollars per kWh."""
    watts: Floats
    """At the wall, the whole PC, drafting for all its streams."""
    card_watts: Floats
    """What the card's own counter shows of that."""

    def __len__(self) -> int:
        return len(self.card)


@dataclass(frozen=True, slots=True)
class Terms:
    """What is varied of the nodes."""

    count: int = 1000
    rtt: float = 1.0
    """Times the round trips of `inputs`."""
    tariff: float = 1.0
    streams: int | None = None
    """Of every node; none = as its card."""


def fleet(terms: Terms, stream_speed: float, rng: np.random.Generator) -> Fleet:
    """Nodes drawn by the shares of `inputs`.

    Args:
        terms: how many, and what is scaled.
        stream_speed: tokens per second of a stream, which says how often a node reads a new prompt.
        rng: chance.
    """
    cards = inputs.CARDS
    count = terms.count
    card = rng.choice(len(cards), count, p=[each.share for each in cards])
    near = inputs.NEAR_MS * np.exp(inputs.NEAR_SPREAD * rng.standard_normal(count))
    wifi = inputs.WIFI_MS * (rng.random(count) < inputs.WIFI_SHARE)
    far = inputs.FAR_MS * (rng.random(count) < inputs.FAR_SHARE) * rng.uniform(0.5, 1.5, count)
    prices, shares = zip(*inputs.TARIFFS, strict=True)
    tariff = rng.choice(prices, count, p=shares)
    bandwidth = np.array([each.bandwidth for each in cards])[card]
    board = np.array([each.watts for each in cards])[card] * inputs.LOAD
    own = np.array([each.streams for each in cards])[card]
    streams = own if terms.streams is None else np.full(count, terms.streams)
    scale = inputs.RTX_3090 / bandwidth
    prompt_s = inputs.PROMPT_TOKENS / inputs.PROMPT_RATE * scale
    step = inputs.ENGINE_S + inputs.DRAFT_BYTES / bandwidth + (streams - 1) * inputs.ROW_S * scale
    reading = np.minimum(streams * stream_speed / inputs.OUTPUT_TOKENS * prompt_s, 0.9)
    return Fleet(
        card,
        streams.astype(np.int64),
        terms.rtt * (near + wifi + far) / 1000,
        step / (1 - reading),
        prompt_s,
        terms.tariff * tariff,
        (board + inputs.REST_W) / inputs.PSU,
        board,
    )


def presence(count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Who is on and free, by [minute, node]: sessions end by chance, and begin so that each hour has its share."""
    here = np.empty((DAY_MIN, count), dtype=np.bool_)
    now = rng.random(count) < inputs.ONLINE[0]
    leave = 1.0 / inputs.SESSION_MIN
    for minute in range(DAY_MIN):
        hour = minute // 60
        share, following = inputs.ONLINE[hour], inputs.ONLINE[(hour + 1) % 24]
        wanted = share + (following - share) * (minute % 60) / 60
        gone = now.mean() * leave if count else 0.0
        come = (wanted - (now.mean() if count else 0.0)) / 20 + gone
        chance = rng.random(count)
        away = max(1.0 - float(now.mean()), 1e-9) if count else 1.0
        now = np.where(now, chance >= max(leave, -come), chance < max(come, 0.0) / away)
        here[minute] = now
    return here


def demand(rng: np.random.Generator) -> Floats:
    """Of the peak, by minute: the curve of `inputs` with some minutes of unrest."""
    hours = np.arange(DAY_MIN) / 60
    curve = np.interp(hours, np.arange(25), [*inputs.DEMAND, inputs.DEMAND[0]])
    unrest = np.empty(DAY_MIN)
    level = 0.0
    for minute in range(DAY_MIN):
        level = 0.9 * level + 0.02 * float(rng.standard_normal())
        unrest[minute] = level
    shaped = np.clip(curve * (1 + unrest), 0.05, None)
    return np.asarray(shaped / shaped.max(), dtype=np.float64)
