"""The verifier's own policy in virtual time: traced nodes, a table of step costs, no model.

Everything that decides (tapes, survival, slots, waiting) is the product's code, `cloud.verifier.drafts.book`; only the
forward pass is replaced by its duration and the recorded answer. It serves two questions that no machine at hand can
answer: what a GPU with a known step-cost table would gain at many streams, and how a change of policy does in all cells
at once, in seconds.
"""

import argparse
import heapq
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from cloud.verifier.drafts.book import Book
from cloud.verifier.policy.cost import StepCost
from shared.draftport.messages import Policy, PortDraft

HERE = Path(__file__).resolve().parent
H100 = HERE / "data/step-cost-2xh100-70b-fp8.json"
"""A 70B model in FP8 on two H100: 18.9 ms for a step of one request as published for Llama-3.3-70B (NVIDIA NIM 1.8.0,
500 in, 2000 out), and 0.09 ms for each further token, which is the slope of the inter-token latency from 1 to 200
requests as published for Llama-3.1-70B (NIM 1.3.0; it includes reading each request's KV cache, so it is too high for
draft tokens, which share their request's). Source: docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance."""
LEAST_GAIN = 1.05
"""As the default of `nexus verifier serve --least-gain`."""
VOCABULARY = 1 << 20
WRONG = VOCABULARY - 1
"""A token that no answer holds."""
BRANCH_MARGIN = 1.5
"""A second candidate is drafted where the best token leads the next by no more than this (scaled, noised logits)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One recorded answer: the target's tokens and what the draft model guesses at each, given those before it."""

    tokens: Sequence[int]
    guesses: Sequence[int]
    runners_up: Sequence[int] = ()
    margins: Sequence[float] = ()
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """A node and the way to it."""

    rtt_s: float
    per_token_s: float
    """Seconds per drafted token of one stream; streams are batched."""
    ahead: int = 32
    dies_after_s: float = float("inf")
    late_by_s: float = 0.0
    """Added to every draft."""
    candidates: int = 1
    branch: int = 8
    """Tokens of a second candidate behind its branch."""


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    tokens: int = 0
    seconds: float = 0.0
    busy_s: float = 0.0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    speeds: list[float] = field(default_factory=list)
    """Tokens per second of each request, after its first token."""


@dataclass(slots=True)
class _Line:
    """A node's guessing for one stream."""

    answer: Answer
    known: int
    """Committed tokens that the node knows of."""
    next: int
    epoch: int = 0
    right: bool = True
    """All guesses from `known` on are the target's, so far."""
    generation: int = 0
    """Drafting steps under way of an older one are void."""
    branch: tuple[int, int] | None = None
    branch_epoch: int = 0
    branch_drafted: int = 0


class World:
    """Events in virtual time around one verifier."""

    def __init__(
        self,
        answers: Sequence[Answer],
        concurrency: int,
        requests: int,
        profile: Mapping[int, float],
        link: Link | None,
        *,
        k: int = 8,
        price: float = 1.0,
        wait_s: float = 10.0,
    ) -> None:
        self._answers = answers
        self._cost = StepCost(profile)
        self._book = Book(vocabulary=VOCABULARY, cost=StepCost(profile), wait_price=price, least_gain=LEAST_GAIN)
        self._link = link
        self._k, self._wait_s = k, wait_s
        self._requests = iter(range(requests))
        self._concurrency = concurrency
        self._now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._committed: dict[str, list[int]] = {}
        self._running: dict[str, tuple[Answer, float]] = {}
        self._lines: dict[str, _Line] = {}
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Until every request is answered."""
        for _ in range(self._concurrency):
            self._start()
        while self._running:
            self._deliver()
            limits = {
                name: min(self._k, len(answer.tokens) - len(self._committed[name]) - 1)
                for name, (answer, _) in self._running.items()
            }
            ready = {name: limit for name, limit in limits.items() if limit > 0}
            plan = self._book.plan(ready, len(limits) - len(ready), self._now)
            if plan.until is not None:
                self._now = min(plan.until, self._events[0][0] if self._events else plan.until)
                continue
            slots = sum(len(offer.tokens) for offer in plan.offers.values())
            seconds = self._cost.seconds(len(self._running) + slots)
            self._now += seconds
            self.outcome.busy_s += seconds
            self.outcome.steps += 1
            # What came during the forward pass is received after it, as in the engine.
            for name in list(self._running):
                offer = plan.offers.get(name)
                self._commit(name, offer.tokens if offer else (), offer.source if offer else None, seconds)
        self.outcome.seconds = self._now
        return self.outcome

    def _start(self) -> None:
        index = next(self._requests, None)
        if index is None:
            return
        name = f"s{index}"
        answer = self._answers[index % len(self._answers)]
        committed = self._committed[name] = [answer.tokens[0]]
        self._book.open(name, "g", committed, answer.temperature)
        self._book.receive(Policy(stream=name, wait_ms=self._wait_s * 1000, k=self._k), self._now)
        self._book._streams[name].committed_at = self._now
        self._running[name] = (answer, self._now)
        if self._link is not None:
            self._lines[name] = _Line(answer, 1, 1)
            self._at(self._now + self._link.rtt_s / 2, lambda: self._draft(name, 0))

    def _commit(self, name: str, draft: Sequence[int], source: str | None, seconds: float) -> None:
        answer, began = self._running[name]
        committed = self._committed[name]
        pos = len(committed)
        accepted = 0
        while accepted < len(draft) and draft[accepted] == answer.tokens[pos + accepted]:
            accepted += 1
        tokens = list(answer.tokens[pos : pos + accepted + 1])
        committed += tokens
        self._book.commit(name, pos, tokens, draft=draft, source=source, step=0, step_ms=seconds * 1000, now=self._now)
        out = self.outcome
        out.tokens += len(tokens)
        out.drafted += len(draft)
        out.accepted += accepted
        if len(committed) == len(answer.tokens):
            out.speeds.append((len(committed) - 1) / (self._now - began))
            self._book.close(name)
            del self._running[name]
            self._lines.pop(name, None)
            self._start()
        elif self._link is not None:
            end = len(committed)
            self._at(self._now + self._link.rtt_s / 2, lambda: self._advance(name, end))

    # --- the node ----------------------------------------------------------------------------

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), what))

    def _deliver(self) -> None:
        while self._events and self._events[0][0] <= self._now:
            when, _, what = heapq.heappop(self._events)
            present, self._now = self._now, when
            what()
            self._now = present

    def _draft(self, name: str, generation: int) -> None:
        """One token is begun; it is there after a token's time, and at the verifier after the way."""
        line = self._lines.get(name)
        link = self._link
        assert link is not None
        if line is None or line.generation != generation or self._now > link.dies_after_s:
            return
        if line.next >= min(line.known + link.ahead, len(line.answer.tokens)):
            line.generation += 1
            return
        self._at(self._now + link.per_token_s, lambda: self._drafted(name, generation))

    def _drafted(self, name: str, generation: int) -> None:
        line = self._lines.get(name)
        link = self._link
        assert link is not None
        if line is None or line.generation != generation or line.next >= len(line.answer.tokens):
            return
        pos = line.next
        token = line.answer.guesses[pos] if line.right else WRONG
        line.right = line.right and token == line.answer.tokens[pos]
        line.next += 1
        self._send(name, "n", line.epoch, pos, (token,))
        if link.candidates > 1 and line.answer.margins:
            self._branch(name, line)
        self._draft(name, generation)

    def _branch(self, name: str, line: _Line) -> None:
        """Drafts the runner-up of the least certain of the positions that are not verified, and a few tokens on."""
        answer, link = line.answer, self._link
        assert link is not None
        outstanding = range(line.known, line.next)
        if line.branch is not None or len(outstanding) < self._k:
            return
        least = min(outstanding, key=lambda pos: answer.margins[pos])
        if answer.margins[least] > BRANCH_MARGIN:
            return
        line.branch = (line.known, least)
        line.branch_epoch += 1
        line.branch_drafted = 0
        epoch = line.branch_epoch
        start, first_wrong = (
            line.known,
            next((pos for pos in outstanding if answer.guesses[pos] != answer.tokens[pos]), line.next),
        )
        tokens = [answer.guesses[pos] if pos <= first_wrong else WRONG for pos in range(start, least)]
        right = first_wrong >= least and answer.runners_up[least] == answer.tokens[least]
        tokens.append(answer.runners_up[least] if first_wrong >= least else WRONG)
        self._send(name, "n/1", epoch, start, tuple(tokens))
        for ahead in range(1, link.branch + 1):
            pos = least + ahead
            if pos >= len(answer.tokens):
                break
            token = answer.guesses[pos] if right else WRONG
            right = right and token == answer.tokens[pos]

            def send(pos: int = pos, token: int = token) -> None:
                if line.branch_epoch == epoch:
                    line.branch_drafted += 1
                    self._send(name, "n/1", epoch, pos, (token,))

            self._at(self._now + ahead * link.per_token_s, send)

    def _send(self, name: str, tape: str, epoch: int, pos: int, tokens: tuple[int, ...]) -> None:
        message = PortDraft(stream=name, tape=tape, epoch=epoch, pos=pos, tokens=tokens)
        link = self._link
        assert link is not None

        def arrive() -> None:
            self._book.receive(message, self._now)

        self._at(self._now + link.rtt_s / 2 + link.late_by_s, arrive)

    def _advance(self, name: str, end: int) -> None:
        """The node hears of the target's tokens; it goes on from what is right, in its main line or in a candidate."""
        line = self._lines.get(name)
        if line is None:
            return
        answer, known = line.answer, line.known
        line.known = max(known, end)
        if (
            line.branch is not None
            and line.branch[1] < line.known
            and line.answer.guesses[line.branch[1]] == (line.answer.tokens[line.branch[1]])
        ):
            line.branch = None
        first_wrong = next(
            (pos for pos in range(known, min(line.next, line.known)) if answer.guesses[pos] != answer.tokens[pos]), None
        )
        if first_wrong is None and line.next >= line.known:
            line.generation += 1
            self._draft(name, line.generation)
            return
        line.generation += 1
        line.next, line.right = line.known, True
        if first_wrong is not None:
            line.epoch += 1
            line.branch_epoch += 1
            self._adopt(name, line, first_wrong)
            line.branch = None
        self._draft(name, line.generation)

    def _adopt(self, name: str, line: _Line, first_wrong: int) -> None:
        """Takes over what a candidate has that left the main line where the target did."""
        answer = line.answer
        if line.branch is None or line.branch[1] != first_wrong:
            return
        if answer.runners_up[first_wrong] != answer.tokens[first_wrong]:
            return
        drafted = first_wrong + 1 + line.branch_drafted
        tokens = []
        for pos in range(line.known, min(drafted, len(answer.tokens))):
            tokens.append(answer.guesses[pos] if line.right else WRONG)
            line.right = line.right and tokens[-1] == answer.tokens[pos]
        line.next = max(line.known, line.known + len(tokens))
        if tokens:
            self._send(name, "n", line.epoch, line.known, tuple(tokens))


def load(path: Path, temperature: float) -> list[Answer]:
    """The recorded answers at one temperature."""
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    return [
        Answer(row["tokens"], row["guess"], row.get("runner_up", ()), row.get("margin", ()), row["temperature"])
        for row in rows
        if row["temperature"] == temperature
    ]


@dataclass(frozen=True, slots=True)
class Gain:
    """Nexus against plain decoding in one cell, as ratios."""

    concurrency: int
    rtt_s: float
    throughput: float
    """Total tokens per second."""
    busy: float
    """Verifier busy time per token."""
    speed: float
    """Tokens per second of a request, mean over requests."""
    per_step: float
    """Tokens committed per step, all streams together."""
    acceptance: float


def gain(
    answers: Sequence[Answer], concurrency: int, profile: Mapping[int, float], link: Link, price: float = 0.5
) -> Gain:
    """Runs the same requests with nodes and without."""
    requests = max(4 * concurrency, 2 * len(answers))  # the tail, when fewer run than may, is to weigh little
    plain = World(answers, concurrency, requests, profile, None, k=0).run()
    drafted = World(answers, concurrency, requests, profile, link, price=price).run()
    return Gain(
        concurrency=concurrency,
        rtt_s=link.rtt_s,
        throughput=drafted.tokens / drafted.seconds * plain.seconds / plain.tokens,
        busy=drafted.busy_s / drafted.tokens * plain.tokens / plain.busy_s,
        speed=fmean(drafted.speeds) / fmean(plain.speeds),
        per_step=drafted.tokens / drafted.steps,
        acceptance=drafted.accepted / max(drafted.drafted, 1),
    )


def main() -> int:
    """Prints gains over plain decoding, or writes them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=HERE / "data/traces.jsonl", help="recorded answers")
    parser.add_argument("--step-cost", type=Path, default=H100, help="JSON, seconds by tokens of a step")
    parser.add_argument("--temperature", type=float, default=0.0, help="of the recorded answers to use")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128])
    parser.add_argument("--rtt-steps", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0], help="in plain steps")
    parser.add_argument("--per-token-ms", type=float, default=2.0, help="a node's time for one drafted token")
    parser.add_argument("--candidates", type=int, default=1, help="lines of guesses that a node keeps for a stream")
    parser.add_argument("--wait-price", type=float, default=0.5, help="as of `nexus verifier serve`")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    profile = {int(tokens): seconds for tokens, seconds in json.loads(options.step_cost.read_text()).items()}
    answers = load(options.traces, options.temperature)
    table = Table("concurrency", "RTT, steps", "tokens/s", "busy per token", "request speed", "tokens/step", "accepted")
    gains = []
    for rtt in options.rtt_steps:
        for concurrency in options.concurrency:
            link = Link(rtt * StepCost(profile).seconds(1), options.per_token_ms / 1000, candidates=options.candidates)
            gains.append(found := gain(answers, concurrency, profile, link, options.wait_price))
            table.add_row(
                str(concurrency),
                f"{rtt:g}",
                f"{found.throughput:.2f} x",
                f"{found.busy:.2f} x",
                f"{found.speed:.2f} x",
                f"{found.per_step:.2f}",
                f"{found.acceptance:.0%}",
            )
        table.add_section()
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps([asdict(found) for found in gains], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
