"""The scenarios of the report: one base day, and what is varied from it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.economics import inputs
from bench.economics.day import BILLION, Asks, Market, Outcome, Scenario, run
from bench.economics.drafts import beside, looked_up, tables
from bench.economics.nodes import Terms, demand
from bench.economics.verifier import Drafting, Steps, Verifier, colocated, own_lookup, steps

LOADS = (4, 8, 16, 32, 64, 96, 128)
ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
SPEEDS = (30, 35, 40, 45)
"""Tokens per second of a stream that are wanted at least."""
COARSE_MIN = 5
BASE = Scenario(minutes=COARSE_MIN)


@dataclass(frozen=True, slots=True)
class Row:
    """What one scenario came to. Dollars for a million output tokens unless said otherwise."""

    group: str
    name: str
    varied: float
    load: float
    plain: float
    lookup: float
    colocated: float
    nexus: float
    to_nodes: float
    saving: float
    """Against plain decoding."""
    saving_colocated: float
    price: float
    """Dollars for a million marginal tokens: mean over what was paid."""
    value: float
    """The same of what one was worth."""
    marginal: float
    """Paid tokens for each output token."""
    most_price: float
    """Price for a million at which the saving would be 35 %; negative where it is not reached for nothing."""
    gross_hour: float
    """Dollars for an hour of a served node."""
    net_hour: float
    """The same after its electricity."""
    losing_share: float
    """Of the minutes of served nodes, those with less pay than electricity."""
    losing_nodes: int
    """Nodes that were served and ended the day with less than their electricity."""
    losses: float
    """Dollars that they are behind, all together."""
    served_nodes: int
    served_hours: float
    waiting_hours: float
    """Hours in which nodes were there and not asked, which nobody pays."""
    speed_plain: float
    speed: float
    """Tokens per second of a stream, mean over the day."""
    bound_share: float
    """Of the day, when the payout bound cut pay."""
    short_share: float


GOAL = 0.35


def row(group: str, outcome: Outcome, varied: float, offers: tuple[float, float] | None = None) -> Row:
    """One line of the report's tables."""
    scenario, nexus, plain = outcome.scenario, outcome.nexus, outcome.plain
    lookup, beside_ = offers or others(scenario)
    gross, net = outcome.hourly()
    minutes = len(nexus.minute["rate"]) * scenario.minutes
    share = nexus.marginal / nexus.tokens
    verifier = nexus.per_million(nexus.verifier)
    weights = np.array(nexus.minute["rate"]) * np.array(nexus.minute["drafted"])
    worth = float(np.average(nexus.minute["value"], weights=weights)) if weights.sum() else 0.0
    return Row(
        group,
        scenario.name,
        varied,
        scenario.streams,
        plain.cost,
        lookup,
        beside_,
        nexus.cost,
        nexus.per_million(nexus.drafts),
        outcome.saving,
        1 - nexus.cost / beside_,
        nexus.drafts / BILLION / nexus.marginal * 1e6 if nexus.marginal else 0.0,
        worth,
        share,
        ((1 - GOAL) * plain.cost - verifier) / share if share else 0.0,
        gross,
        net,
        outcome.losing_share,
        outcome.losing_nodes,
        outcome.losses,
        int((nexus.served_min > 0).sum()),
        outcome.served_hours,
        float(nexus.waiting_min.sum()) / 60,
        float(np.mean(plain.minute["speed"])),
        float(np.mean(nexus.minute["speed"])),
        nexus.bound_min / minutes,
        nexus.short_min / minutes,
    )


def others(scenario: Scenario) -> tuple[float, float]:
    """Dollars for a million tokens of the same day with prompt lookup, and with the draft model on the verifier."""
    verifier, of = scenario.machine, tables(scenario.acceptance)[0]
    return (
        _rented_for(scenario, verifier, own_lookup(verifier, scenario.streams, looked_up(of))),
        _rented_for(scenario, verifier, colocated(verifier, scenario.streams, beside(of))),
    )


def beside_with(load: float, draft_s: float) -> float:
    """Dollars for a million tokens of the base day with the draft model on the verifier, by what its step takes."""
    scenario = replace(BASE, streams=load)
    verifier, of = scenario.machine, tables()[0]
    return _rented_for(scenario, verifier, colocated(verifier, load, beside(of), draft_s))


def _rented_for(scenario: Scenario, verifier: Verifier, full: Steps) -> float:
    rates = demand(np.random.default_rng((scenario.seed, 1)))
    rates = rates * scenario.peak * verifier.plain(scenario.streams) / scenario.streams
    hours = rates.reshape(24, -1).max(axis=1) * inputs.HEADROOM / full.rate
    rates = rates[:: scenario.minutes]
    machines = np.maximum(np.ceil(hours), 1)
    if scenario.reserved:
        machines = np.full(24, machines.max())
    return float(machines.sum() * verifier.hour / (rates.sum() * 60 * scenario.minutes) * 1e6)


def at_speed(scenario: Scenario, wanted: float) -> Scenario | None:
    """With as many streams on a verifier as leave each the wanted tokens per second, plainly and with drafts."""
    market = Market(scenario)
    verifier = market.verifier
    online = np.flatnonzero(market.here[600])
    plain = [s for s in range(1, verifier.most + 1) if verifier.plain(s) / s >= wanted]
    if not plain:
        return None
    most = plain[-1]
    for streams in range(plain[-1], verifier.most + 1):
        usual = steps(verifier, streams, Drafting(), market.gains)
        for _ in range(2):
            auction = market.auction(online, 20 * streams, usual)
            usual = steps(verifier, streams, auction.drafting, market.gains)
        if usual.speed >= wanted:
            most = streams
    name = f"{wanted:g} tokens/s: {plain[-1]} streams plainly, {most} with drafts"
    return replace(scenario, streams=float(plain[-1]), drafted_streams=float(most), name=name)


def suite(say: Callable[[str], None], quick: bool = False) -> Iterator[tuple[Row, Outcome]]:
    """All scenarios, one after another; `quick` leaves out most of each group."""
    for group, scenario, varied in _scenarios(quick):
        say(f"{group}: {scenario.name}")
        outcome = run(scenario)
        yield row(group, outcome, varied), outcome


def _scenarios(quick: bool) -> Iterator[tuple[str, Scenario, float]]:
    def some(values: Sequence[float]) -> Sequence[float]:
        return values[1::3] if quick else values

    yield "base", replace(BASE, minutes=15 if quick else 1, name="32 streams on a verifier"), 0
    for profile in ("table", "split", "h200"):
        for load in map(int, some(LOADS)):
            scenario = replace(BASE, verifier=profile, streams=float(load), name=f"{load} streams, {profile}")
            yield f"load {profile}", replace(scenario, gpu_hour=inputs.HOURS[profile]), load
    for load in map(int, some((1, 4, 16))):
        cpu = replace(BASE, verifier="cpu", streams=float(load), peak=400, token_price=100.0)
        yield "load cpu", replace(cpu, name=f"{load} streams, measured CPU"), load
    for wanted in some(SPEEDS):
        found = at_speed(BASE, wanted)
        if found is not None:
            yield "speed", found, wanted
    for load in map(int, some((8, 32, 64, 128))):
        for acceptance in ACCEPTANCES:
            name = f"{load} streams, acceptance {acceptance:g}"
            yield f"acceptance {load}", replace(BASE, streams=float(load), acceptance=acceptance, name=name), acceptance
    for peak in map(int, some((125, 500, 1500, 4000, 8000, 12000))):
        yield "demand", replace(BASE, peak=peak, name=f"{peak:,} streams at the peak"), peak
    for hour in some((1.49, 1.99, 2.69, 3.50, 5.00)):
        yield "GPU price", replace(BASE, gpu_hour=hour, name=f"${hour:g} for a GPU-hour"), hour
    for scale in some((0.5, 1.0, 2.0, 3.0, 5.0)):
        yield "round trip", replace(BASE, nodes=Terms(rtt=scale), name=f"round trips × {scale:g}"), scale
    for count in map(int, some((0, 100, 150, 200, 300, 500, 1000, 2000))):
        yield "nodes", replace(BASE, nodes=Terms(count=count), name=f"{count:,} nodes"), count
        if 0 < count < 500:
            capped = replace(BASE, nodes=Terms(count=count), cap=5_000, name=f"{count:,} nodes, half the value at most")
            yield "nodes, half", capped, count
    for scale in some((0.5, 1.0, 2.0, 4.0)):
        yield "tariff", replace(BASE, nodes=Terms(tariff=scale), name=f"tariffs × {scale:g}"), scale
    for streams in map(int, some((1, 2, 4, 8, 16))):
        yield "streams of a node", replace(BASE, nodes=Terms(streams=streams), name=f"{streams} on a node"), streams
    for number, asks in enumerate(Asks):
        yield "asks", replace(BASE, asks=asks, name=f"asks: {asks}"), number
    for share in some((0.0, 0.7, 0.95)):
        yield "good share", replace(BASE, good_share=share, name=f"good share {share:g}"), share
    for reserved in (False, True):
        name = "rented all day for the peak" if reserved else "rented by the hour"
        yield "rent", replace(BASE, reserved=reserved, name=name), reserved
    for price in some((0.1, 0.2, 0.4, 0.9)):
        scarce = replace(BASE, nodes=Terms(count=150), token_price=price, name=f"150 nodes, ${price:g} a million")
        yield "token price", scarce, price
