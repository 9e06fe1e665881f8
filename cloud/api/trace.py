"""Joins a choice's tokens, its visible text and the origin of each token, for `nexus.trace`."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cloud.api.upstream.chunks import Token

GAP_LIMIT = 16
"""How far ahead in the text a token is looked for when its own spelling does not follow at once, characters."""


@dataclass(frozen=True, slots=True)
class TracedToken:
    """`text` is the part of the visible text that the token brought: empty for special or hidden tokens."""

    id: int | None
    text: str
    origin: str


class TraceJoiner:
    """Feed it what arrives, take what is settled. All texts taken, in order, are exactly the text fed."""

    def __init__(self) -> None:
        self._text = ""
        self._pending: deque[Token] = deque()
        self._done: list[TracedToken] = []

    @property
    def seen(self) -> int:
        """Tokens fed so far."""
        return len(self._done) + len(self._pending)

    @property
    def tokens(self) -> Sequence[TracedToken]:
        """Everything settled so far."""
        return self._done

    def feed(self, text: str, tokens: Sequence[Token]) -> None:
        self._text += text
        self._pending.extend(tokens)

    def take(self, origins: Sequence[str], *, final: bool = False) -> list[TracedToken]:
        """Newly settled tokens. Without a known origin a token counts as plain: decoded without drafts."""
        taken: list[TracedToken] = []
        while self._pending:
            text = self._match(self._pending[0].text, final)
            if text is None:
                break
            token = self._pending.popleft()
            if final and not self._pending:
                text, self._text = text + self._text, ""
            place = len(self._done)
            traced = TracedToken(token.id, text, origins[place] if place < len(origins) else "plain")
            self._done.append(traced)
            taken.append(traced)
        return taken

    def _match(self, spelling: str, final: bool) -> str | None:
        """The token's part of the waiting text, cut from it; none = more text has to come first."""
        rest = self._text
        if rest.startswith(spelling):
            taken = spelling
        elif spelling.startswith(rest):
            if not final:
                return None
            taken = rest
        elif (at := rest.find(spelling, 0, GAP_LIMIT + len(spelling))) >= 0:
            taken = rest[: at + len(spelling)]
        else:
            taken = ""
        self._text = rest[len(taken) :]
        return taken


def trace_entries(tokens: Sequence[TracedToken], index: int | None) -> list[dict[str, Any]]:
    """As JSON; `index` names the choice when there are several."""
    choice = {} if index is None else {"index": index}
    return [{**choice, "id": token.id, "text": token.text, "origin": token.origin} for token in tokens]
