"""What the broker may be told; every value has a finite default."""

from dataclasses import dataclass

from shared.wire.limits import Limits


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerSettings:
    """Times are in milliseconds (`_ms`) or seconds (`_s`).

    The holds are generous because a block of drafts takes hundreds of milliseconds on a machine without
    a GPU; deployments on GPUs lower them.
    """

    k: int = 4
    """Most draft tokens that one verification takes; the verifier's own cap applies as well."""
    ahead: int | None = None
    """Most unverified tokens that a node may have outstanding for one stream, in each of its candidates; none = 4 k.
    A step that agrees commits k + 1 tokens, and the node is told of it one way later and draws level another way
    later: for whole drafts at a round trip of r steps it must be ahead by (r + 1) (k + 1). 4 k covers two steps and,
    with drafts that are partly wrong, more; what lies further ahead seldom survives the divergences before it. (2 k + 1
    left a node more than a step away with nothing to send.)"""
    tapes_per_stream: int = 1
    """How many nodes draft for one stream."""
    candidates: int = 1
    """How many lines of guesses a node may draft for one stream: its main line, and others that leave it for a
    runner-up where the node was unsure."""
    max_open_tokens: int = 32_768
    """A stream longer than this is not opened at a node, which would have to prefill it."""

    max_hold_ms: float = 2_000.0
    """Longest time that a stream may sit out to wait for its draft."""
    first_hold_ms: float = 1_000.0
    """Wait for a node whose response time is not measured yet."""
    hold_factor: float = 1.25
    """Wait = this times the node's 80th percentile, plus the margin."""
    hold_margin_ms: float = 5.0
    policy_change: float = 0.2
    """A new policy is sent when the wait changed by more than this share of the last one sent."""
    response_window: int = 32
    """Response times kept per node."""

    prior_accepted: float = 3.0
    prior_rejected: float = 1.0
    """Acceptance assumed before any is measured (Beta prior); optimistic, so that new nodes are tried."""
    posterior_decay: float = 0.99
    """Weight kept by what was measured before, per verification."""
    acceptance_floor: float = 0.1
    """A node below this posterior mean gets new streams only when no other node is there."""
    acceptance_min_drafted: int = 200
    """Drafted tokens before the floor applies."""
    good_share: float = 0.7
    """Nodes with at least this share of the best score are equally good: the least loaded is taken."""
    response_scale_ms: float = 200.0
    """A node that takes this long counts half as much as one that answers at once."""

    max_faults: int = 10
    """Invalid messages after which a node is refused."""
    refusal_s: float = 60.0
    """How long a refused node stays refused."""
    silent_after_s: float = 30.0
    """A node that owes a draft for so long is replaced, if another one is free."""
    resync_again_s: float = 2.0
    """A `Resync` without answer is repeated after this time."""
    orphan_s: float = 60.0
    """A stream whose request is over and that showed no sign of life for so long is forgotten."""

    def __post_init__(self) -> None:
        for name in ("k", "tapes_per_stream", "candidates", "max_open_tokens", "response_window", "max_faults"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        limits = Limits()
        if self.k > limits.draft_tokens:
            raise ValueError(f"k must be at most {limits.draft_tokens}, the protocol's limit")
        if self.ahead is not None and not 1 <= self.ahead <= limits.ahead_tokens:
            raise ValueError(f"ahead must be from 1 to {limits.ahead_tokens}, the protocol's limit")
        if self.candidates > limits.candidates:
            raise ValueError(f"candidates must be at most {limits.candidates}, the protocol's limit")
        if self.max_open_tokens > limits.context_tokens:
            raise ValueError(f"max_open_tokens must be at most {limits.context_tokens}, the protocol's limit")
