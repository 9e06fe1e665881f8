"""Servers whose streams or cuts are wrong."""

from support.broken.kinds import (
    COMPATIBLE,
    COUNT,
    STRICT,
    Broken,
    ask_by,
    choice,
    chunk,
    delta,
    doubled,
    entries,
    everywhere,
    finish_with_text,
    finishes,
    leak,
    lost,
    part,
    said,
    short_stop,
    stops,
    stream,
    usage,
    usage_anyway,
    usage_place,
)
from support.defects import Defect, every_choice, every_chunk, patched, without

STREAMS: list[Broken] = [
    ("stream.form", COMPATIBLE, "no JSON", stream(lambda found: [*found[:1], "hello", *found[1:]])),
    ("stream.form", COMPATIBLE, "a list", stream(lambda found: [*found[:1], "[]", *found[1:]])),
    ("stream.schema", STRICT, "one field more", part(stop_reason=None)),
    ("stream.schema", COMPATIBLE, "empty lists of calls", delta(lambda d: {**d, "tool_calls": []})),
    ("stream.schema", COMPATIBLE, "no index", part(index=...)),
    ("stream.schema", COMPATIBLE, "the object of a whole answer", chunk(object="chat.completion")),
    ("stream.head", STRICT, "ids change", Defect(stream=every_chunk(lambda c: {**c, "id": f"x{next(COUNT)}"}))),
    ("stream.head", STRICT, "times change", Defect(stream=every_chunk(lambda c: {**c, "created": 1 + next(COUNT)}))),
    ("stream.head", STRICT, "another model", chunk(model="other")),
    ("stream.role", COMPATIBLE, "none", delta(lambda d: patched(d, role=...))),
    ("stream.role", STRICT, "in every chunk", delta(lambda d: {"role": "assistant", **d} if d else d)),
    ("stream.finish", COMPATIBLE, "never", part(finish_reason=None)),
    ("stream.finish", COMPATIBLE, "always", part(finish_reason="stop")),
    (
        "stream.finish",
        COMPATIBLE,
        "twice",
        stream(lambda f: [each for event in f for each in [event] * (1 + finishes(event))]),
    ),
    ("stream.finish", STRICT, "with the last text", stream(finish_with_text)),
    (
        "stream.finish",
        STRICT,
        "not null before",
        Defect(stream=every_choice(lambda c: c if c["finish_reason"] else patched(c, finish_reason=...))),
    ),
    ("stream.finish", STRICT, "an empty text at the end", delta(lambda d: d or {"content": ""})),
    (
        "stream.finish",
        STRICT,
        "an empty chunk behind it",
        stream(
            lambda f: [
                y
                for e in f
                for y in (
                    [e, {**e, "choices": [{**c, "finish_reason": None} for c in e["choices"]]}] if finishes(e) else [e]
                )
            ]
        ),
    ),
    ("stream.done", COMPATIBLE, "none", stream(lambda found: found[:-1])),
    ("stream.done", STRICT, "two", stream(lambda found: [*found, "[DONE]"])),
    ("stream.done", COMPATIBLE, "too early", stream(lambda found: ["[DONE]", *found[:-1]])),
    ("stream.usage", STRICT, "null unasked", Defect(stream=every_chunk(lambda c: {"usage": None, **c}))),
    (
        "stream.usage",
        STRICT,
        "not null before",
        Defect(stream=every_chunk(lambda c: c if c.get("usage") else patched(c, usage=...))),
    ),
    (
        "stream.usage",
        COMPATIBLE,
        "never",
        stream(lambda f: [e for e in f if not isinstance(e, dict) or not e.get("usage")]),
    ),
    ("stream.usage", STRICT, "with the end of the choice", stream(usage_place)),
    ("stream.usage", STRICT, "with every chunk", stream(everywhere)),
    ("stream.usage", COMPATIBLE, "an empty chunk unasked", stream(lambda f: [*f[:-1], {**f[0], "choices": []}, f[-1]])),
    (
        "stream.characters",
        COMPATIBLE,
        "replaced",
        Defect(raw=lambda _, raw: (raw[0], raw[1], raw[2].replace("京".encode(), "\ufffd".encode()))),
    ),
    (
        "stream.characters",
        COMPATIBLE,
        "cut",
        Defect(
            raw=lambda _, raw: (
                raw[0],
                raw[1],
                raw[2].replace("東".encode(), b"\xe6\x9d") if b"data:" in raw[2] else raw[2],
            )
        ),
    ),
    (
        "stream.characters",
        COMPATIBLE,
        "dropped",
        Defect(
            raw=lambda _, raw: (
                raw[0],
                raw[1],
                raw[2].replace("\u200d".encode(), b"") if b"data:" in raw[2] else raw[2],
            )
        ),
    ),
    ("stream.usage", COMPATIBLE, "not asked for in so many words", ask_by(usage_anyway)),
    ("stream.equals_whole", COMPATIBLE, "a chunk is lost", Defect(stream=lost)),
    ("stream.equals_whole", COMPATIBLE, "a chunk comes twice", Defect(stream=doubled)),
    (
        "stream.equals_whole",
        COMPATIBLE,
        "another end",
        Defect(stream=every_choice(lambda c: {**c, "finish_reason": c["finish_reason"] and "content_filter"})),
    ),
    (
        "stream.equals_whole",
        COMPATIBLE,
        "another count",
        Defect(stream=every_chunk(lambda c: {**c, "usage": c.get("usage") and {**c["usage"], "completion_tokens": 1}})),
    ),
    (
        "stream.equals_whole_choices",
        COMPATIBLE,
        "choices are mixed up",
        Defect(stream=every_choice(lambda c: {**c, "index": 1 - c["index"]})),
    ),
    ("stream.equals_whole_completion", COMPATIBLE, "a chunk is lost", Defect(stream=lost)),
    (
        "stream.one_token",
        COMPATIBLE,
        "it says stop",
        Defect(stream=every_choice(lambda c: {**c, "finish_reason": c["finish_reason"] and "stop"})),
    ),
    ("stream.one_token", COMPATIBLE, "only [DONE]", stream(lambda found: found[-1:])),
    ("stop.string", COMPATIBLE, "ignored", Defect(request=without("stop"))),
    ("stop.string", COMPATIBLE, "not cut off", said(lambda given, text: text + "".join(stops(given)[:1]))),
    ("stop.string", COMPATIBLE, "one character early", said(lambda given, text: text[:-1] if stops(given) else text)),
    ("stop.string", COMPATIBLE, "it says length", choice(finish_reason="length")),
    ("stop.spans_tokens", COMPATIBLE, "only within a token", ask_by(short_stop)),
    (
        "stop.earliest",
        COMPATIBLE,
        "only the first is looked for",
        ask_by(lambda g: {**g, "stop": stops(g)[:1] or None}),
    ),
    ("stop.at_once", COMPATIBLE, "never empty", said(lambda given, text: text or " ")),
    ("stop.at_once", COMPATIBLE, "not when streamed", ask_by(lambda g: patched(g, stop=...) if g.get("stream") else g)),
    ("stop.absent", COMPATIBLE, "held back for ever", said(lambda given, text: text[:-4] if stops(given) else text)),
    ("stop.streamed", COMPATIBLE, "its beginning is sent", Defect(stream=leak)),
    ("stop.streamed", COMPATIBLE, "ignored", ask_by(lambda g: patched(g, stop=...) if g.get("stream") else g)),
    ("stop.billing", COMPATIBLE, "all is counted", usage(completion_tokens=32)),
    ("stop.billing", COMPATIBLE, "all entries are told", entries(lambda found: found * 4)),
]
