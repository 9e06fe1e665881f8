"""A broker with a market in virtual time: drafters of every kind, recorded answers, and what everybody is paid.

What decides is the product's code: the broker with its choice of nodes, the market, prompt lookup as the verifier runs
it, the payout bound. Only the engine is replaced, by answers that are known.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloud.api.accounts.charges import Charge
from cloud.api.accounts.keys import KeyId
from cloud.api.accounts.money import Nano, Pico
from cloud.api.accounts.prices import Price
from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.broker.broker import Broker
from cloud.api.broker.policy import StreamPolicy
from cloud.api.broker.settings import BrokerSettings
from cloud.api.ledger.settlement import NodeShare
from cloud.api.market.bound import shares
from cloud.api.market.minutes import MinuteReport
from cloud.api.market.pricebook import PriceBook, PriceVersion, Rates, RatesVersion
from cloud.api.market.settings import MarketSettings
from cloud.api.market.state import Market
from cloud.verifier.drafts.lookup import PromptLookup, agreement
from shared.ids import AccountId, ModelName, NodeId, StreamId, TapeId, VerifierId
from shared.sampling import Sampling
from shared.wire.messages import HoldReason, ModelOffer

FP = "a" * 64
BIG = ModelName("big")
WRONG = 0
VOCABULARY = 1 << 20
PRICE = Price(Pico(200_000), Pico(200_000), Pico(600_000))
"""$0.20 and $0.60 a million."""
PROFILE = {1: 18_900_000, 8: 19_500_000, 32: 21_700_000, 128: 30_300_000, 512: 64_900_000}
RATES = Rates(verifier=Pico(4_400_000_000_000 // 3600))
Trace = dict[str, Any]
Drafter = Callable[[Trace, int, int], Sequence[int]]
"""What a node sends for a trace at an answer position, at most so many tokens."""


def model(trace: Trace, at: int, k: int) -> list[int]:
    """The recorded draft model; behind its own first mistake nothing of it could be accepted."""
    out: list[int] = []
    for place in range(at, min(at + k, len(trace["tokens"]))):
        out.append(trace["guess"][place])
        if trace["guess"][place] != trace["tokens"][place]:
            break
    return out


def oracle(trace: Trace, at: int, k: int) -> list[int]:
    """Knows the answer."""
    return list(trace["tokens"][at : at + k])


def confident(least: float) -> Drafter:
    """The recorded draft model where it is sure of itself by this margin; nothing elsewhere."""

    def draft(trace: Trace, at: int, k: int) -> list[int]:
        out: list[int] = []
        for place, token in enumerate(model(trace, at, k), at):
            if trace["margin"][place] < least:
                break
            out.append(token)
        return out

    return draft


def ngram(shortest: int, longest: int, *, oldest: bool = False) -> Drafter:
    """No model: what followed the last few tokens before, by rules of one's own."""

    def draft(trace: Trace, at: int, k: int) -> list[int]:
        text = trace["prompt_tokens"] + trace["tokens"][:at]
        for size in range(longest, shortest - 1, -1):
            tail = text[-size:]
            ends = range(size, len(text))
            for end in ends if oldest else reversed(ends):
                if text[end - size : end] == tail:
                    return list(text[end : end + k])
        return []

    return draft


def nothing(trace: Trace, at: int, k: int) -> list[int]:
    return []


@dataclass(slots=True)
class Played:
    """What a request came to."""

    charge: Charge
    paid: tuple[NodeShare, ...]
    drafted_for: set[str]
    sent: dict[str, int]
    """Draft tokens that each node computed for it."""

    def earned(self, owner: str) -> int:
        return sum(share.amount for share in self.paid if share.owner == owner)


@dataclass(slots=True)
class Place:
    """A gateway's broker and market with nodes that are functions."""

    settings: MarketSettings = field(default_factory=MarketSettings)
    price: Price = PRICE
    rates: Rates = RATES
    k: int = 4
    seed: int = 0
    now: float = 1_000.0
    at: int = 1_796_000_040
    requests: int = 0
    broker: Broker = field(init=False)
    market: Market = field(init=False)
    drafters: dict[NodeId, Drafter] = field(default_factory=dict)
    commands: list[do.Command] = field(default_factory=list)
    reports: list[MinuteReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        book = PriceBook((PriceVersion("p1", "big", 0, self.price),), (RatesVersion("r1", 0, self.rates),))
        self.market = Market(self.settings, book, name="gw", profile=PROFILE, rng=random.Random(self.seed))
        self.market.at = self.at
        self.broker = Broker(BrokerSettings(k=self.k), random.Random(self.seed), market=self.market)
        self.send(ev.VerifierAttached("v", VerifierId("v"), BIG, FP, VOCABULARY, 100_000, self.k))

    def send(self, event: ev.Event) -> list[do.Command]:
        out = self.broker.handle(event, self.now)
        self.commands += out
        self.reports += [command.report for command in out if isinstance(command, do.RecordMinute)]
        return out

    def join(
        self,
        node: str,
        drafter: Drafter = model,
        *,
        owner: str | None = "acct_o",
        ask: int | None = 20_000,
        streams: int = 8,
        proven: bool = False,
    ) -> NodeId:
        """`ask` in pico-dollars. `proven`: as if its trial were behind it."""
        node_id = NodeId(node)
        self.drafters[node_id] = drafter
        whose = None if owner is None else AccountId(owner)
        offer = ModelOffer(name="small", fingerprint=FP, vocabulary=VOCABULARY)
        self.send(ev.NodeJoined(node_id, (offer,), streams, whose, None if ask is None else Pico(ask)))
        if proven:
            for _ in range(100):
                self.market.reputation(node_id, BIG).compared(3, missed=True, baseline=0)
            self.minute()
        return node_id

    def hold(self, node: NodeId) -> None:
        self.send(ev.NodeHeld(node, HoldReason.INPUT))

    def minute(self) -> MinuteReport:
        self.at += 60
        self.now += 60
        self.send(ev.Tick())
        self.send(ev.MinuteBegan(self.at))
        return self.reports[-1]

    def open(self, trace: Trace) -> StreamId:
        self.requests += 1
        stream = StreamId(f"s{self.requests}")
        self.send(ev.StreamRegistered(stream, StreamPolicy()))
        prompt = tuple(trace["prompt_tokens"])
        self.send(ev.StreamOpened("v", stream, prompt, len(prompt), Sampling(), 7, True))
        return stream

    def play(self, trace: Trace, during: Callable[[StreamId, int], None] | None = None) -> Played:
        """One request from beginning to end, alone. `during` is called before each step's drafts are checked."""
        stream = self.open(trace)
        registration = self.broker.registrations[stream]
        tokens, prompt = trace["tokens"], len(trace["prompt_tokens"])
        lookup = PromptLookup(trace["prompt_tokens"])
        seen: set[str] = set()
        sent: dict[str, int] = {}
        epochs: dict[NodeId, int] = {}
        at = 0
        while at < len(tokens):
            self.now += 0.02
            checked: tuple[NodeId, tuple[int, ...]] | None = None
            open_stream = self.broker.streams[stream]
            for node in list(open_stream.tapes):
                seen.add(node)
                drafts = tuple(self.drafters[node](trace, at, min(self.k, len(tokens) - at - 1)))
                sent[node] = sent.get(node, 0) + len(drafts)
                if not drafts:
                    continue
                epochs[node] = epochs.get(node, -1) + 1
                out = self.send(ev.NodeDraft(node, stream, epochs[node], prompt + at, drafts))
                for command in out:
                    if isinstance(command, do.ForwardDraft):
                        checked = node, command.tokens
            if during is not None:
                during(stream, at)
            source, draft = checked or (None, ())
            accepted = agreement(draft, tokens[at:])
            committed = tokens[at : at + accepted + 1]
            baseline = agreement(lookup.guess(len(committed)), committed)
            lookup.extend(committed)
            self.send(
                ev.StreamVerified(
                    "v",
                    stream,
                    prompt + at,
                    tuple(committed),
                    len(draft),
                    accepted,
                    None if source is None else TapeId(source),
                    baseline,
                    20.0,
                    self.requests * 10_000 + at,
                )
            )
            at += len(committed)
        self.send(ev.StreamClosed("v", stream, "finished"))
        charge = Charge(
            request_id=f"req_{self.requests}",
            key_id=KeyId("key_a"),
            at=self.at,
            model="big",
            path="/v1/completions",
            streamed=True,
            outcome="answered",
            prompt_tokens=prompt,
            cached_tokens=0,
            completion_tokens=len(tokens),
            cost=Nano(self.price.cost(prompt, 0, len(tokens))),
        )
        paid = shares(registration.figures().claims, self.price, self.rates, charge)
        self.send(ev.StreamReleased(stream))
        self.send(ev.SharesSettled(paid))
        return Played(charge, paid, seen, sent)
