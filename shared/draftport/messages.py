"""Messages of the draft port, in MessagePack with a type tag; positions are absolute as in `shared.wire`.

The verifier binds one ROUTER per data-parallel rank, the gateway connects a DEALER. A gateway sends
`Attach` when it connects and then every second; the verifier answers each with `Attached`, and forgets a
gateway that has been silent for `GATEWAY_TIMEOUT_S`. Each message is one frame.
"""

import msgspec

from shared.sampling import Sampling

PROTOCOL = 1
ATTACH_INTERVAL_S = 1.0
GATEWAY_TIMEOUT_S = 10.0
FRAME_LIMIT = 8 << 20
"""Largest frame in bytes that a gateway takes; an `Opened` with a long prompt is the biggest message."""
GATEWAY_FRAME_LIMIT = 8 << 10
"""Largest frame in bytes that a verifier takes: a draft is the biggest message, and while the engine is idle nobody
reads the mailbox. A longer one costs the gateway its connection, which ZeroMQ makes anew."""

STREAM_ARG = "nexus_stream"
GATEWAY_ARG = "nexus_gateway"
"""Keys in the engine request's extra arguments (`vllm_xargs` over HTTP) that name the stream and who asked."""


MIN_P_ARG = "nexus_min_p"
LOGIT_BIAS_ARG = "nexus_logit_bias"
"""Keys of parameters that the engine refuses under speculation: a number, and a flat list of id, bias, id, bias…"""


class PortMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="t"):
    """Base of all draft-port messages."""


# --- verifier to gateway ---------------------------------------------------------------------


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the drafts since the engine started; tokens unless said otherwise."""

    messages: int = 0
    received: int = 0
    invalid: int = 0
    """In messages that broke a rule (id outside the vocabulary, malformed); dropped whole."""
    unknown_stream: int = 0
    stale: int = 0
    """Of an epoch that a divergence had already ended."""
    late: int = 0
    """For positions that were committed before the draft came."""
    overflow: int = 0
    """Beyond what a tape holds, or with a gap before them."""
    scheduled: int = 0
    accepted: int = 0
    rejected: int = 0
    voided: int = 0
    """Scheduled for a step but withdrawn by the engine (token budget, grammar, preemption)."""
    steps: int = 0
    """Engine steps that produced tokens."""
    request_steps: int = 0
    """Sum over steps of the requests in them."""
    holds: int = 0
    """Times that a stream sat out a step to wait for its draft."""
    hold_misses: int = 0
    """Holds that ended without a draft."""
    lookup_scheduled: int = 0
    """Of `scheduled`, those that the verifier's own prompt lookup drafted, where no node had anything."""
    lookup_accepted: int = 0


class Attached(PortMessage, frozen=True, kw_only=True, tag="attached"):
    """Answer to `Attach`: what is served here, and the counts so far."""

    verifier: str
    """Unique per engine start: a new value means that every stream of the old one is gone."""
    protocol: int
    model: str
    fingerprint: str
    vocabulary: int
    max_model_len: int
    k: int
    """Hard cap on the tokens of one draft that a step verifies."""
    rank: int
    counts: Counts
    tools: bool = False
    """Answers are searched for tool calls: the server has a parser for them, and the chat template tells of tools."""
    effort: bool = False
    """`reasoning_effort` means something to the chat template."""
    sampler: str = ""
    """Engine and sampler with their versions: the same seed gives the same tokens only where this is the same."""


class Opened(PortMessage, frozen=True, kw_only=True, tag="opened"):
    """The engine admitted a stream (or this answers `Resync`, with the tokens so far)."""

    stream: str
    tokens: tuple[int, ...]
    """Prompt and, after a `Resync`, what was committed since."""
    prompt: int
    """How many of `tokens` are the prompt."""
    sampling: Sampling
    seed: int | None
    max_tokens: int
    draftable: bool
    """False when the verifier will not use drafts for this stream; `why_not` says why."""
    why_not: str = ""


class Verified(PortMessage, frozen=True, kw_only=True, tag="verified"):
    """One step's tokens for one stream."""

    stream: str
    pos: int
    tokens: tuple[int, ...]
    drafted: int
    """Draft tokens that were checked."""
    accepted: int
    """The first so many of `tokens` came from the draft; the next is the target's correction or bonus."""
    source: str | None
    """Tape that the draft came from."""
    baseline: int
    """Tokens that the verifier's own n-gram proposer would have had accepted."""
    step: int
    """Number of the engine step, for counting steps across streams."""
    step_ms: float
    epoch: int = -1
    """Newest epoch seen on `source`'s tape."""


class Closed(PortMessage, frozen=True, kw_only=True, tag="closed"):
    """The stream ended: finished, aborted, or the engine forgot it."""

    stream: str
    reason: str


# --- gateway to verifier ---------------------------------------------------------------------


class Attach(PortMessage, frozen=True, kw_only=True, tag="attach"):
    """Tells the verifier where this gateway's events go. Sent every `ATTACH_INTERVAL_S`."""

    gateway: str
    protocol: int = PROTOCOL


class PortDraft(PortMessage, frozen=True, kw_only=True, tag="draft"):
    """A node's guess, checked by the gateway (right node, right stream, ids in range) and checked again here."""

    stream: str
    tape: str
    epoch: int
    pos: int
    tokens: tuple[int, ...]


class DropTape(PortMessage, frozen=True, kw_only=True, tag="drop"):
    """The node behind this tape is gone; wait for it no longer."""

    stream: str
    tape: str


class Policy(PortMessage, frozen=True, kw_only=True, tag="policy"):
    """How this stream is to be treated: longest wait for a draft in flight, longest draft."""

    stream: str
    wait_ms: float
    k: int


class Resync(PortMessage, frozen=True, kw_only=True, tag="resync"):
    """The gateway missed something: please send `Opened` again with all tokens so far."""

    stream: str


VerifierMessage = Attached | Opened | Verified | Closed
GatewayMessage = Attach | PortDraft | DropTape | Policy | Resync
