"""What an accepted draft token is worth: the verifier time that it saves, at what a second of the verifier costs.

A step of B streams takes T(B) and gives B tokens, so a token of plain decoding takes T(B) / B. If D draft tokens are
checked with it, the step takes T(B + D) and gives A tokens more. The A tokens would have taken A * T(B) / B; checking
took T(B + D) - T(B). Each of them is therefore worth

    rate * (T(B) / B - (T(B + D) - T(B)) / A)

which falls to nothing as the machine fills up (T(B + D) rises with D) and as drafts miss (A falls against D).
"""

from dataclasses import dataclass

from cloud.api.accounts.money import Pico
from cloud.api.accounts.prices import Price
from cloud.api.market.cost import BILLION, StepCosts
from cloud.api.market.pricebook import WHOLE, Rates

NOTHING = Pico(0)
ASSUMED_PERCENT = 70
"""Acceptance assumed of drafts where none were checked lately."""


@dataclass(frozen=True, slots=True)
class Load:
    """A usual step: streams in it, draft tokens checked in it, and how many of these were accepted. Sums over many
    steps do as well, together with their number."""

    streams: int
    drafted: int
    accepted: int
    steps: int = 1

    def __add__(self, other: "Load") -> "Load":
        return Load(
            self.streams + other.streams,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            self.steps + other.steps,
        )


def saved_ns(costs: StepCosts, load: Load) -> int:
    """Nanoseconds of the verifier that all accepted tokens of `load` saved together; negative where drafts cost more
    than they gave."""
    if load.streams < 1 or load.steps < 1:
        return 0
    batch = max(load.streams // load.steps, 1)
    plain = costs.ns(batch)
    checked = costs.ns(batch + load.drafted // load.steps)
    return load.accepted * plain // batch - load.steps * (checked - plain)


def token_value(costs: StepCosts, verifier: Pico, load: Load) -> Pico:
    """Pico-dollars for one accepted token, rounded down, never negative.

    Args:
        costs: T.
        verifier: pico-dollars for a second of the verifier.
        load: what steps looked like; where no draft was accepted in them, one token for each stream is assumed to be
            drafted and `ASSUMED_PERCENT` of those to be right.
    """
    if load.streams < 1 or not costs.known:
        return NOTHING
    if not load.accepted:
        drafted = load.streams * 100
        load = Load(load.streams * 100, drafted, drafted * ASSUMED_PERCENT // 100, load.steps * 100)
    return Pico(max(verifier * saved_ns(costs, load) // (load.accepted * BILLION), 0))


def worth(costs: StepCosts, rates: Rates, price: Price, load: Load) -> Pico:
    """`token_value`, or the nodes' share of what the customer pays for a token where a second of the verifier has no
    price or no step has been seen."""
    if not rates.verifier or not costs.known or load.streams < 1:
        return Pico(price.completion * rates.share // WHOLE)
    return token_value(costs, rates.verifier, load)
