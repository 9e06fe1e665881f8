"""Callers that leave, come in crowds, or ask again; and what Nexus adds to an answer."""

import asyncio
import re
from typing import Any

from cloud.conformance.case import Findings, NotOffered, case
from cloud.conformance.target import Answer, Target
from cloud.conformance.transcript import Transcript

GAUGES = ("nexus_open_requests", "vllm:num_requests_running", "sglang:num_running_reqs")
"""Metrics in which servers tell how many requests they work on."""
LONG = 512
"""Output limit of a request that is left, tokens: it must still be running then."""
STOPS_WITHIN_S = 5.0
POLL_S = 0.1
CROWD = 8
SAMPLED: dict[str, Any] = {"temperature": 1, "seed": ..., "max_tokens": 6}
"""A request that two answers can be told apart by."""


async def _running(target: Target) -> float | None:
    """How many requests the server says it works on; none when it does not say."""
    answer = await target.send("GET", target.root("/metrics"))
    for name in GAUGES:
        values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", answer.text, re.MULTILINE)
        if answer.status == 200 and values:
            return sum(map(float, values))
    return None


async def _stops(target: Target, see: Findings, before: float | None) -> None:
    if before is None:
        see.note("the server tells no running requests; it goes on serving")
    else:
        now = await _running(target)
        for _ in range(round(STOPS_WITHIN_S / POLL_S)):
            if now is not None and now <= before:
                break
            await asyncio.sleep(POLL_S)
            now = await _running(target)
        see.must(now is not None and now <= before, f"{now} requests still run after {STOPS_WITHIN_S:g} s")
        see.note(f"{now:g} requests run, as before" if now is not None else "")
    see.ok(await target.ask(max_tokens=1))


@case("cancel.streamed")
async def cancel_streamed(target: Target, see: Findings) -> None:
    """A caller who leaves a stream after its first chunk stops the work on it."""
    before = await _running(target)
    async with target.leaving(stream=True, max_tokens=LONG) as blocks:
        async for block in blocks:
            if b"[DONE]" in block:
                see.note("the answer came before the caller could leave")
            break
    await _stops(target, see, before)


@case("cancel.whole")
async def cancel_whole(target: Target, see: Findings) -> None:
    """So does one who leaves before a whole answer has come."""
    before = await _running(target)
    asked = asyncio.create_task(target.ask(max_tokens=LONG))
    await asyncio.sleep(POLL_S)
    if asked.done():
        see.note("the answer came before the caller could leave")
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await _stops(target, see, before)


@case("callers.crowd")
async def crowd(target: Target, see: Findings) -> None:
    """Answers to requests at the same time do not mix."""
    limits = range(1, CROWD + 1)
    answers = await asyncio.gather(*(target.ask(max_tokens=limit) for limit in limits))
    used = [see.ok(answer).usage("completion_tokens") for answer in answers]
    see.must(used == [*limits], f"limits {[*limits]} give {used} tokens")
    see.must(len({answer.json.get("id") for answer in answers}) == CROWD, "two answers have the same id")


async def _named(target: Target, see: Findings) -> dict[str, str]:
    """A header that names a request, new each time."""
    first = see.ok(await target.ask(max_tokens=1))
    return {"idempotency-key": f"conformance-{first.json.get('id')}"}


@case("callers.idempotency")
async def idempotency(target: Target, see: Findings) -> None:
    """An `Idempotency-Key` replays the same answer to the same body, and is 409 with another one."""
    key = await _named(target, see)
    answers = [await target.ask(headers=key, **SAMPLED) for _ in range(2)]
    ids = [see.ok(answer).json.get("id") for answer in answers]
    other = await target.ask(headers=key, **SAMPLED | {"max_tokens": 7})
    if ids[0] != ids[1] and other.status == 200:
        raise NotOffered("the server does not know Idempotency-Key")
    see.must(ids[0] == ids[1] and answers[0].said() == answers[1].said(), "the answer is not replayed")
    see.error(other, 409, 422)


@case("callers.idempotency_at_once")
async def idempotency_at_once(target: Target, see: Findings) -> None:
    """Two requests with one `Idempotency-Key` at the same time get one answer; a stream is replayed whole."""
    key = await _named(target, see)
    answers = await asyncio.gather(*(target.ask(headers=key, **SAMPLED) for _ in range(2)))
    ids = [see.ok(answer).json.get("id") for answer in answers]
    if ids[0] != ids[1]:
        raise NotOffered("the server does not know Idempotency-Key, or answers both")
    see.must(answers[0].said() == answers[1].said(), "one id, two answers")
    key = await _named(target, see)
    streams = [see.ok(await target.ask(headers=key, stream=True, **SAMPLED)) for _ in range(2)]
    first, second = (Transcript.read(each.body, "chat") for each in streams)
    see.must(first.chunks == second.chunks, "the stream is not replayed")
    see.stream(second.faults())


@case("callers.retry")
async def retry(target: Target, see: Findings) -> None:
    """A retry that the official client marks as one gets the answer that was made already: a lost response is not
    billed twice."""
    body = SAMPLED | {"user": (await _named(target, see))["idempotency-key"]}
    answers = [await target.ask(headers={"x-stainless-retry-count": str(count)}, **body) for count in (0, 1)]
    ids = [see.ok(answer).json.get("id") for answer in answers]
    if ids[0] != ids[1]:
        raise NotOffered("a marked retry is a request like any other")
    see.must(answers[0].said() == answers[1].said(), "one id, two answers")


def _figures(answer: Answer) -> dict[str, Any]:
    figures = answer.json.get("nexus") if isinstance(answer.json, dict) else None
    if not isinstance(figures, dict):
        raise NotOffered("no `nexus` object: not a Nexus server")
    return figures


@case("nexus.figures")
async def figures(target: Target, see: Findings) -> None:
    """The `nexus` object: drafted, accepted, verify steps, seed in force; the seed repeats the answer."""
    answer = see.ok(await target.ask(temperature=1, seed=...))
    told = _figures(answer)
    missing = {"drafted", "accepted", "verify_steps", "seed", "nodes"} - set(told)
    see.strictly(not missing, f"{sorted(missing)} are missing")
    see.strictly(told.get("accepted", 0) <= told.get("drafted", 0), "more accepted than drafted")
    again = see.ok(await target.ask(temperature=1, seed=told.get("seed")))
    see.strictly(again.said() == answer.said(), "the seed that it tells does not repeat the answer")


@case("nexus.trace")
async def trace(target: Target, see: Findings) -> None:
    """`nexus.trace` tells the origin of every token; the texts are exactly the answer's."""
    _figures(await target.kept())
    answer = see.ok(await target.ask(nexus={"trace": True}))
    traced = _figures(answer).get("trace") or []
    told = "".join(str(token.get("text")) for token in traced)
    see.strictly(told == answer.said(), f"traced {told!r:.40}, answer {answer.said()!r:.40}")
    stream_answer, stream = await target.stream(nexus={"trace": True})
    see.ok(stream_answer)
    last = (stream.chunks[-1].get("nexus") or {}).get("trace") if stream.chunks else None
    see.strictly("".join(str(token.get("text")) for token in last or []) == stream.text(), "the stream's trace differs")
    see.stream(stream.faults())


@case("nexus.cost")
async def cost(target: Target, see: Findings) -> None:
    """`x-nexus-cost` and `nexus.cost` tell the same amount, in dollars as a decimal number."""
    answer = see.ok(await target.kept())
    told, header = _figures(answer).get("cost"), answer.headers.get("x-nexus-cost")
    if told is None and header is None:
        raise NotOffered("no cost is told")
    see.strictly(told == header, f"header {header!r}, body {told!r}")
    see.strictly(re.fullmatch(r"\d+(\.\d+)?", str(told)), f"cost {told!r} is no decimal number")
