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
    close_s: float = 2.0
    """How long a node may take to read why it is turned away."""
