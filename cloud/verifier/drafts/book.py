"""All streams of one engine: takes messages from gateways, says what a step drafts or waits for, counts."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cloud.verifier.drafts.line import Line
from cloud.verifier.drafts.lookup import PromptLookup
from cloud.verifier.drafts.stream import LOOKUP, TAPES_PER_STREAM, WAIT_LIMIT_S, Stream
from cloud.verifier.drafts.tally import Tally
from cloud.verifier.drafts.tape import Taken
from cloud.verifier.policy.cost import StepCost
from cloud.verifier.policy.response import Responses
from cloud.verifier.policy.survival import LOOKUP_PRIOR, NODE_PRIOR, StreamSurvival, Survival, band
from cloud.verifier.policy.waiting import best_wait
from shared.draftport.messages import DropTape, Policy, PortDraft, Verified

SOURCES = 4096
"""Sources whose record is kept; the one not seen for longest is forgotten."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft for one stream's next positions."""

    tokens: list[int]
    source: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A step: what each stream verifies (those without an offer decode plainly), or until when to wait instead."""

    offers: Mapping[str, Offer] = field(default_factory=dict)
    until: float | None = None
    """Monotonic seconds; a draft that comes earlier is reason to plan again."""


@dataclass(slots=True)
class _Source:
    """What is known of whoever writes one tape, over all its streams."""

    responses: Responses = field(default_factory=Responses)
    survival: dict[int, Survival] = field(default_factory=dict)
    """By band of temperatures."""


class Book:
    """The draft side of the scheduler, without the engine: pure, driven by calls that carry the time."""

    def __init__(
        self, *, vocabulary: int, cost: StepCost | None = None, wait_price: float = 1.0, least_gain: float = 1.0
    ) -> None:
        """
        Args:
            vocabulary: number of real token ids. A larger id would index past the embedding and kill the engine.
            cost: what a step costs on this machine.
            wait_price: see `cloud.verifier.policy.waiting.best_wait`.
            least_gain: see `cloud.verifier.policy.budget.allocate`.
        """
        self._vocabulary = vocabulary
        self.cost = cost or StepCost()
        self._wait_price, self._least_gain = wait_price, least_gain
        self._streams: dict[str, Stream] = {}
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self.tally = Tally()

    def __contains__(self, stream: str) -> bool:
        return stream in self._streams

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, stream: str, gateway: str, committed: Sequence[int], temperature: float = 0.0) -> None:
        """Begins a stream; `committed` is the engine's own growing list of all its tokens."""
        shared = band(temperature)
        self._streams[stream] = Stream(
            stream=stream,
            gateway=gateway,
            committed=committed,
            lookup=PromptLookup(list(committed)),
            guesser=StreamSurvival(self._survival(LOOKUP, shared)),
            band=shared,
        )

    def close(self, stream: str) -> None:
        """Ends a stream and forgets its tapes."""
        self._streams.pop(stream, None)

    def gateway(self, stream: str) -> str:
        return self._streams[stream].gateway

    def committed(self, stream: str) -> Sequence[int]:
        return self._streams[stream].committed

    def receive(self, message: PortDraft | DropTape | Policy, came: float, last: float | None = None) -> None:
        """Takes a gateway's message in; what breaks a rule is counted and dropped.

        Args:
            message: several drafts that follow each other may be one.
            came: when it came, in monotonic seconds.
            last: when the last part of it came.
        """
        if isinstance(message, PortDraft):
            self.tally.messages += 1
            self.tally.received += len(message.tokens)
        stream = self._streams.get(message.stream)
        if stream is None:
            if isinstance(message, PortDraft):
                self.tally.unknown_stream += len(message.tokens)
            return
        match message:
            case PortDraft():
                self._draft(stream, message, came, came if last is None else last)
            case DropTape():
                stream.lines.pop(message.tape, None)
            case Policy():
                stream.wait_s = min(max(0.0, message.wait_ms / 1000), WAIT_LIMIT_S)
                stream.k = max(0, message.k)

    def _draft(self, stream: Stream, message: PortDraft, came: float, last: float) -> None:
        if message.pos < 0 or not all(0 <= token < self._vocabulary for token in message.tokens):
            self.tally.invalid += len(message.tokens)
            return
        line = stream.lines.get(message.tape)
        if line is None:
            if len(stream.lines) >= TAPES_PER_STREAM:
                self.tally.lost({Taken.OVERFLOW: len(message.tokens)})
                return
            line = stream.lines[message.tape] = self._line(stream, message.tape)
        self.tally.lost(stream.write(line, message.epoch, message.pos, message.tokens, came, last))

    def _line(self, stream: Stream, tape: str) -> Line:
        """A new tape's line; further candidates of a node, `<node>/<i>`, share what is known of the node."""
        node, slash, _ = tape.partition("/")
        known = stream.lines.get(node) if slash else None
        survival = known.survival if known else StreamSurvival(self._survival(node, stream.band))
        return Line(survival, self._sources[node].responses, main=not slash)

    def _survival(self, name: str, temperature: int) -> Survival:
        source = self._sources.setdefault(name, _Source())
        self._sources.move_to_end(name)
        if len(self._sources) > SOURCES:
            self._sources.popitem(last=False)
        prior = LOOKUP_PRIOR if name == LOOKUP else NODE_PRIOR
        return source.survival.setdefault(temperature, Survival(prior))

    def plan(self, limits: Mapping[str, int], others: int, now: float) -> Plan:
        """What the coming step does.

        Args:
            limits: for each stream that can take a draft, the most tokens of one.
            others: tokens that the step computes besides (prefill, requests without a stream).
            now: monotonic seconds.
        """
        streams = [self._streams[name] for name in limits]
        drafts = [stream.draft(limits[stream.stream]) for stream in streams]
        outlooks = [
            stream.outlook(draft, limits[stream.stream], now) for stream, draft in zip(streams, drafts, strict=True)
        ]
        wait, step = best_wait(outlooks, others, self.cost, self._wait_price, self._least_gain)
        if wait > 0:
            for stream, outlook in zip(streams, outlooks, strict=True):
                if outlook.first_in is not None and outlook.first_in <= wait and not stream.held:
                    stream.held = True
                    self.tally.holds += 1
            return Plan(until=now + wait)
        offers = {}
        for stream, draft, length in zip(streams, drafts, step.lengths, strict=True):
            self.tally.hold_misses += stream.hold_over()
            if draft and length:
                offers[stream.stream] = Offer(list(draft.tokens[:length]), draft.source)
        return Plan(offers)

    def commit(
        self,
        stream: str,
        pos: int,
        tokens: Sequence[int],
        *,
        draft: Sequence[int],
        source: str | None,
        step: int,
        step_ms: float,
        now: float,
    ) -> Verified:
        """Moves a stream past a step's tokens and says what to publish; see `Stream.commit`."""
        drafted = len(draft)
        verdict = self._streams[stream].commit(pos, tokens, draft, source, now)
        self.tally.request_steps += 1
        self.tally.scheduled += drafted
        self.tally.accepted += verdict.accepted
        self.tally.rejected += drafted - verdict.accepted
        if source == LOOKUP:
            self.tally.lookup_scheduled += drafted
            self.tally.lookup_accepted += verdict.accepted
        return Verified(
            stream=stream,
            pos=pos,
            tokens=tuple(tokens),
            drafted=drafted,
            accepted=verdict.accepted,
            source=source if drafted else None,
            baseline=verdict.baseline,
            step=step,
            step_ms=step_ms,
            epoch=verdict.epoch,
        )
