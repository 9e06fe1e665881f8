"""What the node endpoint may be told."""

from dataclasses import dataclass, field

from shared.wire.limits import Limits


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSettings:
    limits: Limits = field(default_factory=Limits)
    """Bounds of the protocol, among them the handshake's time and the send queue of one node."""
    beat_s: float = 5.0
    """Interval at which nodes give a sign of life; after `limits.beats_missed` of them a node is gone."""
    max_nodes: int = 10_000
    """Nodes connected at once, those in their handshake included."""
    allowed_keys: frozenset[bytes] | None = None
    """Ed25519 public keys that may connect; none = every key."""
    frames_per_s: float = 50.0
    """Frames that a node may send in the long run, besides those for its streams. Above it the gateway reads slower."""
    frames_per_stream_s: float = 200.0
    """The same for each stream that the node offered: drafts may come token by token."""
    frames_burst_s: float = 5.0
    """So many seconds' worth may come at once."""
    throttled_s: float = 30.0
    """After so long in all above the rate, the node is turned away."""
    close_s: float = 2.0
    """How long a node may take to read why it is turned away."""
