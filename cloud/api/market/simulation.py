"""A day of the market in a second: made-up nodes and demand, and the real clearing, value, surplus and energy.

Only what nodes and customers do is invented, from a seed. It answers what a change of rates, of the verifier's price or
of the number of nodes does to the price and to owners' earnings, before anybody is paid by it.
"""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cloud.api.accounts.money import Nano, Pico
from cloud.api.market.cost import BILLION, StepCosts
from cloud.api.market.energy import default_ask, net
from cloud.api.market.pricebook import Rates
from cloud.api.market.spot import Offer, by_turns, clear
from cloud.api.market.surplus import accepted_per_s, accepted_per_step, surplus_per_s
from cloud.api.market.value import Load, token_value
from shared.ids import AccountId, NodeId

MINUTES = 1_440
PICO_PER_NANO = 1_000
FULL_STEP_TOKENS = 512
"""Streams are spread over as many verifiers as keep their plain steps below this."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A made-up node. `ask`: pico-dollars for a marginal token."""

    node: NodeId
    owner: AccountId
    streams: int
    ask: Pico
    acceptance: float
    response_s: float
    millijoules: int
    """For one accepted token."""
    tariff: Nano
    online: float
    """Part of the minutes in which it shares."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """What is simulated."""

    nodes: int = 100
    demand: int = 400
    """Streams at once in the busiest minute."""
    verifiers: int = 4
    k: int = 4
    minutes: int = MINUTES
    seed: int = 0
    ask_scale: int = 100
    """Asks in per cent of what energy and margin come to."""


@dataclass(slots=True)
class Hour:
    """Sums of an hour; tokens are marginal ones, money is nano-dollars."""

    hour: int
    minutes: int = 0
    demand: int = 0
    online: int = 0
    served: int = 0
    tokens: int = 0
    price: int = 0
    value: int = 0
    paid: Nano = field(default=Nano(0))
    profit: Nano = field(default=Nano(0))
    """Of owners, after electricity."""
    surplus: Nano = field(default=Nano(0))
    """Verifier time that was saved, less the owners' electricity."""


def machines(scenario: Scenario, rates: Rates, rng: random.Random) -> list[Machine]:
    """Mixed GPUs, links and tariffs; one owner in five has several."""
    made: list[Machine] = []
    owner = 0
    for number in range(scenario.nodes):
        owner += rng.random() < 0.8 or not made
        millijoules = round(rates.millijoules * rng.uniform(0.6, 2.0))
        tariff = Nano(round(rates.tariff * rng.uniform(0.5, 2.5)))
        ask = default_ask(rates, millijoules, tariff) * scenario.ask_scale // 100
        made.append(
            Machine(
                node=NodeId(f"node-{number:04}"),
                owner=AccountId(f"acct_{owner:016x}"),
                streams=rng.choice((4, 8, 16, 16, 32)),
                ask=Pico(ask),
                acceptance=min(max(rng.gauss(0.68, 0.08), 0.3), 0.9),
                response_s=rng.uniform(0.02, 0.2),
                millijoules=millijoules,
                tariff=tariff,
                online=rng.uniform(0.2, 1.0),
            )
        )
    return made


def run(scenario: Scenario, rates: Rates, profile: Mapping[int, int]) -> Iterator[Hour]:
    """Hour by hour. `profile`: nanoseconds of a verifier's step by its tokens."""
    rng = random.Random(scenario.seed)
    costs = StepCosts(profile)
    fleet = machines(scenario, rates, rng)
    hour = Hour(0)
    for minute in range(scenario.minutes):
        if minute and minute % 60 == 0:
            yield hour
            hour = Hour(minute // 60)
        _minute(scenario, rates, costs, fleet, _demand(scenario, minute, rng), hour, rng)
    yield hour


def _demand(scenario: Scenario, minute: int, rng: random.Random) -> int:
    """Low at night, highest in the afternoon."""
    day = 0.5 - 0.5 * math.cos(2 * math.pi * ((minute / MINUTES) - 0.125))
    return max(round(scenario.demand * (0.15 + 0.85 * day) * rng.uniform(0.85, 1.0)), 1)


def _minute(
    scenario: Scenario,
    rates: Rates,
    costs: StepCosts,
    fleet: list[Machine],
    demand: int,
    hour: Hour,
    rng: random.Random,
) -> None:
    online = [machine for machine in fleet if rng.random() < machine.online]
    verifiers = max(scenario.verifiers, -(-demand // FULL_STEP_TOKENS))
    batch = max(demand // verifiers, 1)
    usual = sum(accepted_per_step(m.acceptance, scenario.k) for m in online) / max(len(online), 1)
    load = Load(100 * batch, 100 * batch * scenario.k, round(100 * batch * usual), 100)
    value = token_value(costs, rates.verifier, load)
    spot = clear(by_turns([Offer(m.node, m.owner, m.ask, m.streams) for m in online], rng), demand, value)
    step_s = costs.ns(batch * (1 + scenario.k)) / BILLION
    ready = []
    for machine in online:
        if machine.ask <= spot.price:
            rate = accepted_per_s(machine.acceptance, scenario.k, step_s, machine.response_s)
            ready.append((machine.node in spot.served, surplus_per_s(value, machine.ask, rate), rate, machine))
    ready.sort(key=lambda entry: entry[:2], reverse=True)
    hour.minutes += 1
    hour.demand += demand
    hour.online += len(online)
    hour.price += spot.price
    hour.value += value
    left = demand
    for _, surplus, rate, machine in ready:
        streams = min(machine.streams, left)
        if streams < 1 or surplus <= 0:
            continue
        left -= streams
        tokens = int(rate * 60 * streams)
        paid = Nano(tokens * spot.price // PICO_PER_NANO)
        hour.served += streams
        hour.tokens += tokens
        hour.paid = Nano(hour.paid + paid)
        profit = net(paid, tokens * machine.millijoules, machine.tariff)
        hour.profit = Nano(hour.profit + profit)
        hour.surplus = Nano(hour.surplus + tokens * value // PICO_PER_NANO - (paid - profit))
