"""vLLM's scheduler with drafts from outside: receive, offer or wait, schedule, publish.

Hooks into `vllm.v1.core.sched.scheduler.Scheduler` (0.32): `add_request`, `schedule`, `update_draft_token_ids`,
`update_from_output`, `finish_requests`, `shutdown`. Everything that can be decided without the engine is in
`cloud.verifier.drafts`.
"""

import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from cloud.verifier.drafts.book import Book, Offer
from cloud.verifier.engine.profile import read_profile
from cloud.verifier.port.curve import Curve
from cloud.verifier.port.server import PortServer
from cloud.verifier.sampling.extras import extras_of
from cloud.verifier.sampling.seed import effective_seed
from cloud.verifier.settings import from_additional_config, rank_address
from shared.draftport.messages import (
    GATEWAY_ARG,
    PROTOCOL,
    STREAM_ARG,
    Attached,
    Closed,
    Counts,
    Opened,
    Resync,
)
from shared.sampling import Sampling


class DraftScheduler(Scheduler):
    """The synchronous scheduler; async scheduling would hand out placeholders before results exist."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        settings = from_additional_config(vllm_config.additional_config)
        rank = vllm_config.parallel_config.data_parallel_index
        self._poll_s = settings.poll_ms / 1000
        self._engine_seed = vllm_config.model_config.seed
        self._book = Book(
            vocabulary=settings.vocabulary,
            cost=read_profile(settings, rank),
            wait_price=settings.wait_price,
            least_gain=settings.least_gain,
        )
        curve = None
        if settings.curve_secret and settings.curve_clients:
            curve = Curve(Path(settings.curve_secret), Path(settings.curve_clients))
        self._port = PortServer(
            rank_address(settings.draft_port, rank),
            Attached(
                verifier=uuid.uuid4().hex,
                protocol=PROTOCOL,
                model=settings.model,
                fingerprint=settings.fingerprint,
                vocabulary=settings.vocabulary,
                max_model_len=self.max_model_len,
                k=self.num_spec_tokens,
                rank=rank,
                counts=Counts(),
                tools=settings.tools,
                effort=settings.effort,
                sampler=settings.sampler,
            ),
            curve,
        )
        self._streams: dict[str, str] = {}
        """Request id -> stream, for requests that name one."""
        self._offers: dict[str, Offer] = {}
        self._step_began = 0.0

    # --- requests come and go ----------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        super().add_request(request)
        stream, gateway = _stream_of(request)
        if stream is None or gateway is None or request.request_id in self._streams or stream in self._book:
            return
        self._streams[request.request_id] = stream
        params = request.sampling_params
        self._book.open(stream, gateway, request.all_token_ids, params.temperature if params else 0.0)
        self._port.opened(stream, gateway)
        self._publish_opened(request, stream)

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[Request]:
        finished: list[Request] = super().finish_requests(request_ids, finished_status)
        for request in finished:
            self._close(request, "aborted")
        return finished

    def shutdown(self) -> None:
        self._port.close()
        super().shutdown()

    def _close(self, request: Request, reason: str) -> None:
        stream = self._streams.pop(request.request_id, None)
        self._offers.pop(request.request_id, None)
        if stream is not None:
            gateway = self._book.gateway(stream)
            self._book.close(stream)
            self._port.closed(stream)
            self._port.publish(gateway, Closed(stream=stream, reason=reason))

    def _publish_opened(self, request: Request, stream: str) -> None:
        params = request.sampling_params
        assert params is not None
        sampling = Sampling(
            temperature=params.temperature,
            top_k=max(0, params.top_k),
            top_p=params.top_p,
            min_p=extras_of(params.extra_args).min_p,
        )
        seed = None if sampling.greedy else effective_seed(params.seed, self._engine_seed, request.request_id)
        self._port.publish(
            self._book.gateway(stream),
            Opened(
                stream=stream,
                tokens=tuple(request.all_token_ids),
                prompt=request.num_prompt_tokens,
                sampling=sampling,
                seed=seed,
                max_tokens=request.max_tokens,
                draftable=True,
            ),
        )

    # --- a step ------------------------------------------------------------------------------

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        self._receive()
        self._offer_or_wait()
        self._step_began = time.monotonic()
        output = super().schedule(*args, **kwargs)
        for request_id, offer in list(self._offers.items()):
            scheduled = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
            self._book.tally.voided += len(offer.tokens) - scheduled
        return output

    def _receive(self) -> None:
        for letter in self._port.mailbox.drain():
            message = letter.message
            if not isinstance(message, Resync):
                self._book.receive(message, letter.came, letter.last)
                continue
            for request_id, stream in self._streams.items():
                if stream == message.stream:
                    self._publish_opened(self.requests[request_id], stream)

    def _offer_or_wait(self) -> None:
        """Gives each decoding request its draft, at once or, where that pays, when more of them have come.

        Waiting goes on over several calls: new requests and cancellations come in outside this method, so that it
        returns now and then with nobody to run.
        """
        began = time.monotonic()
        self._offers.clear()
        ready = {}
        others = sum(self._prefill(request) for request in self.waiting)
        for request in self.running:
            request.spec_token_ids = []
            if limit := self._limit(request):
                ready[self._streams[request.request_id]] = (request, limit)
            else:
                others += self._prefill(request)
        limits = {stream: limit for stream, (_, limit) in ready.items()}
        while True:
            now = time.monotonic()
            plan = self._book.plan(limits, others, now)
            if plan.until is None:
                break
            if now >= began + self._poll_s:
                for request, _ in ready.values():
                    # `current_step` is increased at the start of `schedule`: this one is skipped, the next is not.
                    request.next_decode_eligible_step = self.current_step + 2
                return
            if self._port.mailbox.wait(min(plan.until, began + self._poll_s) - now):
                self._receive()
        self._offers = {ready[stream][0].request_id: offer for stream, offer in plan.offers.items()}
        if self._offers:
            super().update_draft_token_ids(
                DraftTokenIds(list(self._offers), [offer.tokens for offer in self._offers.values()])
            )

    def _limit(self, request: Request) -> int:
        """Most draft tokens that the request can take in this step; 0 if it prefills, ends or is nobody's stream."""
        if request.request_id not in self._streams or request.is_prefill_chunk or request.num_output_tokens == 0:
            return 0
        limit: int = min(
            self.num_spec_tokens,
            self.max_model_len - request.num_tokens - 1,
            request.max_tokens - request.num_output_tokens - 1,
        )
        return max(limit, 0)

    def _prefill(self, request: Request) -> int:
        """Tokens that a request without a draft adds to a step, roughly: one, or a part of its prompt."""
        left: int = min(request.num_tokens - request.num_computed_tokens, self.max_num_scheduled_tokens)
        return max(1, left)

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """The engine's own call after a step, with its proposer's drafts: there are none."""

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        before = {
            request_id: (request, request.num_tokens)
            for request_id in scheduler_output.num_scheduled_tokens
            if request_id in self._streams and (request := self.requests.get(request_id)) is not None
        }
        outputs: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
        now = time.monotonic()
        self._learn(scheduler_output, before, now - self._step_began)
        self._book.tally.steps += any(request.num_tokens > length for request, length in before.values())
        for request_id, (request, length) in before.items():
            stream = self._streams.get(request_id)
            if stream is None:
                continue
            if request.num_tokens > length:
                offer = self._offers.get(request_id)
                # Without an offer, what is scheduled as draft is the engine's own padding of a prefix-cache hit.
                draft = scheduler_output.scheduled_spec_decode_tokens.get(request_id, ()) if offer else ()
                verified = self._book.commit(
                    stream,
                    length,
                    request.all_token_ids[length:],
                    draft=draft,
                    source=offer.source if offer else None,
                    step=self.current_step,
                    step_ms=(now - self._step_began) * 1000,
                    now=now,
                )
                self._port.publish(self._book.gateway(stream), verified)
            if request.is_finished():
                self._close(request, request.status.name.removeprefix("FINISHED_").lower())
        if before:
            self._port.counts = self._book.tally.snapshot()
        return outputs

    def _learn(self, output: SchedulerOutput, before: dict[str, tuple[Request, int]], seconds: float) -> None:
        """Takes a step's duration as evidence of what steps cost, if all of it was decoding."""
        scheduled = output.num_scheduled_tokens
        drafted = output.scheduled_spec_decode_tokens
        if before and all(count == 1 + len(drafted.get(name, ())) for name, count in scheduled.items()):
            self._book.cost.observe(output.total_num_scheduled_tokens, seconds)


def _stream_of(request: Request) -> tuple[str | None, str | None]:
    """Stream and gateway that the request's extra arguments name; choice i of a request is `<stream>/<i>`."""
    params = request.sampling_params
    extra = params.extra_args if params is not None else None
    if not extra:
        return None, None
    stream, gateway = extra.get(STREAM_ARG), extra.get(GATEWAY_ARG)
    if not isinstance(stream, str) or not isinstance(gateway, str):
        return None, None
    choice, _, rest = request.request_id.partition("_")
    if rest and choice.isdecimal() and int(choice) > 0:
        stream = f"{stream}/{int(choice)}"
    return stream, gateway
