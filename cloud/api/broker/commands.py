"""What the broker wants done."""

from dataclasses import dataclass

from cloud.api.market.minutes import MinuteReport
from shared.errors import NexusError
from shared.ids import ModelName, NodeId, StreamId, TapeId
from shared.sampling import Sampling
from shared.wire.messages import DemandReason, Receipt


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Ask the node to draft; `tokens` are all so far, prompt included."""

    node: NodeId
    stream: StreamId
    model: ModelName
    fingerprint: str
    tokens: tuple[int, ...]
    sampling: Sampling
    seed: int | None
    k: int
    ahead: int
    candidates: int


@dataclass(frozen=True, slots=True)
class AdvanceStream:
    """Tell the node what the target chose from `pos` on; contiguous per (node, stream)."""

    node: NodeId
    stream: StreamId
    epoch: int
    pos: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CloseStream:
    node: NodeId
    stream: StreamId
    reason: str
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class SendDemand:
    node: NodeId
    reason: DemandReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class RejectNode:
    """Tell the node why and close its connection; the broker has forgotten it already."""

    node: NodeId
    error: NexusError


@dataclass(frozen=True, slots=True)
class ForwardDraft:
    endpoint: str
    stream: StreamId
    tape: TapeId
    epoch: int
    pos: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropTape:
    endpoint: str
    stream: StreamId
    tape: TapeId


@dataclass(frozen=True, slots=True)
class SetPolicy:
    endpoint: str
    stream: StreamId
    wait_ms: float
    k: int


@dataclass(frozen=True, slots=True)
class RequestResync:
    endpoint: str
    stream: StreamId


@dataclass(frozen=True, slots=True)
class RecordMinute:
    """A minute of the market is over: store it."""

    report: MinuteReport


NodeCommand = OpenStream | AdvanceStream | CloseStream | SendDemand | RejectNode
VerifierCommand = ForwardDraft | DropTape | SetPolicy | RequestResync
Command = NodeCommand | VerifierCommand | RecordMinute
