"""Tool calls of one choice, from the deltas of the engine's parser to those of OpenAI's API."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from cloud.api.upstream.chunks import CallDelta

_ENGINE_PREFIX = "chatcmpl-tool-"
"""What the engine's own made-up ids begin with; some models spell ids themselves, and need them back as they are."""


@dataclass(slots=True)
class Call:
    """One call; `place` counts the calls of the choice."""

    id: str
    name: str | None = None
    place: int = -1
    arguments: list[str] = field(default_factory=list)
    told: int = 0
    """How many parts of the arguments have been told."""

    def text(self) -> str:
        return "".join(self.arguments)


@dataclass(frozen=True, slots=True)
class ToldCall:
    """What a chunk says of a call: `opening` with its id and name, only the first time."""

    place: int
    arguments: str
    opening: tuple[str, str] | None = None


class Calls:
    """A call is told from its name on, once, in the order in which names come; a call without a name is none."""

    def __init__(self, *, parallel: bool) -> None:
        self._parallel = parallel
        self._by_index: dict[int, Call] = {}
        self.told: list[Call] = []
        """The calls that there are for the caller."""

    def feed(self, deltas: Iterable[CallDelta]) -> tuple[ToldCall, ...]:
        """What to tell now, each call at most once."""
        touched: dict[int, None] = {}
        for delta in deltas:
            call = self._by_index.get(delta.index)
            if call is None:
                call = self._by_index[delta.index] = Call(_id(delta.id))
            if call.name is None and delta.name is not None:
                call.name = delta.name
                touched.pop(delta.index, None)  # its place is that of its name, not of what came before
            if delta.arguments:
                call.arguments.append(delta.arguments)
            touched[delta.index] = None
        said = (self._say(self._by_index[index]) for index in touched)
        return tuple(each for each in said if each is not None)

    def end(self, *, whole: bool) -> tuple[ToldCall, ...]:
        """What is left to tell. A call without arguments has the empty object, if the answer is `whole`: arguments must
        be JSON."""
        rest = []
        for call in self.told:
            if whole and not call.text().strip():
                call.arguments.append("{}")
                rest.append(ToldCall(call.place, "{}"))
        return tuple(rest)

    def _say(self, call: Call) -> ToldCall | None:
        if call.name is None:
            return None
        opening = None
        if call.place < 0:
            if self.told and not self._parallel:
                return None
            call.place = len(self.told)
            self.told.append(call)
            opening = (call.id, call.name)
        new = "".join(call.arguments[call.told :])
        call.told = len(call.arguments)
        return ToldCall(call.place, new, opening) if new or opening else None


def _id(given: str | None) -> str:
    if not given:
        return "call_" + secrets.token_hex(12)
    return "call_" + given[len(_ENGINE_PREFIX) :][:24] if given.startswith(_ENGINE_PREFIX) else given
