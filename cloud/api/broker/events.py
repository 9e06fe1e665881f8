"""What the broker is told."""

from dataclasses import dataclass

from cloud.api.accounts.money import Pico
from cloud.api.broker.policy import StreamPolicy
from cloud.api.ledger.settlement import NodeShare
from cloud.api.market.pricebook import PriceBook
from cloud.api.market.reputation import Quarantine, Standing
from shared.ids import AccountId, ModelName, NodeId, StreamId, TapeId, VerifierId
from shared.sampling import Sampling
from shared.wire.messages import HoldReason, ModelOffer


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node proved its key and is ready. `streams` is how many it drafts for at once."""

    node: NodeId
    models: tuple[ModelOffer, ...]
    streams: int
    owner: AccountId | None = None
    """Who is paid for its work; none = nobody, it is not paired."""
    ask: Pico | None = None
    """Pico-dollars for a marginal token; none = by its energy."""


@dataclass(frozen=True, slots=True)
class NodeLeft:
    node: NodeId


@dataclass(frozen=True, slots=True)
class NodeBroke:
    """The node broke the protocol: its connection ends, and `NodeLeft` follows."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class NodeHeld:
    """The node's owner needs the machine: its streams are over and it gets none until it resumes."""

    node: NodeId
    reason: HoldReason


@dataclass(frozen=True, slots=True)
class NodeResumed:
    node: NodeId


@dataclass(frozen=True, slots=True)
class NodeDraining:
    """The node gets no new stream; its running ones may end."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """Guesses for absolute positions from `pos` on; nothing about them is trusted."""

    node: NodeId
    stream: StreamId
    epoch: int
    pos: int
    tokens: tuple[int, ...]
    candidate: int = 0
    """0 is the node's main line."""


@dataclass(frozen=True, slots=True)
class NodeBeat:
    """A sign of life; `joules` as the node's counter has them since its session began, if it has one."""

    node: NodeId
    joules: float | None


@dataclass(frozen=True, slots=True)
class VerifierAttached:
    """An engine answers at `endpoint` (one per data-parallel rank)."""

    endpoint: str
    verifier: VerifierId
    model: ModelName
    fingerprint: str
    vocabulary: int
    max_model_len: int
    k: int


@dataclass(frozen=True, slots=True)
class VerifierLost:
    """The engine at `endpoint` is gone, and all its streams with it."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class StreamRegistered:
    """A request is about to go to a verifier under this id; its choice i ≥ 1 is called `<id>/<i>`."""

    stream: StreamId
    policy: StreamPolicy
    trace: bool = False
    shaped: bool = False
    """The target's choice depends on things that nodes are not told: their misses say nothing about them."""


@dataclass(frozen=True, slots=True)
class StreamReleased:
    """The request is over on the HTTP side: nobody asks for its figures any more."""

    stream: StreamId


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The engine admitted the stream, or answers a `Resync`; `tokens` are all so far, the prompt's first."""

    endpoint: str
    stream: StreamId
    tokens: tuple[int, ...]
    prompt: int
    sampling: Sampling
    seed: int | None
    draftable: bool


@dataclass(frozen=True, slots=True)
class StreamVerified:
    """One step committed `tokens` from `pos` on, the first `accepted` of them drafted on tape `source`."""

    endpoint: str
    stream: StreamId
    pos: int
    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    source: TapeId | None
    baseline: int
    step_ms: float
    step: int = 0
    """Number of the engine's step; those of one step together make it."""


@dataclass(frozen=True, slots=True)
class StreamClosed:
    endpoint: str
    stream: StreamId
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; sent about once a second."""


@dataclass(frozen=True, slots=True)
class MinuteBegan:
    """A new minute of the market, `at` seconds since 1970."""

    at: int


@dataclass(frozen=True, slots=True)
class BookChanged:
    """Prices or rates have new versions."""

    book: PriceBook


@dataclass(frozen=True, slots=True)
class RecordsLoaded:
    """What was stored of nodes before this gateway started. `at`: now, in seconds since 1970."""

    standings: tuple[Standing, ...]
    quarantines: tuple[Quarantine, ...]
    at: float


@dataclass(frozen=True, slots=True)
class SharesSettled:
    """What nodes get for a request that is over."""

    shares: tuple[NodeShare, ...]


NodeEvent = NodeJoined | NodeLeft | NodeBroke | NodeHeld | NodeResumed | NodeDraining | NodeDraft | NodeBeat
MarketEvent = MinuteBegan | BookChanged | RecordsLoaded | SharesSettled
VerifierEvent = VerifierAttached | VerifierLost | StreamOpened | StreamVerified | StreamClosed
Event = NodeEvent | VerifierEvent | MarketEvent | StreamRegistered | StreamReleased | Tick
