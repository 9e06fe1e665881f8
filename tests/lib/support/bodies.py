"""Strategies for request bodies: right ones, nearly right ones, and bytes that only look like one."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

MODEL = "tiny"
Json = Any
Path = tuple[str | int, ...]

TEXT = st.text(max_size=30) | st.sampled_from(
    ["", " ", "\x00", "\u2028", "e\u0301", "👩‍💻", "தமிழ்", "\u202e", "\ufeff", "\ud7ff", "a" * 5000, "%s{}\\"]
)
NAME = st.from_regex(r"\A[A-Za-z0-9_-]{1,12}\Z")
NUMBER = st.integers(-3, 200) | st.floats(-3, 3, allow_nan=False)
SCHEMA = st.recursive(
    st.sampled_from([{"type": "string"}, {"type": "integer"}, {"enum": ["a", 1, None]}, {}]),
    lambda inner: (
        st.builds(lambda key, each: {"type": "object", "properties": {key: each}}, NAME, inner)
        | st.builds(lambda each: {"type": "array", "items": each}, inner)
    ),
    max_leaves=4,
)
PART = st.builds(lambda text: {"type": "text", "text": text}, TEXT)
CALL = st.builds(
    lambda id_, name, text: {"id": id_, "type": "function", "function": {"name": name, "arguments": text}},
    NAME,
    NAME,
    TEXT,
)
MESSAGE = st.one_of(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "developer", "user"]),
            "content": TEXT | st.lists(PART, min_size=1, max_size=3),
        },
        optional={"name": NAME},
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": TEXT | st.none()},
        optional={"tool_calls": st.lists(CALL, max_size=2), "refusal": st.none(), "reasoning_content": TEXT},
    ),
    st.fixed_dictionaries({"role": st.just("tool"), "content": TEXT, "tool_call_id": NAME}),
)
TOOL = st.builds(
    lambda name, schema, strict: {
        "type": "function",
        "function": {"name": name, "parameters": schema, "strict": strict},
    },
    NAME,
    SCHEMA,
    st.booleans() | st.none(),
)
NEXUS = st.fixed_dictionaries(
    {},
    optional={
        "privacy": st.sampled_from(["verifier_only", "any"]),
        "nodes": st.booleans(),
        "max_draft_tokens": st.integers(0, 256),
        "max_wait_ms": st.floats(0, 60_000),
        "trace": st.booleans(),
    },
)
COMMON: dict[str, st.SearchStrategy[Json]] = {
    "stream": st.booleans(),
    "max_tokens": st.integers(1, 64),
    "max_completion_tokens": st.integers(1, 64),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.01, 1),
    "top_k": st.integers(-1, 50),
    "min_p": st.floats(0, 1),
    "repetition_penalty": st.floats(0.1, 2),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "logit_bias": st.dictionaries(st.integers(0, 99).map(str), st.floats(-100, 100), max_size=4),
    "stop": st.text(min_size=1, max_size=4) | st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=4),
    "seed": st.integers(0, 2**53),
    "n": st.integers(1, 3),
    "ignore_eos": st.booleans(),
    "user": TEXT,
    "nexus": NEXUS,
}
CHAT = st.fixed_dictionaries(
    {"model": st.just(MODEL), "messages": st.lists(MESSAGE, min_size=1, max_size=4)},
    optional={
        **COMMON,
        "logprobs": st.booleans(),
        "top_logprobs": st.integers(0, 20),
        "metadata": st.dictionaries(NAME, TEXT, max_size=3),
        "store": st.just(False),
        "tools": st.lists(TOOL, max_size=3),
        "tool_choice": st.sampled_from(["none", "auto", "required"])
        | NAME.map(lambda name: {"type": "function", "function": {"name": name}}),
        "parallel_tool_calls": st.booleans(),
        "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}])
        | SCHEMA.map(lambda each: {"type": "json_schema", "json_schema": {"name": "a", "schema": each}}),
        "reasoning_effort": st.sampled_from(["none", "low", "high"]),
    },
)
COMPLETION = st.fixed_dictionaries(
    {"model": st.just(MODEL), "prompt": TEXT | st.lists(st.integers(0, 99), min_size=1, max_size=8)},
    optional={**COMMON, "logprobs": st.integers(0, 5), "echo": st.just(False), "best_of": st.just(1)},
)
STRANGE: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, -1e-308, -0.0, 0.5]),
    TEXT,
    st.lists(st.integers(), max_size=3),
    st.sampled_from([[], {}, [[]], [{}], {"": ""}, {"type": None}, [None], {"$ref": "#"}, "null", "true", "1"]),
    st.recursive(st.none() | st.booleans() | NUMBER | TEXT, lambda each: st.lists(each, max_size=3), max_leaves=6),
    st.recursive(TEXT, lambda each: st.dictionaries(TEXT, each, max_size=3), max_leaves=6),
    st.integers(2, 400).map(lambda depth: json.loads("[" * depth + "]" * depth)),
    st.integers(2, 200).map(lambda depth: json.loads('{"a":' * depth + "1" + "}" * depth)),
    st.integers(100, 20_000).map(lambda length: [1] * length),
    st.integers(100, 3000).map(lambda length: {str(number): number for number in range(length)}),
)
"""Values of any kind, for any place."""


def places(body: Json, so_far: Path = ()) -> Iterator[Path]:
    """Every place inside of a body."""
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in items:
        yield (*so_far, key)
        yield from places(value, (*so_far, key))


def _container(body: Json, path: Path) -> Json:
    for key in path[:-1]:
        body = body[key]
    return body


@st.composite
def nearly(draw: st.DrawFn, bodies: st.SearchStrategy[Json]) -> Json:
    """A right body in which one to three things are not."""
    body = json.loads(json.dumps(draw(bodies)))
    for _ in range(draw(st.integers(1, 3))):
        known = list(places(body))
        if not known:
            break
        path = draw(st.sampled_from(known))
        place = _container(body, path)
        match draw(st.sampled_from(["replace", "replace", "remove", "add", "wrap", "borrow"])):
            case "replace":
                place[path[-1]] = draw(STRANGE)
            case "remove":
                del place[path[-1]]
            case "add" if isinstance(place, dict):
                place[draw(TEXT)] = draw(STRANGE)
            case "wrap":
                place[path[-1]] = [place[path[-1]]]
            case "borrow":
                other = draw(st.sampled_from(known))
                place[path[-1]] = json.loads(json.dumps(_value(body, other)))
    return body


def _value(body: Json, path: Path) -> Json:
    for key in path:
        try:
            body = body[key]
        except (KeyError, IndexError, TypeError):
            return None
    return body


def _twice(text: str, key: str) -> str:
    return "{" + json.dumps(key) + ": 1, " + text[1:] if text.startswith("{") and len(text) > 2 else text


@st.composite
def spelled(draw: st.DrawFn, bodies: st.SearchStrategy[Json]) -> bytes:
    """A body as bytes, right or in one of many ways not."""
    body = draw(bodies)
    text = json.dumps(body, ensure_ascii=draw(st.booleans()))
    encoded = text.encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 13)):
        case 0:
            return encoded[: draw(st.integers(0, len(encoded)))]
        case 1:
            key = draw(st.sampled_from([*body] or ["a"])) if isinstance(body, dict) else "a"
            return _twice(text, key).encode("utf-8", "surrogatepass")
        case 2:
            return encoded.replace(
                b":", draw(st.sampled_from([b": NaN, ", b": Infinity, ", b"=", b":\xff", b": 01"])), 1
            )
        case 3:
            return b"\xef\xbb\xbf" + encoded
        case 4:
            at = draw(st.integers(0, len(encoded)))
            return encoded[:at] + draw(st.binary(min_size=1, max_size=6)) + encoded[at:]
        case 5:
            return text.encode("utf-16", "surrogatepass")
        case 6:
            return encoded + draw(st.sampled_from([b"}", b"{}", b"\x00", b" , ", b"\n" * 1000, encoded]))
        case 7:
            return draw(st.binary(max_size=60))
        case 8:
            return json.dumps(draw(STRANGE)).encode()
        case 9:
            depth = draw(st.sampled_from([50, 300, 5000, 200_000]))
            return b'{"model": "tiny", "messages": ' + b"[" * depth + b"]" * depth + b"}"
        case 10:
            return b'{"model": "tiny", "seed": ' + b"9" * draw(st.sampled_from([20, 400, 5000, 100_000])) + b"}"
        case 11:
            return json.dumps(body).replace("e", "\\u0065").replace("a", "\\ud800", 1).encode()
    return encoded
