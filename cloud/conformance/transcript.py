"""A streamed answer as it was received, and the rules that hold for every stream."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from cloud.conformance.schemas.judge import Level, problems
from cloud.terminal.sse import SseParser, StreamBroken

Kind = Literal["chat", "completion"]
Rule = Literal["form", "schema", "head", "characters", "usage", "done", "finish", "role", "tools"]
Json = dict[str, Any]
Check = Callable[[str, Any, Level], list[str]]
"""As `judge.problems`."""
DONE = "[DONE]"


def loads(text: str | bytes) -> Any:
    """As `json.loads`, but NaN and infinities are no JSON; raises `ValueError`."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. At level `compatible` an unchanged client stumbles; at `strict` it may not notice."""

    level: Level
    rule: Rule
    text: str


@dataclass
class Transcript:
    """The events of one stream. `complete` is false when the reader left before the end."""

    kind: Kind
    n: int = 1
    include_usage: bool = False
    complete: bool = True
    chunks: list[Json] = field(default_factory=list)
    error: Json | None = None
    dones: int = 0
    broken: list[Fault] = field(default_factory=list)

    @classmethod
    def read(
        cls, body: bytes, kind: Kind, *, n: int = 1, include_usage: bool = False, complete: bool = True
    ) -> "Transcript":
        made = cls(kind, n, include_usage, complete)
        try:
            datas = SseParser().feed(body)
        except StreamBroken as error:
            made._fault("compatible", str(error), "characters")
            return made
        if complete and body.strip() and not body.replace(b"\r\n", b"\n").endswith(b"\n\n"):
            made._fault("compatible", "the last event does not end with an empty line")
        for data in datas:
            made._take(data)
        return made

    def _fault(self, level: Level, text: str, rule: Rule = "form") -> None:
        self.broken.append(Fault(level, rule, text))

    def _take(self, data: str) -> None:
        if self.dones or self.error is not None:
            after = "[DONE]" if self.dones else "the error event"
            self._fault("compatible" if data != DONE else "strict", f"an event follows {after}: {data[:80]}", "done")
        if data == DONE:
            self.dones += 1
            return
        try:
            event = loads(data)
        except ValueError:
            self._fault("compatible", f"an event is no JSON: {data[:80]}")
            return
        if not isinstance(event, dict):
            self._fault("compatible", f"an event is no object: {data[:80]}")
        elif "error" in event:
            self.error = event
        else:
            self.chunks.append(event)

    # --- reading ---

    def choices(self, index: int = 0) -> list[Json]:
        """The choice objects of one choice, in order."""
        return [
            each for chunk in self.chunks for each in _objects(chunk.get("choices")) if each.get("index", 0) == index
        ]

    def text(self, index: int = 0) -> str:
        """What the deltas of one choice add up to."""
        parts = [
            _delta(each).get("content") if self.kind == "chat" else each.get("text") for each in self.choices(index)
        ]
        return "".join(part for part in parts if isinstance(part, str))

    def finish(self, index: int = 0) -> str | None:
        """The finish reason of one choice; none before it is told."""
        return next((each["finish_reason"] for each in self.choices(index) if each.get("finish_reason")), None)

    def usage(self) -> Json | None:
        """The usage that the stream told last."""
        return next((chunk["usage"] for chunk in reversed(self.chunks) if chunk.get("usage")), None)

    # --- rules ---

    def faults(self, check: Check = problems) -> list[Fault]:
        """Everything that is wrong with the stream by the rules of streaming; `check` sees to the schemas."""
        return [*self.broken, *self._schema(check), *self._heads(), *self._usage(), *self._ends(), *self._choices()]

    def _schema(self, check: Check) -> Iterator[Fault]:
        name = "ChatCompletionChunk" if self.kind == "chat" else "CompletionChunk"
        values = [(name, chunk) for chunk in self.chunks]
        if self.error is not None:
            values.append(("Error", self.error))
        seen = set()
        for name, value in values:
            if not (strict := check(name, value, "strict")):
                continue
            loose = check(name, value, "compatible")
            for problem in loose or strict:
                if problem not in seen:
                    seen.add(problem)
                    yield Fault("compatible" if loose else "strict", "schema", f"{name} {problem}")

    def _heads(self) -> Iterator[Fault]:
        for name in ("id", "created", "model"):
            if len({json.dumps(chunk.get(name)) for chunk in self.chunks}) > 1:
                yield Fault("strict", "head", f"`{name}` changes within the stream")
        for chunk in self.chunks:
            if "\ufffd" in json.dumps(chunk, ensure_ascii=False):
                yield Fault("compatible", "characters", "a chunk holds half a character (U+FFFD)")
                return

    def _usage(self) -> Iterator[Fault]:
        places = [place for place, chunk in enumerate(self.chunks) if chunk.get("usage")]
        last = len(self.chunks) - 1
        if not self.include_usage:
            if places:
                yield Fault("strict", "usage", "a chunk carries usage that was not asked for")
            elif any("usage" in chunk for chunk in self.chunks):
                yield Fault("strict", "usage", "chunks carry `usage: null` although usage was not asked for")
            if any(chunk.get("choices") == [] for chunk in self.chunks):
                yield Fault("compatible", "usage", "a chunk without choices although usage was not asked for")
            return
        if any("usage" not in chunk for chunk in self.chunks):
            yield Fault("strict", "usage", "a chunk lacks `usage`, which is null before the last one")
        if not self.complete or self.error is not None:
            return
        if not places:
            yield Fault("compatible", "usage", "usage was asked for and never came")
        elif places != [last]:
            yield Fault("strict" if last in places else "compatible", "usage", "usage is not in the last chunk alone")
        if any((chunk.get("choices") == []) != (place == last) for place, chunk in enumerate(self.chunks)):
            yield Fault("strict", "usage", "the usage chunk, and no other, has `choices: []`")

    def _ends(self) -> Iterator[Fault]:
        if not self.complete:
            return
        if self.error is not None and self.dones:
            yield Fault("strict", "done", "[DONE] comes beside an error event")
        if self.error is None and self.dones != 1:
            yield Fault("compatible" if not self.dones else "strict", "done", f"[DONE] came {self.dones} times")

    def _choices(self) -> Iterator[Fault]:
        indices = {each.get("index") for chunk in self.chunks for each in _objects(chunk.get("choices"))}
        if strange := indices - set(range(self.n)):
            yield Fault("compatible", "finish", f"choices {sorted(map(str, strange))} were not asked for")
        for index in range(self.n):
            yield from self._choice(index, self.choices(index))

    def _choice(self, index: int, parts: list[Json]) -> Iterator[Fault]:
        ends = [place for place, part in enumerate(parts) if part.get("finish_reason") is not None]
        whole = self.complete and self.error is None
        if whole and not ends:
            yield Fault("compatible", "finish", f"choice {index} never gets a finish_reason")
        if len(ends) > 1:
            yield Fault("compatible", "finish", f"choice {index} gets {len(ends)} finish_reasons")
        if ends and ends[0] != len(parts) - 1:
            carries = any(_carries(part) for part in parts[ends[0] + 1 :])
            yield Fault(
                "compatible" if carries else "strict", "finish", f"choice {index} goes on behind its finish_reason"
            )
        if any("finish_reason" not in part for part in parts):
            yield Fault(
                "strict", "finish", f"choice {index}: a chunk lacks finish_reason, which is null before the end"
            )
        if self.kind == "completion":
            return
        if not parts:
            if whole:
                yield Fault("compatible", "role", f"choice {index} has no chunk")
            return
        roles = [place for place, part in enumerate(parts) if _delta(part).get("role")]
        if not roles or roles[0] != 0:
            yield Fault("compatible", "role", f"choice {index}: its first chunk does not give the role")
        elif len(roles) > 1:
            yield Fault("strict", "role", f"choice {index}: the role is given {len(roles)} times")
        if ends and any(value for value in _delta(parts[ends[0]]).values()):
            yield Fault("strict", "finish", f"choice {index}: the chunk with finish_reason has no empty delta")
        elif ends and _delta(parts[ends[0]]):
            yield Fault("strict", "finish", f"choice {index}: the delta of the chunk with finish_reason has keys")
        yield from self._tool_calls(index, parts)

    def _tool_calls(self, index: int, parts: list[Json]) -> Iterator[Fault]:
        """A call's id and name come in its first delta and only there; calls are counted from 0."""
        calls: dict[int, int] = {}
        for part in parts:
            for call in _objects(_delta(part).get("tool_calls")):
                number, function = call.get("index"), call.get("function") or {}
                if not isinstance(number, int):
                    continue
                first = number not in calls
                calls[number] = calls.get(number, 0) + 1
                if first and not (call.get("id") and function.get("name")):
                    yield Fault("compatible", "tools", f"choice {index}: call {number} begins without its id and name")
                if not first and ("id" in call or "name" in function or "type" in call):
                    level: Level = "compatible" if call.get("id") or function.get("name") else "strict"
                    yield Fault(level, "tools", f"choice {index}: call {number} gives id, type or name again")
        if sorted(calls) != list(range(len(calls))):
            yield Fault("compatible", "tools", f"choice {index}: calls are numbered {sorted(calls)}")


def _objects(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _delta(choice: Json) -> Json:
    delta = choice.get("delta")
    return delta if isinstance(delta, dict) else {}


def _carries(choice: Json) -> bool:
    delta = _delta(choice)
    return bool(choice.get("text") or delta.get("content") or delta.get("tool_calls") or choice.get("finish_reason"))
