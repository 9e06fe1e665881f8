"""What the broker may be told; every value has a finite default."""

from dataclasses import dataclass

from shared.wire.limits import Limits

_BOUNDS = ("max_faults", "break_faults", "max_excess", "max_pauses", "max_joins", "max_records")


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerSettings:
    """Times are in milliseconds (`_ms`) or seconds (`_s`)."""

    nodes_by_default: bool = True
    """Whether nodes may draft for requests that do not say."""
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
    """Longest time that a stream may sit out for a draft in flight. A bound only: the verifier decides whether to wait
    at all, by the response times that it measures. A node whose drafts mostly take longer comes last."""
    response_window: int = 32
    """Response times kept per node."""

    prior_accepted: float = 3.0
    prior_rejected: float = 1.0
    """Acceptance assumed before any is measured (Beta prior); optimistic, so that new nodes are tried."""
    posterior_decay: float = 0.99
    """Weight kept by what was measured before, per verification."""
    acceptance_floor: float = 0.1
    """A node below this posterior mean gets streams only when no other node is there."""
    acceptance_min_checked: int = 40
    """Drafted tokens that were compared with the target's before the floor applies; those behind a mismatch are not."""
    refusal_floor: float = 0.05
    """A node is refused when even a generous upper bound of its acceptance is below this. The poorest draft model with
    the target's tokenizer does better; nodes whose model is merely poor are told, and come last."""
    refusal_min_checked: int = 300
    """Compared tokens before that."""
    stream_misses: int = 100
    """Misses of one node on one stream that count for a refusal: one odd stream must not decide."""
    evidence_half_life_s: float = 3_600.0
    """Time in which what was measured of a node's drafts loses half its weight."""
    good_share: float = 0.7
    """Nodes with at least this share of the best score are equally good: the least loaded is taken."""
    response_scale_ms: float = 200.0
    """A node that takes this long counts half as much as one that answers at once."""

    max_faults: int = 10
    """Invalid drafts after which a node is refused."""
    fault_forgiven_s: float = 600.0
    """Time after which one of them is forgotten."""
    break_faults: int = 3
    """A broken protocol, which ends the connection, counts as so many invalid drafts."""
    excess_factor: float = 2.0
    """A node may send so many times the tokens that it was asked for: all that it may have outstanding at first, and
    after each step what the step committed and once more all that it may have outstanding, if it began anew."""
    max_excess: int = 50
    """Drafts beyond that after which a node is refused. Each of them is dropped."""
    excess_forgiven_s: float = 1.0
    max_pauses: int = 30
    """Times that a node may pause and resume in quick succession before it is refused."""
    pause_forgiven_s: float = 10.0
    max_joins: int = 20
    """Times that a node may connect in quick succession before it is refused."""
    join_forgiven_s: float = 20.0
    refusal_s: float = 60.0
    """How long a node is refused the first time; each further time twice as long."""
    max_refusal_s: float = 86_400.0
    record_s: float = 86_400.0
    """How long a node's record is kept after it left, or after its refusal ended."""
    max_records: int = 100_000
    """Records of nodes that are not connected; the oldest go first."""
    silent_after_s: float = 30.0
    """A node that owes a draft for so long is replaced, if another one is free."""
    resync_again_s: float = 2.0
    """A `Resync` without answer is repeated after this time."""
    orphan_s: float = 60.0
    """A stream whose request is over and that showed no sign of life for so long is forgotten."""

    def __post_init__(self) -> None:
        for name in ("k", "tapes_per_stream", "candidates", "max_open_tokens", "response_window", *_BOUNDS):
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
