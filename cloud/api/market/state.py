"""The market as the broker consults it: asks, this minute's prices, reputations, and what each node came to in it.

Pure: the broker tells what happens, and each minute's end comes as a call that names the minute. One gateway has one.
"""

import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cloud.api.accounts.money import Nano, Pico
from cloud.api.market.cost import BILLION, StepCosts
from cloud.api.market.energy import Meter, default_ask
from cloud.api.market.minutes import MinuteReport, NodeMinute, SpotMinute, Tally
from cloud.api.market.pricebook import WHOLE, PriceBook
from cloud.api.market.reputation import Finding, Reputation, Stage, Standing
from cloud.api.market.settings import MarketSettings
from cloud.api.market.spot import Offer, Spot, by_turns, clear
from cloud.api.market.surplus import accepted_per_s, surplus_per_s
from cloud.api.market.value import Load, worth
from shared.ids import AccountId, ModelName, NodeId
from shared.wire.messages import DemandReason

USUAL_STEP_NS = 30_000_000
"""Taken for a step while none was seen."""
USUAL_K = 4
"""Draft length that nodes are compared by where no stream is in question."""
LONG_TRIALS = 10
"""Times `prove_tokens` after which a node that never did better than prompt lookup is refused for a time."""
STEPS_OPEN = 8
"""Steps of one verifier whose messages may still come: they are numbered, and messages of one come together."""
NO_LOAD = Load(0, 0, 0, 0)


@dataclass(slots=True)
class Trader:
    """What the market knows of a connected node. `ask`: what it said, in pico-dollars; none = by its energy."""

    node: NodeId
    owner: AccountId | None
    streams: int
    ask: Pico | None
    sharing: bool = True
    """False while its owner needs the machine."""
    meter: Meter = field(default_factory=Meter)


@dataclass(slots=True)
class _Step:
    """One step of a verifier, as far as its messages have come."""

    number: int
    ns: int
    streams: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass(slots=True)
class Floor:
    """One model's market."""

    model: ModelName
    costs: StepCosts
    spot: Spot | None = None
    """None until the first stream asks for a node."""
    version: str = ""
    load: Load = NO_LOAD
    """Of the minute that runs."""
    last: Load = NO_LOAD
    """Of the latest minute that had any steps."""
    baseline: int = 0
    """Tokens of prompt lookup in the steps of `load`."""
    expected: int = 1
    """Streams at once in the minute that runs, by the one before."""
    demand_sum: int = 0
    demand_samples: int = 0
    streams: int = 0
    """That nodes may draft for, now."""
    _steps: dict[str, deque[_Step]] = field(default_factory=dict)

    @property
    def seen(self) -> Load:
        return self.last if self.last.steps else self.load

    def step(self, endpoint: str, number: int, ns: int, drafted: int, accepted: int, baseline: int) -> None:
        """One stream's part of a step. A step counts when a later one of its verifier has begun to be told."""
        self.baseline += baseline
        steps = self._steps.setdefault(endpoint, deque())
        found = next((step for step in steps if step.number == number), None)
        if found is None:
            found = _Step(number, ns)
            steps.append(found)
            if len(steps) > STEPS_OPEN:
                self._count(steps.popleft())
        found.streams += 1
        found.drafted += drafted
        found.accepted += accepted

    def _count(self, step: _Step) -> None:
        self.costs.observe(step.streams + step.drafted, step.ns)
        self.load += Load(step.streams, step.drafted, step.accepted)

    def sample(self, streams: int) -> None:
        self.streams = streams
        self.demand_sum += streams
        self.demand_samples += 1

    @property
    def demand(self) -> int:
        """Streams at once so far in this minute, on average, rounded up; at least one, for the next that comes."""
        return max(-(-self.demand_sum // self.demand_samples) if self.demand_samples else 0, 1)

    def step_s(self) -> float:
        load = self.seen
        tokens = max((load.streams + load.drafted) // load.steps, 1) if load.steps else 1
        return (self.costs.ns(tokens) or USUAL_STEP_NS) / BILLION

    def baseline_per_step(self) -> float:
        load = self.load
        return self.baseline / load.streams if load.streams else 0.0

    def next_minute(self) -> None:
        if self.load.steps:
            self.last = self.load
        self.expected = max(self.demand, self.streams)
        self.load, self.baseline = NO_LOAD, 0
        self.demand_sum = self.demand_samples = 0


class Market:
    """`name`: of the gateway, so that no two make the same version of a price. `profile`: what a step costs, in
    nanoseconds by tokens, where the operator has measured it."""

    def __init__(
        self,
        settings: MarketSettings | None = None,
        book: PriceBook | None = None,
        *,
        name: str = "",
        profile: Mapping[int, int] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings or MarketSettings()
        self.book = book or PriceBook()
        self.at = 0
        """The minute that runs, in seconds since 1970."""
        self.floors: dict[ModelName, Floor] = {}
        self.traders: dict[NodeId, Trader] = {}
        self.name = name
        self._profile = profile
        self._rng = rng or random.Random(0)
        self._reputations: dict[tuple[NodeId, ModelName], Reputation] = {}
        self._stored: dict[tuple[NodeId, ModelName], Standing] = {}
        self._tallies: dict[NodeId, Tally] = {}
        self._asks: dict[NodeId, Pico] = {}
        self._rates: dict[tuple[NodeId, ModelName, int], float] = {}
        """Asks and expected rates hold for a minute, as prices do: a broker with many nodes asks for them often."""

    def reprice(self, book: PriceBook) -> None:
        """Prices or rates have new versions. Spot prices of the minute that runs stay."""
        self.book = book

    # --- nodes ---------------------------------------------------------------------------------

    def joined(self, node: NodeId, owner: AccountId | None, streams: int, ask: Pico | None) -> None:
        self.traders[node] = Trader(node, owner, streams, ask)
        self._asks.pop(node, None)

    def gone(self, node: NodeId) -> None:
        self.traders.pop(node, None)

    def restore(self, standings: Iterable[Standing]) -> None:
        """What was stored of nodes before; those that are at work already keep what they have."""
        for standing in standings:
            self._stored.setdefault((standing.node, standing.model), standing)

    def reputation(self, node: NodeId, model: ModelName) -> Reputation:
        place = node, model
        if place not in self._reputations:
            stored = self._stored.pop(place, None)
            self._reputations[place] = (
                Reputation.restored(self.settings, stored, self.at) if stored else Reputation(self.settings)
            )
        return self._reputations[place]

    def proven(self, node: NodeId, model: ModelName) -> bool:
        return self.reputation(node, model).stage is Stage.PROVEN

    def failed(self, node: NodeId, model: ModelName) -> bool:
        """The node had a long trial and gives nothing beyond prompt lookup."""
        reputation = self.reputation(node, model)
        return (
            reputation.compared_tokens >= LONG_TRIALS * self.settings.prove_tokens
            and reputation.stage is Stage.PROBATION
            and reputation.finding is Finding.POOR
        )

    def canary(self) -> bool:
        """Whether the stream that begins is one that nodes are tried with."""
        return self._rng.random() * WHOLE < self.settings.canary_share

    def ask(self, node: NodeId) -> Pico:
        """What the node wants for a marginal token: what it said, else its energy at the assumed tariff."""
        if node not in self._asks:
            trader = self.traders[node]
            rates = self.book.rate(self.at).rates
            energy = default_ask(rates, trader.meter.millijoules_per_accepted)
            self._asks[node] = energy if trader.ask is None else trader.ask
        return self._asks[node]

    # --- prices --------------------------------------------------------------------------------

    def floor(self, model: ModelName) -> Floor:
        if model not in self.floors:
            self.floors[model] = Floor(model, StepCosts(self._profile))
        return self.floors[model]

    def value(self, model: ModelName) -> Pico:
        """What an accepted token is worth now; nothing where customers pay nothing, since nobody would be paid."""
        price = self.book.price(model, self.at).price
        if not price.completion:
            return Pico(0)
        floor = self.floor(model)
        return worth(floor.costs, self.book.rate(self.at).rates, price, floor.seen)

    def spot(self, model: ModelName) -> Spot:
        """This minute's price; made when it is first asked for, and then fixed."""
        floor = self.floor(model)
        if floor.spot is None:
            floor.spot = clear(self._offers(floor), floor.expected, self.value(model))
            floor.version = f"spot-{self.at}-{self.name}" if self.name else f"spot-{self.at}"
        return floor.spot

    def _offers(self, floor: Floor) -> list[Offer]:
        """Of the nodes that may be paid; the slow and the seldom right only where the others are too few. Those that
        are tried set no price: an ask that nobody may take is no offer. Chance, owner by owner, is the order."""
        model = floor.model
        traders = [
            trader
            for trader in self.traders.values()
            if trader.sharing and trader.owner is not None and self.proven(trader.node, model)
        ]
        rates = {trader.node: self.rate(trader.node, model, USUAL_K) for trader in traders}
        best = max(rates.values(), default=0.0)
        good = [trader for trader in traders if rates[trader.node] >= best * self.settings.good_share]
        if sum(trader.streams for trader in good) >= floor.expected:
            traders = good
        offers = [Offer(trader.node, trader.owner, self.ask(trader.node), trader.streams) for trader in traders]
        return by_turns(offers, self._rng)

    def version(self, model: ModelName) -> str:
        self.spot(model)
        return self.floor(model).version

    def surplus(self, node: NodeId, model: ModelName, k: int) -> float:
        """Pico-dollars a second that a stream is expected to gain by the node."""
        return surplus_per_s(self.spot(model).value, self.ask(node), self.rate(node, model, k))

    def rate(self, node: NodeId, model: ModelName, k: int) -> float:
        """Marginal tokens a second that one stream may expect of the node."""
        place = node, model, k
        if place not in self._rates:
            floor, reputation = self.floor(model), self.reputation(node, model)
            response_s = (reputation.response_ms(0.5) or 0.0) / 1_000.0
            rate = accepted_per_s(reputation.acceptance, k, floor.step_s(), response_s, floor.baseline_per_step())
            self._rates[place] = rate * reputation.reliability
        return self._rates[place]

    def objection(self, node: NodeId, model: ModelName) -> DemandReason | None:
        """Why the node is given no paid stream of the model; none when it may be."""
        if self.traders[node].owner is None:
            return DemandReason.NOT_PAIRED
        ask = self.ask(node)
        if not self.book.price(model, self.at).price.completion and ask > 0:
            return DemandReason.FREE_MODEL
        if not self.proven(node, model):
            return DemandReason.PROBATION
        return DemandReason.ASK_TOO_HIGH if ask > self.spot(model).price else None

    def able(self, nodes: Iterable[NodeId], model: ModelName) -> tuple[list[NodeId], list[NodeId]]:
        """Of these nodes, those that may be given a paid stream of the model, and those on probation: `objection` for
        many at once, since a broker asks for every stream."""
        free_model = not self.book.price(model, self.at).price.completion
        price = self.spot(model).price
        paid: list[NodeId] = []
        tried: list[NodeId] = []
        for node in nodes:
            if self.traders[node].owner is None:
                continue
            ask = self.ask(node)
            if free_model and ask > 0:
                continue
            if not self.proven(node, model):
                tried.append(node)
            elif ask <= price:
                paid.append(node)
        return paid, tried

    # --- the minute ----------------------------------------------------------------------------

    def tally(self, node: NodeId) -> Tally:
        """What the node came to so far in the minute that runs."""
        return self._tallies.setdefault(node, Tally())

    def end_minute(self, at: int) -> MinuteReport:
        """The minute ends, and the one that begins at `at` seconds since 1970 runs. Prices are made anew."""
        spots = tuple(
            SpotMinute(
                model=floor.model,
                minute=self.at,
                version=floor.version,
                price=floor.spot.price,
                value=floor.spot.value,
                setter=floor.spot.setter,
                nodes=len(self.traders),
                demand=floor.expected,
                rates_version=self.book.rate(self.at).version,
            )
            for floor in self.floors.values()
            if floor.spot is not None
        )
        minutes = tuple(self._minute(node, tally) for node, tally in sorted(self._tallies.items()))
        standings = tuple(
            reputation.standing(node, model, self.at)
            for (node, model), reputation in self._reputations.items()
            if reputation.changed
        )
        for reputation in self._reputations.values():
            reputation.changed = False
        for floor in self.floors.values():
            floor.next_minute()
            floor.spot = None
        self._forget()
        self._asks.clear()
        self._rates.clear()
        report = MinuteReport(self.at, self.name, spots, minutes, standings)
        self._tallies = {}
        self.at = at
        return report

    def _minute(self, node: NodeId, tally: Tally) -> NodeMinute:
        trader = self.traders.get(node)
        return tally.row(node, trader.owner if trader else tally.owner, self.at)

    def _forget(self) -> None:
        """Reputations of nodes that are gone wait as they are stored."""
        for node, model in [place for place in self._reputations if place[0] not in self.traders]:
            self._stored[node, model] = self._reputations.pop((node, model)).standing(node, model, self.at)

    def paid(self, node: NodeId, amount: Nano) -> None:
        """A settlement gave the node so much."""
        self.tally(node).earned = Nano(self.tally(node).earned + amount)
