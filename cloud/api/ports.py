"""What the HTTP side needs from the broker side; `cloud.api.coordinator` implements it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from starlette.websockets import WebSocket

from cloud.api.accounts.charges import Outcome, Used
from cloud.api.broker.policy import StreamPolicy
from cloud.api.market.bound import Claim
from cloud.api.nodes.register import Register
from shared.ids import GatewayId, StreamId


class Figures(Protocol):
    """Running totals of one stream, in tokens; read-only."""

    @property
    def drafted(self) -> int: ...
    @property
    def accepted(self) -> int: ...
    @property
    def verify_steps(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def origins(self) -> Sequence[str]:
        """One of accepted, corrected, bonus, plain for each output token; kept only for traced streams."""
        ...

    @property
    def node_class(self) -> str:
        """Class of the nodes that saw the prompt; `none` when no node did."""
        ...

    @property
    def seed(self) -> int | None: ...
    @property
    def prompt_tokens(self) -> int:
        """0 until the engine has taken the prompt on."""
        ...

    @property
    def claims(self) -> Sequence[Claim]:
        """Of the nodes whose drafts were checked."""
        ...


class StreamHandle(Protocol):
    """One registered stream. Whoever registered it must release it, also when the request fails."""

    def figures(self) -> Figures: ...
    async def closed(self, timeout_s: float) -> bool:
        """Wait until the verifier has reported the end of the stream; false when the time is over."""
        ...

    def release(self) -> None: ...


class Ticket(Protocol):
    """What a request holds that was let in: settled once, whatever becomes of it."""

    def cost(self, used: Used) -> int:
        """Nano-dollars."""
        ...

    def settle(self, used: Used, outcome: Outcome, claims: Sequence[Claim] = ()) -> None:
        """The request is over. Synchronous, so that no cancellation can skip it; a second time changes nothing."""
        ...


class NodeEndpoint(Protocol):
    """Where draft nodes connect."""

    async def node_endpoint(self, websocket: WebSocket) -> None: ...

    def guard(self, register: Register) -> None:
        """From now on `register` says which nodes may be connected."""
        ...


class Served(Protocol):
    """What is known of a model from the draft port of a verifier that serves it."""

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        ...

    @property
    def tools(self) -> bool:
        """Whether its answers are searched for tool calls."""
        ...

    @property
    def effort(self) -> bool:
        """Whether `reasoning_effort` means anything to it."""
        ...

    @property
    def sampler(self) -> str:
        """Engine and sampler with their versions, for `system_fingerprint`."""
        ...


class Coordinator(Protocol):
    """The broker with its draft ports and nodes, as the HTTP routes see it."""

    @property
    def nodes(self) -> NodeEndpoint: ...

    @property
    def gateway_id(self) -> GatewayId: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def register(
        self, stream: StreamId, *, policy: StreamPolicy | None = None, trace: bool = False, shaped: bool = False
    ) -> StreamHandle:
        """Announce a stream before its request goes to the verifier, so that its `Opened` finds it known.

        `shaped`: the target's choice depends on things that nodes are not told (penalties, bias, a grammar).
        """
        ...

    def models(self) -> Sequence[object]:
        """What verifiers with an attached draft port serve; empty when no drafting is possible at all."""
        ...

    def served(self, model: str) -> Served | None:
        """None while no draft port of a verifier that serves it is attached."""
        ...

    def snapshot(self) -> Mapping[str, float]:
        """Counters and gauges by name, for `/metrics` and `/health`."""
        ...
