"""The broker: one object that holds who drafts for what, changed only by `handle`.

Nothing here waits, reads a clock or sends: time comes in as monotonic seconds, and what is to be sent goes
out as commands, in order. It is long for one file because every method changes the same four tables, which
must agree after each event; what needs none of them is in the modules beside it. A few rules to know when reading:

- A stream that was not registered by the HTTP side, or must not be seen by nodes, is never shown to a node.
- A node is asked for a stream with all tokens so far, and told every token after that, without a gap.
- When a node goes, its tape is dropped at the verifier and another free node takes the stream.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from cloud.api.broker import commands as do
from cloud.api.broker import events as ev
from cloud.api.broker.choice import choose, demand, explain, held_by_owner, market_demand, trade
from cloud.api.broker.conduct import Record, Records
from cloud.api.broker.counts import BrokerCounts
from cloud.api.broker.node import Node
from cloud.api.broker.settings import BrokerSettings
from cloud.api.broker.stream import Registration, Stream
from cloud.api.broker.tape import DraftFate, Tape, tape_id, tape_owner
from cloud.api.broker.work import Work
from cloud.api.market.reputation import Quarantine
from cloud.api.market.state import Market
from shared.errors import NexusError, RateLimited, TokenizerMismatch
from shared.ids import ModelName, NodeId, StreamId
from shared.wire.messages import DemandReason, ModelOffer, Receipt

Commands = list[do.Command]


class Broker:
    """`expected_verifiers`: how many endpoints are configured; while some are not attached, a node whose
    tokenizer matches none of the others may still be meant for one of them and is not refused. `market`: where drafts
    are paid; without one, nodes are chosen by how good they are, and what they did is counted all the same."""

    def __init__(
        self,
        settings: BrokerSettings,
        rng: random.Random,
        *,
        expected_verifiers: int = 1,
        market: Market | None = None,
    ) -> None:
        self.settings = settings
        self.market = market
        self.counts = BrokerCounts()
        self.nodes: dict[NodeId, Node] = {}
        self.verifiers: dict[str, ev.VerifierAttached] = {}
        self.streams: dict[StreamId, Stream] = {}
        self.registrations: dict[StreamId, Registration] = {}
        self.records = Records(settings)
        self._changed: set[NodeId] = set()
        """Nodes that may have to be told something else about their work than before."""
        self._rng = rng
        self._expected_verifiers = expected_verifiers

    def handle(self, event: ev.Event, now: float) -> Commands:
        """Apply one event at monotonic time `now` (seconds); gives what is to be done, in order."""
        out: Commands = []
        match event:
            case ev.NodeJoined():
                self._node_joined(event, now, out)
            case ev.NodeLeft(node):
                self._node_gone(node, now, out)
            case ev.NodeBroke(node):
                if found := self.nodes.get(node):
                    self._fault(found, now, out, weight=self.settings.break_faults)
            case ev.NodeHeld(node):
                if found := self.nodes.get(node):
                    self._held(found, now, out)
            case ev.NodeResumed(node):
                if found := self.nodes.get(node):
                    found.holding = False
                    self._sharing(node, True)
                    self._changed.add(node)
                    self._serve_waiting(now, out)
            case ev.NodeDraining(node):
                if found := self.nodes.get(node):
                    found.draining = True
                    self._sharing(node, False)
                    self._changed.add(node)
            case ev.NodeDraft():
                self._draft(event, now, out)
            case ev.NodeBeat(node, joules):
                self._beat(node, joules)
            case ev.VerifierAttached():
                self._verifier_attached(event, now, out)
            case ev.VerifierLost(endpoint):
                self._verifier_lost(endpoint, now, out)
            case ev.StreamRegistered(stream, policy, trace, shaped):
                self.registrations[stream] = Registration(stream, policy, trace, shaped)
            case ev.StreamReleased(stream):
                self._released(stream, now)
            case ev.StreamOpened():
                self._opened(event, now, out)
            case ev.StreamVerified():
                self._verified(event, now, out)
            case ev.StreamClosed(endpoint, stream_id, reason):
                ended = self.streams.get(stream_id)
                if ended is not None and ended.endpoint == endpoint:
                    self._end(ended, reason, now, out)
                    self._serve_waiting(now, out)
            case ev.Tick():
                self._tick(now, out)
            case ev.MinuteBegan(at):
                self._minute(at, now, out)
            case ev.BookChanged(book):
                if self.market is not None:
                    self.market.reprice(book)
            case ev.RecordsLoaded():
                self._loaded(event, now)
            case ev.SharesSettled(shares):
                if self.market is not None:
                    for share in shares:
                        self.market.paid(share.work.node, share.amount)
            case _:
                assert_never(event)
        self._demands(out)
        return out

    def tokenizer_mismatch(self, models: Iterable[ModelOffer]) -> TokenizerMismatch | None:
        """Why a node with these models can draft for no target here; none while a verifier is missing."""
        offered = {model.fingerprint for model in models}
        served = {verifier.fingerprint for verifier in self.verifiers.values()}
        if not served or len(self.verifiers) < self._expected_verifiers or offered & served:
            return None
        return TokenizerMismatch(
            f"The node's draft models have the tokenizer fingerprints {_listed(offered)}; the target models "
            f"served here have {_listed(served)}. Choose a draft model that shares a target's tokenizer."
        )

    # --- nodes ---------------------------------------------------------------------------------

    def _node_joined(self, event: ev.NodeJoined, now: float, out: Commands) -> None:
        self._node_gone(event.node, now, out)
        record = self.records.of(event.node, now)
        if record.refused(now):
            out.append(do.RejectNode(event.node, RateLimited(record.refusal(now))))
            return
        if not record.joins.spend(now):
            self._refuse(
                event.node, record, "This node connected too often in a short time. Check its network.", now, out
            )
            return
        if mismatch := self.tokenizer_mismatch(event.models):
            self._reject(event.node, mismatch, out)
            return
        self.nodes[event.node] = Node(event.node, event.models, max(event.streams, 1), self.settings, record)
        if self.market is not None:
            self.market.joined(event.node, event.owner, max(event.streams, 1), event.ask)
        self._changed.add(event.node)
        self._serve_waiting(now, out)

    def _node_gone(self, node_id: NodeId, now: float, out: Commands) -> None:
        if node := self.nodes.pop(node_id, None):
            node.record.seen = now
            self._take_streams(node, None, now, out, kept=node.draining)
            if self.market is not None:
                self.market.gone(node_id)

    def _take_streams(self, node: Node, reason: str | None, now: float, out: Commands, *, kept: bool = True) -> None:
        """Others take over all streams of the node; without a reason the node is gone, and not told. `kept`: it gave
        them back in order."""
        taken = [self.streams[stream_id] for stream_id in sorted(node.open)]
        for stream in taken:
            if self.market is not None:
                self.market.reputation(node.node, stream.model).left(kept=kept)
            tape = self._unassign(node.node, stream, now, out)
            if reason is not None:
                self._tell_closed(node.node, stream, tape, reason, out)
        for stream in taken:
            self._assign(stream, self.settings.tapes_per_stream, now, out)
            self._policy(stream, out)

    def _unassign(self, node_id: NodeId, stream: Stream, now: float, out: Commands) -> Tape:
        tape = stream.tapes.pop(node_id)
        if node := self.nodes.get(node_id):
            node.open.discard(stream.stream)
            self._changed.add(node_id)
            owed_since = tape.owed_since()
            waited_ms = 0.0 if owed_since is None else (now - owed_since) * 1_000.0
            if waited_ms > self.settings.max_hold_ms:
                # An answer that never came counts as well: else a silent node would look prompt for ever.
                self._responded(node, stream, waited_ms)
        for candidate in (0, *sorted(tape.candidates)):
            out.append(do.DropTape(stream.endpoint, stream.stream, tape_id(node_id, candidate)))
        return tape

    def _reject(self, node: NodeId, error: NexusError, out: Commands) -> None:
        self.counts.nodes_refused += 1
        out.append(do.RejectNode(node, error))

    def _refuse(self, node: NodeId, record: Record, why: str, now: float, out: Commands) -> None:
        """Turn the node away for a time. `why`: whole sentences for its owner."""
        words = record.refuse(why, now)
        self._node_gone(node, now, out)
        self._reject(node, RateLimited(words), out)

    def _fault(self, node: Node, now: float, out: Commands, *, weight: int = 1) -> None:
        self.counts.drafts_invalid += 1
        if not node.record.faults.spend(now, weight):
            why = (
                "This node sent too many invalid drafts (token ids outside the target's vocabulary, more tokens than "
                "asked for, impossible positions, or streams that are not its own). Update its software, or check "
                "its draft model."
            )
            self._refuse(node.node, node.record, why, now, out)

    def _excess(self, node: Node, now: float, out: Commands) -> None:
        self.counts.drafts_excess += 1
        if not node.record.excess.spend(now):
            why = "This node sent far more drafts than it was asked for. Update its software."
            self._refuse(node.node, node.record, why, now, out)

    def _held(self, node: Node, now: float, out: Commands) -> None:
        if not node.holding and not node.record.pauses.spend(now):
            why = "This node paused and resumed too often in a short time. Let it wait longer before it resumes."
            self._refuse(node.node, node.record, why, now, out)
            return
        node.holding = True
        self._sharing(node.node, False)
        self._changed.add(node.node)
        self._take_streams(node, "held", now, out)

    def _compared(
        self, node: Node, stream: Stream, agreed: int, missed: bool, baseline: int, now: float, out: Commands
    ) -> None:
        """The target's choice met what the node had drafted, in time, for the same positions."""
        if stream.registration.shaped or not (agreed or missed):
            return
        if self.market is not None:
            self.market.reputation(node.node, stream.model).compared(agreed, missed=missed, baseline=baseline)
        misses = stream.misses.get(node.node, 0)
        node.record.compared(agreed, missed=missed, counts=misses < self.settings.stream_misses, now=now)
        if missed:
            stream.misses[node.node] = misses + 1
        self._changed.add(node.node)
        if node.record.worthless(now):
            why = (
                f"The target model agreed with only {node.record.shares()}, so drafting with it costs more than it "
                "gives. Any model with this tokenizer does better: check that the right draft model is loaded whole, "
                "and update the software."
            )
            self._refuse(node.node, node.record, why, now, out)
        elif self.market is not None and self.market.failed(node.node, stream.model):
            why = (
                "After a long trial this node's drafts are still no better than prompt lookup, which is free. Check "
                "that its draft model is loaded whole, or choose a better one."
            )
            self._refuse(node.node, node.record, why, now, out)

    def _draft(self, event: ev.NodeDraft, now: float, out: Commands) -> None:
        node = self.nodes.get(event.node)
        stream = self.streams.get(event.stream)
        tape = stream.tapes.get(event.node) if stream is not None else None
        if node is None or stream is None or tape is None:
            self.counts.drafts_unassigned += 1
            return
        verifier = self.verifiers[stream.endpoint]
        end = event.pos + len(event.tokens)
        if (
            not event.tokens
            or event.pos < stream.prompt
            or event.epoch < 0
            or not 0 <= event.candidate < self.settings.candidates
            or end - len(stream.tokens) > self._ahead(stream)
            or not all(0 <= token < verifier.vocabulary for token in event.tokens)
        ):
            self._fault(node, now, out)
            return
        tape.allowance -= len(event.tokens)
        if tape.allowance < 0:
            self._excess(node, now, out)
            return
        if work := stream.registration.work.get(event.node):
            work.sent += len(event.tokens)
        if self.market is not None:
            self.market.traders[event.node].meter.drafted(len(event.tokens))
        line = tape.line(event.candidate, now)
        fate, response_ms = line.draft(event.epoch, event.pos, event.tokens, stream.tokens, now)
        match fate:
            case DraftFate.USABLE:
                self.counts.drafts_forwarded += 1
                out.append(
                    do.ForwardDraft(
                        stream.endpoint,
                        stream.stream,
                        tape_id(event.node, event.candidate),
                        event.epoch,
                        event.pos,
                        event.tokens,
                    )
                )
            case DraftFate.LATE:
                self.counts.drafts_late += 1
            case DraftFate.STALE:
                self.counts.drafts_stale += 1
            case DraftFate.GAP if event.candidate:
                self.counts.drafts_stale += 1
            case DraftFate.GAP:
                lost = self._unassign(node.node, stream, now, out)
                self._tell_closed(node.node, stream, lost, "gap", out)
                self._open(node, stream, now, out)
                self._fault(node, now, out)
                return
            case _:
                assert_never(fate)
        if response_ms is not None and line is tape:
            self._responded(node, stream, response_ms)

    def _responded(self, node: Node, stream: Stream, response_ms: float) -> None:
        node.responded(response_ms)
        self._changed.add(node.node)
        if self.market is not None:
            self.market.reputation(node.node, stream.model).responded(response_ms)

    def _sharing(self, node: NodeId, sharing: bool) -> None:
        if self.market is not None and (trader := self.market.traders.get(node)):
            trader.sharing = sharing

    def _beat(self, node: NodeId, joules: float | None) -> None:
        if self.market is None or (trader := self.market.traders.get(node)) is None:
            return
        drawn = trader.meter.read(joules)
        if joules is not None:
            tally = self.market.tally(node)
            tally.joules = (tally.joules or 0.0) + drawn

    # --- verifiers -----------------------------------------------------------------------------

    def _verifier_attached(self, event: ev.VerifierAttached, now: float, out: Commands) -> None:
        if event.endpoint in self.verifiers:
            self._verifier_lost(event.endpoint, now, out)
        self.verifiers[event.endpoint] = event
        self._changed.update(self.nodes)
        for node in list(self.nodes.values()):
            if mismatch := self.tokenizer_mismatch(node.models):
                self._node_gone(node.node, now, out)
                self._reject(node.node, mismatch, out)

    def _verifier_lost(self, endpoint: str, now: float, out: Commands) -> None:
        if self.verifiers.pop(endpoint, None) is None:
            return
        self._changed.update(self.nodes)
        for stream in [s for s in self.streams.values() if s.endpoint == endpoint]:
            self._end(stream, "verifier_lost", now, out)
        self._serve_waiting(now, out)

    # --- streams -------------------------------------------------------------------------------

    def registration(self, stream: StreamId) -> Registration | None:
        """The request that this stream is a choice of."""
        if found := self.registrations.get(stream):
            return found
        base, slash, choice = stream.rpartition("/")
        return self.registrations.get(StreamId(base)) if slash and choice.isdecimal() else None

    def _released(self, stream_id: StreamId, now: float) -> None:
        registration = self.registrations.pop(stream_id, None)
        for choice in registration.open if registration is not None else ():
            self.streams[choice].released = True
            self.streams[choice].last_seen = now

    def _opened(self, event: ev.StreamOpened, now: float, out: Commands) -> None:
        stream = self.streams.get(event.stream)
        if stream is not None and stream.endpoint == event.endpoint and self._adopt(stream, event, now, out):
            return
        registration = self.registration(event.stream) if stream is None else stream.registration
        if stream is not None:
            self._end(stream, "reopened", now, out)
        verifier = self.verifiers.get(event.endpoint)
        if registration is None or verifier is None:
            self.counts.streams_unregistered += 1
            return
        self.counts.streams_opened += 1
        registration.opened += 1
        registration.open.add(event.stream)
        if event.stream == registration.stream:
            registration.seed = event.seed
        registration.prompt_tokens = event.prompt
        stream = Stream(
            stream=event.stream,
            endpoint=event.endpoint,
            model=verifier.model,
            registration=registration,
            tokens=list(event.tokens),
            prompt=event.prompt,
            sampling=event.sampling,
            seed=event.seed,
            draftable=event.draftable and registration.policy.nodes(self.settings),
            last_seen=now,
            released=self.registration(event.stream) is None,
            canary=self.market is not None and self.market.canary(),
        )
        self.streams[event.stream] = stream
        self._assign(stream, self.settings.tapes_per_stream, now, out)
        self._policy(stream, out)

    def _adopt(self, stream: Stream, event: ev.StreamOpened, now: float, out: Commands) -> bool:
        """Catch up with the verifier's account of a known stream; false when it is another stream by now."""
        known = len(stream.tokens)
        if list(event.tokens[:known]) != stream.tokens:
            return False
        stream.resync_sent = None
        stream.last_seen = now
        if missed := event.tokens[known:]:
            stream.registration.committed(stream.stream, len(missed), 0, 0, steps=0)
            self.counts.output_tokens += len(missed)
            self._commit(stream, missed, now, out)
        return True

    def _verified(self, event: ev.StreamVerified, now: float, out: Commands) -> None:
        stream = self.streams.get(event.stream)
        if stream is None:
            if event.endpoint in self.verifiers and self.registration(event.stream) is not None:
                self.counts.resyncs += 1
                out.append(do.RequestResync(event.endpoint, event.stream))
            return
        if stream.endpoint != event.endpoint:
            return
        stream.last_seen = now
        if stream.resync_sent is not None:
            return
        if event.pos != len(stream.tokens):
            self._resync(stream, now, out)
            return
        source, candidate = tape_owner(event.source) if event.source else (None, 0)
        if event.drafted and source is not None:
            self._worked(source, stream, event)
            if tape := stream.tapes.get(source):
                tape.drafted += event.drafted
                tape.accepted += event.accepted
        for node_id, tape in list(stream.tapes.items()):
            agreed, missed = tape.agreement(event.tokens)
            if self.market is not None:
                self.market.reputation(node_id, stream.model).due(met=bool(agreed or missed))
            if event.drafted and node_id == source:
                # An answer may end inside a draft: what was drafted behind its end is neither right nor wrong.
                # A candidate is a long shot: that it misses says nothing against its node.
                agreed = event.accepted
                missed = not candidate and agreed < min(event.drafted, len(event.tokens))
            self._compared(self.nodes[node_id], stream, agreed, missed, event.baseline, now, out)
        stream.registration.committed(stream.stream, len(event.tokens), event.drafted, event.accepted)
        self.counts.drafted_tokens += event.drafted
        self.counts.accepted_tokens += event.accepted
        self.counts.runner_up_tokens += event.accepted if candidate else 0
        self.counts.output_tokens += len(event.tokens)
        self.counts.verify_steps += 1
        self.counts.baseline_tokens += event.baseline
        if self.market is not None and event.step_ms > 0:
            self.market.floor(stream.model).step(
                event.endpoint,
                event.step,
                round(event.step_ms * 1e6),
                event.drafted,
                event.accepted,
                event.baseline,
            )
        if event.tokens:
            self._commit(stream, event.tokens, now, out)

    def _worked(self, source: NodeId, stream: Stream, event: ev.StreamVerified) -> None:
        """A draft of this node was checked. It may be gone by now: its work counts all the same."""
        work = stream.registration.work.get(source)
        if work is None:
            return
        change = work.verified(event.pos, len(event.tokens), event.drafted, event.accepted, event.baseline)
        self.counts.marginal_tokens += max(change, 0)
        if self.market is None:
            return
        self.market.reputation(source, stream.model).verified(event.drafted, event.accepted, change)
        tally = self.market.tally(source)
        tally.drafted += event.drafted
        tally.accepted += event.accepted
        tally.marginal += change
        if trader := self.market.traders.get(source):
            trader.meter.accepted(event.accepted)
            if (joules := trader.meter.per_token) is not None:
                stream.registration.joules_per_token[source] = joules

    def _commit(self, stream: Stream, tokens: tuple[int, ...], now: float, out: Commands) -> None:
        pos = len(stream.tokens)
        stream.tokens.extend(tokens)
        for node_id, tape in stream.tapes.items():
            response_ms = tape.advance(tokens, now)
            if response_ms is not None and (node := self.nodes.get(node_id)):
                self._responded(node, stream, response_ms)
            tape.allowance += self._allowance(stream, len(tokens))
            out.append(do.AdvanceStream(node_id, stream.stream, tape.epoch, pos, tokens))

    def _resync(self, stream: Stream, now: float, out: Commands) -> None:
        stream.resync_sent = now
        self.counts.resyncs += 1
        out.append(do.RequestResync(stream.endpoint, stream.stream))

    def _end(self, stream: Stream, reason: str, now: float, out: Commands, *, drop_tapes: bool = False) -> None:
        """Forget a stream: its nodes are told, its request keeps the figures."""
        for node_id in list(stream.tapes):
            if self.market is not None:
                self.market.reputation(node_id, stream.model).left(kept=True)
            tape = self._unassign(node_id, stream, now, out if drop_tapes else [])
            self._tell_closed(node_id, stream, tape, reason, out)
        stream.registration.open.discard(stream.stream)
        del self.streams[stream.stream]

    def _tell_closed(self, node: NodeId, stream: Stream, tape: Tape, reason: str, out: Commands) -> None:
        receipt = Receipt(drafted=tape.drafted, accepted=tape.accepted)
        out.append(do.CloseStream(node, stream.stream, reason, receipt))

    # --- who drafts for what -------------------------------------------------------------------

    def _k(self, stream: Stream) -> int:
        """Longest draft of the stream that a verification takes; 0 = it wants none."""
        return stream.registration.policy.k(min(self.settings.k, self.verifiers[stream.endpoint].k))

    def _ahead(self, stream: Stream) -> int:
        return self.settings.ahead if self.settings.ahead is not None else 4 * self._k(stream)

    def _allowance(self, stream: Stream, committed: int) -> float:
        """Draft tokens that a step, or an opening, gives a node reason to send."""
        return self.settings.excess_factor * self.settings.candidates * (self._ahead(stream) + committed)

    def _candidate(self, stream: Stream) -> Node | None:
        """The node to ask next."""
        verifier = self.verifiers[stream.endpoint]
        others = (node for node in self.nodes.values() if node.node not in stream.tapes)
        if self.market is None:
            return choose(others, verifier.fingerprint, self.settings.good_share, self._rng)
        return trade(
            others,
            verifier.fingerprint,
            verifier.model,
            self.market,
            held_by_owner(self.nodes.values(), self.market),
            k=self._k(stream),
            canary=stream.canary,
            rng=self._rng,
        )

    def _assign(self, stream: Stream, wanted: int, now: float, out: Commands) -> None:
        """Open the stream at free nodes until `wanted` of them draft for it."""
        if not stream.draftable or len(stream.tokens) > self.settings.max_open_tokens:
            return
        while len(stream.tapes) < wanted and (node := self._candidate(stream)):
            self._open(node, stream, now, out)

    def _replacement(self, stream: Stream) -> Node | None:
        return self._candidate(stream) if len(stream.tokens) <= self.settings.max_open_tokens else None

    def _open(self, node: Node, stream: Stream, now: float, out: Commands) -> None:
        verifier = self.verifiers[stream.endpoint]
        node.open.add(stream.stream)
        self._changed.add(node.node)
        stream.tapes[node.node] = tape = Tape.opened(len(stream.tokens), self._k(stream), now)
        tape.allowance = self._allowance(stream, 0)
        stream.registration.seen_by_nodes = True
        tape.trial = self._employ(node.node, stream)
        out.append(
            do.OpenStream(
                node=node.node,
                stream=stream.stream,
                model=verifier.model,
                fingerprint=verifier.fingerprint,
                tokens=tuple(stream.tokens),
                sampling=stream.sampling,
                seed=stream.seed,
                k=self._k(stream),
                ahead=self._ahead(stream),
                candidates=self.settings.candidates,
            )
        )

    def _employ(self, node: NodeId, stream: Stream) -> bool:
        """Note on what terms the node works for this request: those of its first stream. True when it is on trial."""
        work = stream.registration.work.setdefault(node, Work(node))
        if self.market is None:
            return False
        model = stream.model
        proven = self.market.proven(node, model)
        tally = self.market.tally(node)
        tally.owner = work.owner = self.market.traders[node].owner
        tally.streams = max(tally.streams, len(self.nodes[node].open))
        if proven and work.first is None and not work.sent:
            work.price, work.price_version = self.market.spot(model).price, self.market.version(model)
        return not proven

    def _serve_waiting(self, now: float, out: Commands) -> None:
        """A slot is free: streams that no node drafts for may have it."""
        if not any(node.available for node in self.nodes.values()):
            return
        nobody: set[str] = set()
        """Endpoints for whose streams there is no node: what one is not given, no other is."""
        for stream in self.streams.values():
            if not stream.tapes and stream.endpoint not in nobody:
                self._assign(stream, 1, now, out)
                self._policy(stream, out)
                if stream.draftable and not stream.tapes and len(stream.tokens) <= self.settings.max_open_tokens:
                    nobody.add(stream.endpoint)

    def _policy(self, stream: Stream, out: Commands) -> None:
        """Tell the verifier how long the stream may wait, when that changed: not at all while nobody drafts for it."""
        policy = stream.registration.policy
        awaited = any(not tape.trial for tape in stream.tapes.values())
        wait_ms = policy.wait_ms(self.settings) if awaited else 0.0
        if wait_ms != stream.wait_ms:
            stream.wait_ms = wait_ms
            out.append(do.SetPolicy(stream.endpoint, stream.stream, wait_ms, self._k(stream)))

    def _targets(self) -> dict[ModelName, str]:
        """Fingerprint of each model that is served."""
        return {verifier.model: verifier.fingerprint for verifier in self.verifiers.values()}

    def _demands(self, out: Commands) -> None:
        if not self._changed:
            return
        targets = self._targets()
        for node in [self.nodes[node_id] for node_id in sorted(self._changed & self.nodes.keys())]:
            if self.market is None:
                reason = demand(node, targets.values())
                words = explain(node, reason) if reason is not node.demand else ""
            else:
                reason, words = market_demand(node, targets, self.market)
                self.market.tally(node.node).explain(reason, words)
            if reason is not node.demand:
                node.demand = reason
                out.append(do.SendDemand(node.node, reason, words))
        self._changed.clear()

    # --- the market ----------------------------------------------------------------------------

    def _loaded(self, event: ev.RecordsLoaded, now: float) -> None:
        if self.market is not None:
            self.market.restore(event.standings)
        for each in event.quarantines:
            self.records.restore(each.node, now + each.until - event.at, each.refusals, each.why, now)

    def _minute(self, at: int, now: float, out: Commands) -> None:
        if self.market is None:
            return
        targets = self._targets()
        for node in self.nodes.values():
            tally = self.market.tally(node.node)
            tally.owner = self.market.traders[node.node].owner
            tally.streams = max(tally.streams, len(node.open))
            tally.explain(*market_demand(node, targets, self.market))
        quarantines = tuple(
            Quarantine(node, int(at + record.refused_until - now), record.refusals, record.why)
            for node, record in self.records.refusals()
            if record.refused(now)
        )
        report = self.market.end_minute(at)
        out.append(do.RecordMinute(replace(report, quarantines=quarantines)))
        self._changed.update(self.nodes)
        self._serve_waiting(now, out)

    def _sample_demand(self) -> None:
        if self.market is None:
            return
        wanted = Counter(stream.model for stream in self.streams.values() if stream.draftable)
        for model in {verifier.model for verifier in self.verifiers.values()}:
            self.market.floor(model).sample(wanted[model])

    # --- time ----------------------------------------------------------------------------------

    def _tick(self, now: float, out: Commands) -> None:
        self.records.forget(self.nodes, now)
        self._sample_demand()
        for node in self.nodes.values():
            if node.demand is DemandReason.LOW_ACCEPTANCE:
                # What was measured of it fades, so that it is tried again.
                node.record.age(now)
                self._changed.add(node.node)
        for stream in list(self.streams.values()):
            if stream.released and now - stream.last_seen > self.settings.orphan_s:
                self.counts.streams_orphaned += 1
                self._end(stream, "orphaned", now, out, drop_tapes=True)
                continue
            if stream.resync_sent is not None and now - stream.resync_sent > self.settings.resync_again_s:
                self._resync(stream, now, out)
            for node_id, tape in list(stream.tapes.items()):
                owed_since = tape.owed_since()
                if owed_since is not None and now - owed_since > self.settings.silent_after_s:
                    self._replace(node_id, stream, "silent", self._replacement(stream), now, out)
                elif poor := self.nodes[node_id].poor:
                    other = self._replacement(stream)
                    better = other if other is not None and other.poor is None else None
                    self._replace(node_id, stream, poor.value, better, now, out)
        self._serve_waiting(now, out)

    def _replace(
        self, node_id: NodeId, stream: Stream, reason: str, other: Node | None, now: float, out: Commands
    ) -> None:
        """Give the stream of a silent or poor node to another one, if there is one."""
        if other is None:
            return
        self.counts.nodes_demoted += 1
        tape = self._unassign(node_id, stream, now, out)
        self._tell_closed(node_id, stream, tape, reason, out)
        self._open(other, stream, now, out)
        self._policy(stream, out)


def _listed(fingerprints: set[str]) -> str:
    return ", ".join(sorted(fingerprints)) or "(none)"
