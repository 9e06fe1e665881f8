"""One stream, and the figures of the request that it belongs to."""

from dataclasses import dataclass, field
from typing import Literal

from cloud.api.broker.policy import StreamPolicy
from cloud.api.broker.tape import Tape
from cloud.api.broker.work import Work
from cloud.api.ledger.settlement import NodeWork
from cloud.api.market.bound import Claim
from shared.ids import ModelName, NodeId, StreamId
from shared.sampling import Sampling

Origin = Literal["accepted", "corrected", "bonus", "plain"]
NodeClass = Literal["none", "any"]


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """What a request came to, summed over its choices; tokens unless said otherwise."""

    drafted: int = 0
    accepted: int = 0
    verify_steps: int = 0
    """Steps of the verifier that gave this request tokens, drafted or not."""
    output_tokens: int = 0
    origins: tuple[Origin, ...] = ()
    """Where each output token of choice 0 came from; empty unless the request is traced."""
    node_class: NodeClass = "none"
    """Class of the nodes that saw the prompt."""
    seed: int | None = None
    """Of choice 0."""
    prompt_tokens: int = 0
    """Of the prompt, once the engine has taken it on."""
    claims: tuple[Claim, ...] = ()
    """Of the nodes whose drafts were checked."""

    @property
    def work(self) -> tuple[NodeWork, ...]:
        """What each node did."""
        return tuple(claim.work for claim in self.claims)


def origins(tokens: int, drafted: int, accepted: int) -> list[Origin]:
    """Origin of each of one step's `tokens`: the accepted drafts, then the target's correction or bonus."""
    if drafted == 0:
        return ["plain"] * tokens
    last: Origin = "corrected" if accepted < drafted else "bonus"
    return ["accepted" if index < accepted else last for index in range(tokens)]


@dataclass(slots=True)
class Registration:
    """A request between its registration and its release; outlives the streams that are its choices."""

    stream: StreamId
    policy: StreamPolicy
    trace: bool
    shaped: bool
    open: set[StreamId] = field(default_factory=set)
    opened: int = 0
    drafted: int = 0
    accepted: int = 0
    verify_steps: int = 0
    output_tokens: int = 0
    origins: list[Origin] = field(default_factory=list)
    seen_by_nodes: bool = False
    seed: int | None = None
    prompt_tokens: int = 0
    work: dict[NodeId, Work] = field(default_factory=dict)
    joules_per_token: dict[NodeId, float] = field(default_factory=dict)
    """Of the nodes with a counter, as measured last."""

    @property
    def closed(self) -> bool:
        """Every choice that the verifier opened has ended."""
        return self.opened > 0 and not self.open

    def committed(
        self,
        stream: StreamId,
        tokens: int,
        drafted: int,
        accepted: int,
        *,
        steps: int = 1,
    ) -> None:
        self.drafted += drafted
        self.accepted += accepted
        self.verify_steps += steps
        self.output_tokens += tokens
        if self.trace and stream == self.stream:
            self.origins.extend(origins(tokens, drafted, accepted))

    def figures(self) -> StreamFigures:
        return StreamFigures(
            drafted=self.drafted,
            accepted=self.accepted,
            verify_steps=self.verify_steps,
            output_tokens=self.output_tokens,
            origins=tuple(self.origins),
            node_class="any" if self.seen_by_nodes else "none",
            seed=self.seed,
            prompt_tokens=self.prompt_tokens,
            claims=tuple(
                work.claim(self.joules_per_token.get(node)) for node, work in self.work.items() if work.drafted
            ),
        )


@dataclass(slots=True)
class Stream:
    """A stream that the verifier has open."""

    stream: StreamId
    endpoint: str
    model: ModelName
    registration: Registration
    tokens: list[int]
    """All committed tokens, prompt included."""
    prompt: int
    sampling: Sampling
    seed: int | None
    draftable: bool
    last_seen: float
    tapes: dict[NodeId, Tape] = field(default_factory=dict)
    wait_ms: float | None = None
    """Of the last policy sent."""
    misses: dict[NodeId, int] = field(default_factory=dict)
    """How many misses each node has had here, as far as they counted."""
    resync_sent: float | None = None
    """When the verifier was asked for the whole stream; none = in step with it."""
    released: bool = False
    canary: bool = False
    """A node on probation is tried with this stream although a proven one is free."""
