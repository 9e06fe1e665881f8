"""A day of one deployment: demand, verifiers rented by the hour, the market's price of each minute, and who earns what.

Prices, values, asks, payout bound and surplus are the product's own (cloud.api.market); what a step costs and gains is
`verifier`. Money is integers of nano-dollars; what the deployment pays for drafts is what the nodes get, to the last.
"""

import random
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from bench.economics import inputs
from bench.economics.drafts import Floats, Ints, tables
from bench.economics.nodes import DAY_MIN, Fleet, Terms, demand, fleet, presence
from bench.economics.verifier import Drafting, Steps, Verifier, by_name, carrying, steps
from cloud.api.accounts.money import Nano, Pico
from cloud.api.market.bound import PICO_PER_NANO, bounded
from cloud.api.market.energy import MILLIJOULES_PER_KWH, cost_of, default_ask
from cloud.api.market.pricebook import WHOLE, Rates
from cloud.api.market.settings import MarketSettings
from cloud.api.market.spot import Offer, Spot, by_turns, clear
from cloud.api.market.state import USUAL_K
from cloud.api.market.surplus import accepted_per_s
from cloud.api.market.value import Load, token_value
from shared.ids import AccountId, NodeId

BILLION = 1_000_000_000
STEPS = 1000
"""Steps that a `Load` speaks of, so that fractions of a token are not lost."""
MILLION = 1e6


class Asks(StrEnum):
    """What owners ask: their electricity for a marginal token, and the product's margin."""

    WALL = "wall"
    """The whole PC's, at their own tariff."""
    CARD = "card"
    """What the card's counter shows, at their own tariff."""
    DEFAULT = "default"
    """That, at the tariff that the market assumes: of an owner who has said nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is varied."""

    name: str = "base"
    verifier: str = "table"
    gpu_hour: float = inputs.GPU_HOUR
    streams: float = 32.0
    """Open on a verifier at full load, with or without drafts: the load."""
    drafted_streams: float | None = None
    """The same with drafts, where it differs: for equal speed of a stream rather than equal streams."""
    peak: int = 1500
    """Streams that are open at the day's peak, without drafts."""
    nodes: Terms = field(default_factory=Terms)
    acceptance: float | None = None
    """Of the draft model's guesses; none = as recorded."""
    token_price: float = inputs.TOKEN_PRICE
    """Dollars for a million output tokens: bounds what nodes get."""
    reserved: bool = False
    """Verifiers are there all day for the peak, rather than rented by the hour."""
    good_share: float = MarketSettings().good_share
    """Nodes that give less of the best node's tokens a second set no price, nor are asked, while others are enough."""
    cap: int = WHOLE
    """Basis points of a token's value that are paid at most."""
    asks: Asks = Asks.WALL
    minutes: int = 1
    """Length of an interval."""
    seed: int = 7

    @property
    def machine(self) -> Verifier:
        """The verifier at this scenario's price; that of the CPU has its own."""
        of = by_name(self.verifier)
        return of if self.verifier == "cpu" else replace(of, hour=self.gpu_hour * inputs.GPUS)


@dataclass(slots=True)
class Books:
    """What came of a day. Money in nano-dollars; energy in millijoules at the wall."""

    earned: Ints
    """By each node."""
    millijoules: Ints
    served_min: Ints
    waiting_min: Ints
    tokens: int = 0
    verifier: int = 0
    drafts: int = 0
    """Paid to nodes, all together."""
    losing_min: int = 0
    """Minutes of nodes that were served and earned less than their electricity."""
    hours: float = 0.0
    """Of verifiers."""
    marginal: float = 0.0
    accepted: float = 0.0
    bound_min: int = 0
    """Minutes in which the payout bound cut what was due."""
    short_min: int = 0
    """Minutes in which the verifiers could not give what was asked of them."""
    minute: dict[str, list[float]] = field(default_factory=dict)
    """Series over the day."""

    def note(self, **figures: float) -> None:
        for name, figure in figures.items():
            self.minute.setdefault(name, []).append(figure)

    def per_million(self, nano: int) -> float:
        """Dollars."""
        return nano / BILLION / self.tokens * MILLION if self.tokens else 0.0

    @property
    def cost(self) -> float:
        """Dollars for a million output tokens."""
        return self.per_million(self.verifier + self.drafts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One scenario: the same demand plainly and with drafts."""

    scenario: Scenario
    fleet: Fleet
    plain: Books
    nexus: Books

    @property
    def saving(self) -> float:
        return 1.0 - self.nexus.cost / self.plain.cost

    @property
    def served_hours(self) -> float:
        return float(self.nexus.served_min.sum()) / 60

    def electricity(self) -> Ints:
        """Of each node, nano-dollars."""
        pairs = zip(self.nexus.millijoules.tolist(), self.fleet.tariff.tolist(), strict=True)
        return np.array([cost_of(energy, Nano(round(tariff * BILLION))) for energy, tariff in pairs], dtype=np.int64)

    def hourly(self, which: NDArray[np.bool_] | None = None) -> tuple[float, float]:
        """Dollars for an hour in which a node is served, before and after its electricity."""
        chosen = np.ones(len(self.fleet), dtype=np.bool_) if which is None else which
        hours = float(self.nexus.served_min[chosen].sum()) / 60
        if not hours:
            return 0.0, 0.0
        gross = float(self.nexus.earned[chosen].sum()) / BILLION
        return gross / hours, (gross - float(self.electricity()[chosen].sum()) / BILLION) / hours

    @property
    def losing_share(self) -> float:
        """Of the minutes of served nodes, those that paid less than their electricity."""
        total = int(self.nexus.served_min.sum())
        return self.nexus.losing_min / total if total else 0.0

    @property
    def losing_nodes(self) -> int:
        """Nodes that were served and are behind at the end of the day."""
        served = self.nexus.served_min > 0
        return int((served & (self.nexus.earned < self.electricity())).sum())

    @property
    def losses(self) -> float:
        """Dollars by which these are behind, all together."""
        behind = np.maximum(self.electricity() - self.nexus.earned, 0)[self.nexus.served_min > 0]
        return float(behind.sum()) / BILLION


def run(scenario: Scenario) -> Outcome:
    """The day twice over the same demand; deterministic in the scenario."""
    market = Market(scenario)
    curve = demand(np.random.default_rng((scenario.seed, 1)))
    peak = scenario.peak * scenario.machine.plain(scenario.streams) / scenario.streams
    rates = curve * peak
    plain = _day(market, rates, scenario.streams, nobody=True)
    nexus = _day(market, rates, scenario.drafted_streams or scenario.streams, nobody=False)
    return Outcome(scenario, market.fleet, plain, nexus)


@dataclass(frozen=True, slots=True)
class Auction:
    """A minute's price and who drafts."""

    spot: Spot
    chosen: Ints
    filled: Floats
    """Part of each one's places that is taken."""
    drafting: Drafting


class Market:
    """The nodes, and what the coordinator knows of them."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.verifier = scenario.machine
        recorded, self.gains = tables(scenario.acceptance)
        self.acceptance = recorded.acceptance
        self.rng = random.Random(scenario.seed)
        speed = self.verifier.plain(scenario.streams) / scenario.streams * 1.5
        self.fleet = fleet(scenario.nodes, speed, np.random.default_rng((scenario.seed, 2)))
        self.here = presence(len(self.fleet), np.random.default_rng((scenario.seed, 3)))
        self.rates = Rates(verifier=self.verifier.second)
        self.names = [NodeId(f"n{index:04}") for index in range(len(self.fleet))]
        self.owners = [AccountId(f"acct_{index:016x}") for index in range(len(self.fleet))]
        self.index = {name: index for index, name in enumerate(self.names)}
        self._response = (self.fleet.rtt_s + self.fleet.pace_s).tolist()
        # A new stream waits for its node to read the prompt; a leaving node's streams wait for another.
        output_s = inputs.OUTPUT_TOKENS / speed
        reading = (self.fleet.prompt_s + self.fleet.rtt_s + self.fleet.pace_s) / output_s
        self.drafted_part = 1 - reading - inputs.REASSIGN_S / (60 * inputs.SESSION_MIN)

    def auction(self, online: Ints, wanted: float, usual: Steps) -> Auction:
        """Clears a minute, as `cloud.api.market.state` does: with what is known from the steps just before it."""
        length = max(usual.length, 1)
        at = usual.seconds
        found = self.gains.at(self.fleet.rtt_s[online] / at, self.fleet.pace_s[online] / at)
        marginal = (found[2][length] * self.drafted_part[online] / at).tolist()
        baseline = float((found[1][USUAL_K] - found[2][USUAL_K]).mean()) if len(online) else 0.0
        value = self.value(usual)
        offers, rates = [], []
        for index, rate in zip(online.tolist(), marginal, strict=True):
            if rate > 1e-6:
                streams = int(self.fleet.streams[index])
                ask = self._ask(index, rate * streams)
                offers.append(Offer(self.names[index], self.owners[index], ask, streams))
                rates.append(accepted_per_s(self.acceptance, USUAL_K, at, self._response[index], baseline))
        demanded = max(int(np.ceil(wanted)), 1)
        spot = clear(by_turns(self._good(offers, rates, demanded), self.rng), demanded, value)
        first = sorted(self.index[name] for name in spot.served)
        last = [] if spot.setter is None else [self.index[spot.setter]]
        # The node that sets the price gets what is left when all others are full; these share evenly (surplus.pick).
        places = self.fleet.streams[[*first, *last]].astype(np.float64)
        others = float(self.fleet.streams[first].sum())
        filled = np.full(len(places), min(wanted / max(others, 1.0), 1.0))
        if last:
            filled[-1] = np.clip((wanted - others) / places[-1], 0.0, 1.0)
        chosen = np.array([*first, *last], dtype=np.int64)[filled > 0]
        places, filled = places[filled > 0], filled[filled > 0]
        part = places * filled / max(wanted, 1.0)
        drafting = Drafting(self.fleet.rtt_s[chosen], self.fleet.pace_s[chosen], part * self.drafted_part[chosen])
        return Auction(spot, chosen, filled, drafting)

    def _ask(self, index: int, rate: float) -> Pico:
        """Of a node that gives so many marginal tokens a second with all its streams."""
        asks = self.scenario.asks
        watts = self.fleet.watts if asks is Asks.WALL else self.fleet.card_watts
        tariff = None if asks is Asks.DEFAULT else Nano(round(self.fleet.tariff[index] * BILLION))
        return default_ask(self.rates, round(float(watts[index]) * 1000 / rate), tariff)

    def value(self, usual: Steps) -> Pico:
        """Of an accepted token, as the product computes it from the steps that it saw."""
        batch = max(round(usual.streams), 1)
        load = Load(batch * STEPS, round(usual.slots * STEPS), round(usual.accepted * STEPS), STEPS)
        worth = token_value(self.verifier.costs(batch), self.rates.verifier, load)
        return Pico(worth * self.scenario.cap // WHOLE)

    def _good(self, offers: list[Offer], rates: list[float], demanded: int) -> list[Offer]:
        """The nodes that are nearly as quick as the best, where these are enough."""
        least = max(rates, default=0.0) * self.scenario.good_share
        good = [offer for offer, rate in zip(offers, rates, strict=True) if rate >= least]
        return good if sum(offer.streams for offer in good) >= demanded else offers


def _day(market: Market, rates: Floats, full: float, *, nobody: bool) -> Books:
    scenario, verifier = market.scenario, market.verifier
    count = len(market.fleet)
    nothing = [np.zeros(count, dtype=np.int64) for _ in range(4)]
    books = Books(nothing[0], nothing[1], nothing[2], nothing[3])
    idle = Auction(clear([], 0, Pico(0)), np.zeros(0, dtype=np.int64), np.zeros(0), Drafting())
    rented = _rented(market, rates, full, nobody)
    usual = steps(verifier, full, Drafting(), market.gains)
    for begin in range(0, DAY_MIN, scenario.minutes):
        hour = begin // 60
        machines = int(rented[hour])
        rate = float(rates[begin])
        each = rate / machines
        auction = idle
        if not nobody and count:
            online = np.flatnonzero(market.here[begin])
            auction = market.auction(online, machines * usual.streams, usual)
        usual = carrying(verifier, each, auction.drafting, market.gains, usual.streams)
        given = rate if usual.streams < verifier.most else min(rate, usual.rate * machines)
        books.short_min += scenario.minutes * (given < 0.995 * rate)
        seconds = 60 * scenario.minutes
        tokens = int(given * seconds)
        books.tokens += tokens
        books.hours += machines * seconds / 3600
        books.verifier += machines * seconds * verifier.second // PICO_PER_NANO
        _settle(market, books, auction, usual, machines, tokens, seconds, begin)
        books.note(
            rate=rate,
            machines=machines,
            streams=usual.streams * machines,
            length=usual.length,
            speed=usual.speed,
            price=auction.spot.price / MILLION,
            value=auction.spot.value / MILLION,
            online=0 if nobody else int(market.here[begin].sum()),
            served=len(auction.chosen),
            drafted=float(auction.drafting.part.sum()),
        )
    return books


def _settle(
    market: Market, books: Books, auction: Auction, usual: Steps, machines: int, tokens: int, seconds: int, begin: int
) -> None:
    """Pays and charges the nodes of an interval."""
    if not market.here.size:
        return
    minutes = seconds // 60
    chosen = auction.chosen
    served = np.zeros(len(market.fleet), dtype=np.bool_)
    served[chosen] = True
    books.waiting_min += minutes * (market.here[begin] & ~served)
    if not len(chosen):
        return
    open_streams = usual.streams * machines
    filled = auction.drafting.part * open_streams  # of each node, without the time in which it reads
    marginal = (filled * usual.marginal / usual.seconds * seconds).astype(np.int64)
    books.marginal += float(marginal.sum())
    books.accepted += usual.accepted * machines / usual.seconds * seconds
    price, scenario = auction.spot.price, market.scenario
    due = [price * tokens_ // PICO_PER_NANO for tokens_ in marginal.tolist()]
    output = tokens * round(scenario.token_price * MILLION) // PICO_PER_NANO
    paid = bounded(due, output * market.rates.share // WHOLE)
    books.bound_min += minutes * (sum(paid) < sum(due))
    fleet = market.fleet
    used = auction.filled
    full = fleet.watts[chosen]
    rest = (inputs.REST_W + inputs.WAITING_W) / inputs.PSU
    energy = ((rest + (full - rest) * used) * seconds * 1000).astype(np.int64)
    books.drafts += sum(paid)
    books.earned[chosen] += np.array(paid, dtype=np.int64)
    books.millijoules[chosen] += energy
    books.served_min[chosen] += minutes
    nano_per_mj = fleet.tariff[chosen] * BILLION / MILLIJOULES_PER_KWH
    books.losing_min += minutes * int((np.array(paid) < energy * nano_per_mj).sum())


def _rented(market: Market, rates: Floats, full: float, nobody: bool) -> Ints:
    """Verifiers of each hour: enough for its highest demand and a tenth, as if that were known beforehand."""
    scenario, verifier = market.scenario, market.verifier
    rented = np.zeros(24, dtype=np.int64)
    usual = steps(verifier, full, Drafting(), market.gains)
    for hour in range(24):
        minutes = range(hour * 60, hour * 60 + 60)
        highest = float(rates[minutes.start : minutes.stop].max()) * inputs.HEADROOM
        least = verifier.plain(full)
        if not nobody and len(market.fleet):
            least = np.inf
            for minute in minutes[:: max(15, scenario.minutes)]:
                for _ in range(3):
                    machines = max(np.ceil(highest / usual.rate), 1)
                    online = np.flatnonzero(market.here[minute])
                    auction = market.auction(online, machines * full, usual)
                    usual = steps(verifier, full, auction.drafting, market.gains)
                least = min(least, usual.rate)
        rented[hour] = max(int(np.ceil(highest / least)), 1)
    return np.full(24, rented.max()) if scenario.reserved else rented
