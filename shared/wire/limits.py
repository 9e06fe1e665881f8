"""Every bound of the node protocol, by name, with a finite default."""

from dataclasses import dataclass

TOKEN_ID_END = 1 << 31
"""Token ids and positions are below this. Whether an id is in the vocabulary is the gateway's check."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one end accepts and what it lets itself send.

    Breaking one locally is `LocalMisuse`; the other side breaking one is `LimitExceeded` (close code 1009).
    The queue and time limits bind whoever owns the socket and the clock: the session has neither.
    """

    node_frame: int = 64 << 10
    """Bytes of one frame from node to cloud; `Welcome.frame_limit` may lower it for the node."""
    cloud_frame: int = 8 << 20
    """Bytes of one frame from cloud to node; an `Open` with a long prompt is the biggest message."""
    draft_tokens: int = 256
    """Token ids in one `Draft`, and the largest `Open.k`."""
    context_tokens: int = 1 << 20
    """Token ids in one `Open` or `Advance`."""
    ahead_tokens: int = 4096
    """Largest `Open.ahead`: unverified tokens that a node may have outstanding for one candidate of a stream."""
    candidates: int = 4
    """Largest `Open.candidates`: lines of guesses that a node may draft for one stream, the main line included."""
    streams: int = 256
    """Streams of one node at once; the largest `Hello.streams`."""
    models: int = 16
    """Models in one `Hello`."""
    versions: int = 16
    """Protocol versions in one `Hello`."""
    id_length: int = 128
    """Characters of a stream id, a node id, a gateway's identity or a fingerprint."""
    name_length: int = 256
    """Characters of a model's, an engine's or an agent's name, and of a reason for closing a stream."""
    text_length: int = 2048
    """Characters of a text that people read (`Refuse.message`, `Demand.message`)."""
    closed_streams: int = 1024
    """Closed stream ids that the cloud remembers, to tell a late `Draft` from a forged one."""
    queue_frames: int = 1024
    """Frames that may wait to be sent to one peer before the connection is given up."""
    queue_bytes: int = 32 << 20
    """Bytes that may wait to be sent to one peer before the connection is given up."""
    handshake_s: float = 10.0
    """Seconds from the opened socket to `Welcome`."""
    beats_missed: int = 3
    """`Beat`s in a row that may be missing before the cloud takes the node for gone."""
