"""What node and cloud say to each other: MessagePack maps with a type tag, new fields last, with a default.

A field that was added later is not sent while it has its default, in the messages that are sent all the time.

Positions are absolute: 0 is the first prompt token, and `pos` is the position of `tokens[0]`.
Money is in nano-dollars, energy in joules, times in milliseconds unless the name says otherwise.
"""

from enum import StrEnum

import msgspec

from shared.sampling import Sampling

PROTOCOL_VERSIONS: tuple[int, ...] = (1,)
"""Versions this build speaks, best first."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", forbid_unknown_fields=False):
    """Base of all messages. Unknown fields are skipped, so that a newer peer may add some."""


# --- node to cloud ---------------------------------------------------------------------------


class ModelOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A draft model that the node can run."""

    name: str
    fingerprint: str
    """`shared.fingerprint`: models may be paired when these agree."""
    vocabulary: int
    """Number of real token ids; rows that pad the embedding are not counted."""


class Hello(Message, frozen=True, tag="hello"):
    """First message of a node: who it is and what it can draft with."""

    versions: tuple[int, ...]
    key: bytes
    """Ed25519 public key, 32 bytes."""
    engine: str
    models: tuple[ModelOffer, ...]
    streams: int
    """How many streams the node drafts for at once."""
    agent: str = ""
    """Name and version of the agent's software, for support."""
    ask: int | None = None
    """Nano-dollars per accepted token; none = what its energy costs, and a margin. A node with a higher ask than the
    market's price gets no streams; one with a lower ask is paid the market's price."""


class Proof(Message, frozen=True, tag="proof"):
    """The node's signature over the challenge (`shared.keys.proof_payload`), 64 bytes."""

    signature: bytes


class Draft(Message, frozen=True, tag="draft", omit_defaults=True):
    """Guessed tokens. A higher epoch replaces what this candidate sent from `pos` on; the same epoch appends."""

    stream: str
    epoch: int
    pos: int
    tokens: tuple[int, ...]
    candidate: int = 0
    """Which of the stream's candidates this belongs to: 0 is the main line; each has epochs of its own."""


class NodeStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a node reports about itself; shown, never trusted."""

    streams: int = 0
    drafted_tokens: int = 0
    tokens_per_s: float = 0.0


class Beat(Message, frozen=True, tag="beat"):
    """Sign of life, every `Welcome.beat_s` seconds."""

    seq: int
    stats: NodeStats = NodeStats()
    energy: float | None = None
    """Joules drawn by the drafting GPUs since the session began; none = no counter."""


class HoldReason(StrEnum):
    """Why a node does not share at the moment."""

    OWNER_PAUSED = "owner_paused"
    INPUT = "input"
    BUSY_GPU = "busy_gpu"
    BATTERY = "battery"
    TEMPERATURE = "temperature"
    SCHEDULE = "schedule"
    ENGINE_FAILED = "engine_failed"


class Hold(Message, frozen=True, tag="hold"):
    """The owner needs the machine: every stream of this node is over, and no new one may be opened."""

    reason: HoldReason


class Resume(Message, frozen=True, tag="resume"):
    """The hold is over."""


class Drain(Message, frozen=True, tag="drain"):
    """The node is about to leave: open no new stream; the running ones may end."""


# --- cloud to node ---------------------------------------------------------------------------


class Challenge(Message, frozen=True, tag="challenge"):
    """Asks the node to prove its key, and settles the protocol version."""

    version: int
    nonce: bytes
    """32 random bytes."""
    cloud: str
    """Identity of the gateway process, part of what is signed."""


class Welcome(Message, frozen=True, tag="welcome"):
    """The node is in."""

    node: str
    beat_s: float
    frame_limit: int
    """Largest frame, bytes, that the cloud accepts."""


class Open(Message, frozen=True, tag="open", omit_defaults=True):
    """Please draft for this stream."""

    stream: str
    model: str
    """The target model's name; draft with the offer whose fingerprint is `fingerprint`."""
    fingerprint: str
    tokens: tuple[int, ...]
    """All tokens so far, prompt included."""
    sampling: Sampling
    seed: int | None
    """Seed of the shared noise; none for greedy streams."""
    k: int
    """Most tokens that one verification takes: the natural block."""
    ahead: int
    """Most unverified tokens that the node may have outstanding, in each candidate."""
    candidates: int = 1
    """How many candidates the node may draft: the main line, and others that leave it for a runner-up."""


class Advance(Message, frozen=True, tag="advance"):
    """The target's own tokens from `pos` on; where the node's guess differs, it re-drafts in a new epoch."""

    stream: str
    epoch: int
    """Newest epoch of this node's main line that the cloud had seen; a lower one than the node's own
    means that its latest block is still on the way."""
    pos: int
    tokens: tuple[int, ...]


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a stream came to for this node. What is paid is settled later and signed then: `shared.receipts`."""

    drafted: int
    accepted: int
    marginal: int = 0
    """Accepted beyond what the verifier's own prompt lookup would have had accepted: what is paid for."""
    price: int = 0
    """Pico-dollars for a marginal token."""
    amount: int = 0
    """Nano-dollars, before the bound on what a request pays out."""


class Close(Message, frozen=True, tag="close"):
    """The stream needs no more drafts from this node."""

    stream: str
    reason: str
    receipt: Receipt | None = None


class DemandReason(StrEnum):
    """Why a node has no work, or that it has."""

    SERVING = "serving"
    NO_DEMAND = "no_demand"
    NO_MATCHING_MODEL = "no_matching_model"
    TOO_SLOW = "too_slow"
    LOW_ACCEPTANCE = "low_acceptance"
    HOLDING = "holding"
    PROBATION = "probation"
    ASK_TOO_HIGH = "ask_too_high"
    NOT_PAIRED = "not_paired"
    FREE_MODEL = "free_model"
    OUTRANKED = "outranked"


class Demand(Message, frozen=True, tag="demand"):
    """Why this node is, or is not, given streams."""

    reason: DemandReason
    message: str = ""


class Earnings(Message, frozen=True, tag="earnings", omit_defaults=True):
    """Settled money of this node's owner, nano-dollars."""

    pending: int
    payable: int
    paid: int
    paying: int = 0
    """Asked for and on its way."""


class Refuse(Message, frozen=True, tag="refuse"):
    """Last message before the cloud closes the socket: why, in full (a close frame holds only 123 bytes)."""

    code: str
    message: str


NodeMessage = Hello | Proof | Draft | Beat | Hold | Resume | Drain
CloudMessage = Challenge | Welcome | Open | Advance | Close | Demand | Earnings | Refuse
