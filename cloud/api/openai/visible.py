"""Which of a choice's tokens the caller sees: those of its text, not its end, and not what a stop string hides."""

from collections import deque
from collections.abc import Sequence

from cloud.api.upstream.chunks import Finish, Token


class VisibleTokens:
    """Feed it a choice's tokens in order; what it gives back will stay visible, whatever comes.

    A stop string may begin in any of the last characters, and everything from the token that it begins with on is
    hidden; a token that is visible in part counts as visible. So tokens are held back as long as the engine holds back
    their text. Which token ends the choice is the engine's to decide: nothing is looked for before it says so.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._reach = max(map(len, stops), default=0) - 1
        """Most characters of what has come that may belong to a stop string; -1 when there are none."""
        self._held: deque[Token] = deque()
        self._held_length = 0
        self._before = ""
        """The end of the spellings given back: a stop string may begin inside of them."""

    def feed(self, tokens: Sequence[Token]) -> list[Token]:
        """The tokens that can be told now."""
        self._hold(tokens)
        released: list[Token] = []
        while self._held and self._held_length > self._reach:
            released.append(self._release())
        return released

    def end(self, tokens: Sequence[Token], finish: Finish, text: str) -> list[Token]:
        """The last tokens, which came with the end and with `text`: the visible ones of all that are left."""
        self._hold(tokens)
        if finish.reason == "length":
            shown = len(self._held)
        elif isinstance(finish.stopped_by, str):
            shown = self._shown_before(finish.stopped_by)
        else:
            shown = len(self._held) - (not self._held or not _ends_with(text, self._held[-1]))
        return list(self._held)[: max(0, shown)]

    def _shown_before(self, stop: str) -> int:
        """How many of the held tokens begin before `stop`, which the last one completes."""
        text = self._before + "".join(token.text for token in self._held)
        last = len(text) - len(self._held[-1].text) if self._held else len(text)
        cut = text.find(stop, max(0, last - len(stop) + 1))
        if cut < 0:  # spelled otherwise than it reads, as with a special token in between
            return len(self._held) - 1
        at, shown = len(self._before), 0
        for token in self._held:
            if at >= cut:
                break
            at += len(token.text)
            shown += 1
        return shown

    def _hold(self, tokens: Sequence[Token]) -> None:
        self._held.extend(tokens)
        self._held_length += sum(len(token.text) for token in tokens)

    def _release(self) -> Token:
        token = self._held.popleft()
        self._held_length -= len(token.text)
        if self._reach > 0:
            self._before = (self._before + token.text)[-self._reach :]
        return token


def _ends_with(text: str, token: Token) -> bool:
    """The token that ends a text is not in it."""
    return bool(token.text) and text.endswith(token.text)
