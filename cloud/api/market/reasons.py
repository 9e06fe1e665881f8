"""Why a node earns nothing, or less than it could, in words that say what its owner can do."""

from cloud.api.accounts.money import PICO_PLACES, Pico, dollars
from shared.wire.messages import DemandReason

MILLION = 1_000_000

WORDS = {
    DemandReason.SERVING: "The node drafts, and what is accepted beyond prompt lookup is paid.",
    DemandReason.NO_DEMAND: "There was no request that nodes may draft for.",
    DemandReason.NO_MATCHING_MODEL: "No model served here has the tokenizer of this node's draft model.",
    DemandReason.TOO_SLOW: "Most of the node's drafts came too late to be checked.",
    DemandReason.LOW_ACCEPTANCE: "The target model agreed with too few of the node's drafts.",
    DemandReason.HOLDING: "The node did not share at the time: its owner needs the machine.",
    DemandReason.PROBATION: "The node is new, or its drafts fell back behind prompt lookup: it is being tried, unpaid.",
    DemandReason.ASK_TOO_HIGH: "The node asks more than the market pays.",
    DemandReason.NOT_PAIRED: "The node belongs to no account, so nobody could be paid: run `nexus agent pair`.",
    DemandReason.FREE_MODEL: "Customers pay nothing for this model, so nobody is paid. Ask 0 to draft all the same.",
    DemandReason.OUTRANKED: "There was work, and other nodes gave more for it: a nearer or faster machine, a better "
    "draft model or a lower ask.",
}


def per_million(price: Pico) -> str:
    """As people compare prices."""
    return f"${dollars(price * MILLION, PICO_PLACES)} per million tokens"


def ask_too_high(ask: Pico, price: Pico) -> str:
    return f"The node asks {per_million(ask)}; the market pays {per_million(price)}. Ask less to be given streams."


def probation(compared: int, needed: int, gain: float, least: float) -> str:
    if compared < needed:
        return (
            f"New nodes are tried on streams that do not wait for them, unpaid: {compared} of {needed} drafted tokens "
            "have been compared with the target's so far."
        )
    return (
        f"Of this node's drafted tokens {max(gain, 0.0):.0%} are right where prompt lookup, which is free, would have "
        f"been wrong; paid work begins at {least:.0%} beyond doubt. Check its draft model and its precision."
    )
