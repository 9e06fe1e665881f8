"""The compatibility table: every request parameter, on which endpoint, with which values, and whose it is."""

import re
from typing import Any

from pydantic import BaseModel

from cloud.api.openai.chat import ChatRequest
from cloud.api.openai.completions import CompletionRequest
from cloud.api.openapi.parameters import EXTENSIONS, PARAMETERS, STRUCTURE
from cloud.api.openapi.words import words

Json = dict[str, Any]


def parameters(document: Json) -> str:
    """Markdown; one row for each field of a request, and one for each that is not supported yet."""
    chat, text = (_properties(document, name) for name in ("ChatRequest", "CompletionRequest"))
    rows = ["| parameter | chat | text | values | |", "|---|---|---|---|---|"]
    known = sorted({*chat, *text} & set(PARAMETERS), key=lambda name: (name not in STRUCTURE, name))
    for name in known:
        values = dict.fromkeys(words(each[name]) for each in (chat, text) if name in each)
        whose = " Not OpenAI's." if name in EXTENSIONS else ""
        marks = ["yes" if name in each else "no" for each in (chat, text)]
        told = PARAMETERS[name] + whose
        rows.append(f"| `{name}` | {' | '.join(marks)} | {_unlinked('; '.join(values))} | {told} |")
    for name in sorted(not_yet(ChatRequest) | not_yet(CompletionRequest)):
        each = chat.get(name) or text[name]
        marks = ["not yet" if name in side else "no" for side in (chat, text)]
        neutral = [value for value in each["enum"] if value is not None]
        told = "Accepted with a value that asks for nothing; else 400." if neutral else "400."
        rows.append(f"| `{name}` | {' | '.join(marks)} | {words(each) if neutral else ''} | {told} |")
    return "\n".join(rows)


def not_yet(model: type[BaseModel]) -> set[str]:
    """Parameters that are known and refused unless they ask for nothing."""
    return set(getattr(model, "NOT_YET", {}))


def _properties(document: Json, name: str) -> Json:
    found: Json = document["components"]["schemas"][name]["properties"]
    return found


def _unlinked(text: str) -> str:
    """This page has no sections that the names could lead to."""
    return re.sub(r"\[(`\w+`)\]\(#\w+\)", r"\1", text)
