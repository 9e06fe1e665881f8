"""Streams: each rule for itself, on streams of both endpoints and of several choices."""

import time
from collections.abc import Iterable
from typing import Any

from cloud.conformance.case import Findings, NotOffered, case
from cloud.conformance.cases.answers import whole_and_streamed
from cloud.conformance.target import Target
from cloud.conformance.transcript import Kind, Rule, Transcript

SCRIPTS = "Repeat exactly: 👩‍💻🏳️‍🌈 日本語の文章 தமிழ் é नमस्ते 한국어"
LIVE_TOKENS = 64
LIVE_S = 0.5
"""An answer that takes less than this tells nothing about when its pieces were sent."""
_USAGE = {"include_usage": True}
_PLAIN: tuple[Kind, dict[str, Any]] = ("chat", {})
_ALL: tuple[tuple[Kind, dict[str, Any]], ...] = (
    _PLAIN,
    ("chat", {"stream_options": _USAGE}),
    ("chat", {"stream_options": {"include_usage": False}}),
    ("chat", {"n": 2}),
    ("completion", {}),
    ("completion", {"stream_options": _USAGE}),
)


async def _streams(target: Target, see: Findings, requests: Iterable[tuple[Kind, dict[str, Any]]]) -> list[Transcript]:
    """Those streams that the server offers; the plain one of chat it must."""
    streams = []
    for kind, changes in requests:
        answer, stream = await target.stream(kind, **changes)
        if answer.status == 404 and kind == "completion":
            continue
        if changes.get("n") and answer.status == 400 and "n" in str(answer.param()):
            continue
        see.ok(answer)
        streams.append(stream)
    if not streams:
        raise NotOffered("no such stream")
    return streams


async def _rule(target: Target, see: Findings, *rules: Rule) -> None:
    streams = await _streams(target, see, _ALL)
    for stream in streams:
        see.must(stream.chunks, "a stream without a chunk")
        see.stream(fault for fault in stream.faults() if fault.rule in rules)
    see.note(f"{len(streams)} streams, {sum(len(stream.chunks) for stream in streams)} chunks")


@case("stream.form")
async def form(target: Target, see: Findings) -> None:
    """A stream is server-sent events, each with one JSON object."""
    await _rule(target, see, "form")


@case("stream.schema")
async def schema(target: Target, see: Findings) -> None:
    """Every chunk has OpenAI's published form, and no fields beyond it that are not documented."""
    await _rule(target, see, "schema")


@case("stream.head")
async def head(target: Target, see: Findings) -> None:
    """`id`, `created` and `model` are the same in all chunks of a stream, and the model is the one asked for."""
    await _rule(target, see, "head")
    _, stream = await target.stream()
    named = {str(chunk.get("model")) for chunk in stream.chunks}
    see.strictly(named <= {target.model}, f"`model` is {sorted(named)}")


@case("stream.role")
async def role(target: Target, see: Findings) -> None:
    """The first chunk of each choice, and no other, gives the role."""
    await _rule(target, see, "role")


@case("stream.finish")
async def finish(target: Target, see: Findings) -> None:
    """`finish_reason` is null until the one chunk that ends a choice, which has an empty delta and is its last."""
    await _rule(target, see, "finish")


@case("stream.done")
async def done(target: Target, see: Findings) -> None:
    """A stream that succeeds ends with one `[DONE]`."""
    await _rule(target, see, "done")


@case("stream.usage")
async def usage(target: Target, see: Findings) -> None:
    """Usage comes when asked for, once, in a last chunk with `choices: []`; before it is null, and else not there."""
    await _rule(target, see, "usage")


@case("stream.characters")
async def characters(target: Target, see: Findings) -> None:
    """No chunk holds half a character, also in scripts whose characters are several tokens."""
    prompt = [{"role": "user", "content": SCRIPTS}]
    for kind, changes in (("chat", {"messages": prompt}), ("completion", {"prompt": SCRIPTS})):
        answer, stream = await target.stream(kind, **changes)  # type: ignore[arg-type]
        if answer.status == 404 and kind == "completion":
            continue
        see.ok(answer)
        see.stream(fault for fault in stream.faults() if fault.rule == "characters")
        whole = see.ok(await target.kept(kind, **changes))  # type: ignore[arg-type]
        see.must(stream.text() == whole.said(), f"streamed {stream.text()!r:.60}, whole {whole.said()!r:.60}")
        see.note(repr(stream.text()[:40]))


@case("stream.equals_whole")
async def equals_whole(target: Target, see: Findings) -> None:
    """The pieces of a stream add up to the whole answer; finish reason and usage are the same."""
    await whole_and_streamed(target, see, "chat")


@case("stream.equals_whole_choices")
async def equals_whole_choices(target: Target, see: Findings) -> None:
    """So do those of each of several choices."""
    see.offered(await target.kept(n=2, temperature=1), "n")
    await whole_and_streamed(target, see, "chat", n=2, temperature=1)


@case("stream.equals_whole_completion")
async def equals_whole_completion(target: Target, see: Findings) -> None:
    """So do those of a text completion."""
    await whole_and_streamed(target, see, "completion")


@case("stream.one_token")
async def one_token(target: Target, see: Findings) -> None:
    """An answer of one token is streamed by the same rules."""
    answer, stream = await target.stream(max_tokens=1, stream_options=_USAGE)
    see.ok(answer)
    see.stream(stream.faults())
    see.must(stream.finish() == "length", f"finish_reason {stream.finish()!r}")
    used = (stream.usage() or {}).get("completion_tokens")
    see.must(used == 1, f"{used} tokens")


@case("stream.live")
async def live(target: Target, see: Findings) -> None:
    """Pieces are sent as they are made, not all at the end."""
    began = time.monotonic()
    first: float | None = None
    async with target.leaving(stream=True, max_tokens=LIVE_TOKENS) as blocks:
        async for block in blocks:
            if first is None and b"data:" in block:
                first = time.monotonic() - began
    took = time.monotonic() - began
    see.need(first is not None, "nothing was streamed")
    assert first is not None
    if took < LIVE_S:
        see.note(f"all of it took {took:.2f} s: too fast to tell")
        return
    see.strictly(first < took / 2, f"the first piece came after {first:.2f} s of {took:.2f} s")
    see.note(f"the first piece came after {first:.2f} s of {took:.2f} s")
