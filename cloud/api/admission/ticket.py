"""What a request that was let in holds until it is over, and gives back exactly once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cloud.api.accounts.charges import Charge, Outcome, Used
from cloud.api.accounts.keys import ApiKey
from cloud.api.accounts.money import NOTHING, Nano
from cloud.api.accounts.prices import Bounds, Price
from cloud.api.admission.gate import Gate
from cloud.api.admission.meter import Meter
from cloud.api.ledger.bookkeeper import Bookkeeper, Hold
from cloud.api.ledger.settlement import NodeShare, Settlement
from cloud.api.market.bound import Claim
from shared.ids import ModelName

OUTPUT_GUESS = 256
"""Output tokens that a choice is counted with while it runs when its request sets no limit."""
LONGEST_CONTEXT = 1 << 20
"""Taken for models that do not tell theirs, tokens."""
BYTES_PER_TOKEN = 4
TEMPLATE_TOKENS = 256
"""Most that a chat template adds to a prompt beyond one token for each byte of the request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A request as admission sees it."""

    request_id: str
    model: str
    path: str
    streamed: bool
    body_bytes: int
    output_limit: int | None
    """Of each choice."""
    choices: int
    context: int | None
    credit: Nano = NOTHING
    """Already paid for the same answer by an attempt whose response was lost."""

    def bounds(self) -> Bounds:
        """The most that it can take: a token has at least one byte."""
        prompt = self.body_bytes + TEMPLATE_TOKENS
        context = self.context if self.context is not None else LONGEST_CONTEXT
        output = self.output_limit if self.output_limit is not None else context
        return Bounds(prompt, output, self.choices, context)

    def estimate(self) -> int:
        """What it will take, about; at least 1."""
        output = self.output_limit if self.output_limit is not None else OUTPUT_GUESS
        prompt = self.body_bytes // BYTES_PER_TOKEN
        if self.context is not None:
            prompt, output = min(prompt, self.context), min(output, self.context)
        return max(prompt + self.choices * output, 1)


@dataclass(frozen=True, slots=True)
class Terms:
    """The versions that a request is settled by, and what its nodes get of what it cost."""

    price_version: str = "settings"
    rates_version: str = ""
    shares: Callable[[Price, Charge, Sequence[Claim]], tuple[NodeShare, ...]] = lambda _price, _charge, _claims: ()


class Ticket:
    """`settle` is synchronous and counts once: what comes after it changes nothing."""

    def __init__(
        self,
        ask: Ask,
        key: ApiKey,
        price: Price,
        *,
        hold: Hold,
        bookkeeper: Bookkeeper,
        meter: Meter,
        gate: Gate,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        on_settled: Callable[[Charge], None],
        terms: Terms | None = None,
    ) -> None:
        self._ask = ask
        self._key = key
        self._price = price
        self._hold = hold
        self._bookkeeper = bookkeeper
        self._meter = meter
        self._gate = gate
        self._clock = clock
        self._monotonic = monotonic
        self._on_settled = on_settled
        self._terms = terms or Terms()
        self.charge: Charge | None = None
        """None until settled."""
        self.settlement: Settlement | None = None

    def cost(self, used: Used) -> Nano:
        """Of the whole answer, whoever has paid for it."""
        return self._price.cost(used.prompt, used.cached, used.completion)

    def settle(self, used: Used, outcome: Outcome, claims: Sequence[Claim] = ()) -> None:
        """The request is over. A failure of ours costs nothing; what a lost attempt has paid is not paid again.
        `claims`: of the nodes whose drafts were checked.
        """
        if self.charge is not None:
            return
        cost = 0 if outcome == "failed" else max(self.cost(used) - self._ask.credit, 0)
        self.charge = Charge(
            request_id=self._ask.request_id,
            key_id=self._key.id,
            at=int(self._clock()),
            model=self._ask.model,
            path=self._ask.path,
            streamed=self._ask.streamed,
            outcome=outcome,
            prompt_tokens=used.prompt,
            cached_tokens=used.cached,
            completion_tokens=used.completion,
            cost=Nano(cost),
        )
        self.settlement = Settlement(
            charge=self.charge,
            account=self._key.account,
            target=ModelName(self._ask.model),
            price_version=self._terms.price_version,
            rates_version=self._terms.rates_version,
            shares=self._terms.shares(self._price, self.charge, claims),
        )
        self._bookkeeper.settle(self._hold, self.settlement)
        estimate = self._ask.estimate()
        self._meter.leave(self._ask.choices, estimate, used.prompt + used.completion, self._monotonic())
        self._gate.leave(self._ask.choices, estimate)
        self._on_settled(self.charge)
