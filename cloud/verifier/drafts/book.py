"""All streams of one engine: takes messages from gateways, says what to draft or to wait for, counts."""

from collections.abc import Sequence
from dataclasses import dataclass

from cloud.verifier.drafts.lookup import PromptLookup
from cloud.verifier.drafts.stream import WAIT_LIMIT_S, Hold, Stream
from cloud.verifier.drafts.tally import Tally
from shared.draftport.messages import DropTape, Policy, PortDraft, Verified


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft for one stream's next positions."""

    tokens: list[int]
    source: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The stream sits out, at most until `deadline` (monotonic seconds)."""

    deadline: float


class Book:
    """The draft side of the scheduler, without the engine: pure, driven by calls that carry the time."""

    def __init__(self, *, vocabulary: int) -> None:
        """
        Args:
            vocabulary: number of real token ids. A larger id would index past the embedding and kill the engine.
        """
        self._vocabulary = vocabulary
        self._streams: dict[str, Stream] = {}
        self.tally = Tally()

    def __contains__(self, stream: str) -> bool:
        return stream in self._streams

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, stream: str, gateway: str, committed: Sequence[int]) -> None:
        """Begins a stream; `committed` is the engine's own growing list of all its tokens."""
        self._streams[stream] = Stream(
            stream=stream, gateway=gateway, committed=committed, lookup=PromptLookup(list(committed))
        )

    def close(self, stream: str) -> None:
        """Ends a stream and forgets its tapes."""
        self._streams.pop(stream, None)

    def gateway(self, stream: str) -> str:
        return self._streams[stream].gateway

    def committed(self, stream: str) -> Sequence[int]:
        return self._streams[stream].committed

    def receive(self, message: PortDraft | DropTape | Policy) -> None:
        """Takes a gateway's message in; what breaks a rule is counted and dropped."""
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
                if not self._valid(message):
                    self.tally.invalid += len(message.tokens)
                    return
                self.tally.lost(stream.write(message.tape, message.epoch, message.pos, message.tokens))
            case DropTape():
                stream.tapes.pop(message.tape, None)
            case Policy():
                stream.wait_s = min(max(0.0, message.wait_ms / 1000), WAIT_LIMIT_S)
                stream.k = max(0, message.k)

    def _valid(self, message: PortDraft) -> bool:
        return message.pos >= 0 and all(0 <= token < self._vocabulary for token in message.tokens)

    def next(self, stream: str, limit: int, now: float) -> Offer | Wait | None:
        """What the stream does in the coming step: verify a draft, sit out, or decode plainly.

        Args:
            stream: an open stream whose prompt has been computed.
            limit: most draft tokens that the request may still take.
            now: monotonic seconds.
        """
        state = self._streams[stream]
        best = state.draft(limit)
        match state.hold(len(best[1]) if best else 0, limit, now):
            case Hold.WAIT:
                if state.first_hold_here():
                    self.tally.holds += 1
                return Wait(state.deadline)
            case Hold.MISSED:
                self.tally.hold_misses += 1
            case Hold.NO:
                pass
        return Offer(best[1], best[0]) if best else None

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
