"""One choice of an answer, as the caller sees it: what each piece from the verifier adds, streamed or not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cloud.api.openai.calls import Call, Calls, ToldCall
from cloud.api.openai.job import Job
from cloud.api.openai.visible import VisibleTokens
from cloud.api.upstream.chunks import Delta, Finish, Token


@dataclass(frozen=True, slots=True)
class Part:
    """What is new for the caller; `tokens` are the visible ones, asked for or not."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToldCall, ...] = ()
    tokens: tuple[Token, ...] = ()


NOTHING = Part()


@dataclass(frozen=True, slots=True)
class Whole:
    """All parts of a choice together; `text` is none when there are only calls."""

    text: str | None
    reasoning: str
    calls: Sequence[Call]
    tokens: Sequence[Token]
    reason: str


class Choice:
    """`feed` gives parts; all of them together are the `whole` answer, however the engine cut it into chunks."""

    def __init__(self, index: int, job: Job) -> None:
        self.index = index
        self.reason: str | None = None
        self._tools = job.tools
        self._top = job.top_logprobs
        self._visible = VisibleTokens(job.stops)
        self._calls = Calls(parallel=job.tools is None or job.tools.parallel)
        self._blank: str | None = "" if job.tools is not None else None
        """White space that belongs to the text if text follows, and to nothing if a call does; none within a text."""
        self._keep = not job.stream
        self._parts: list[Part] = []

    def feed(self, delta: Delta) -> Part:
        """What the caller is told now."""
        calls = self._calls.feed(delta.calls) if delta.calls else ()
        text = self._text(delta.text, ended=delta.end is not None)
        if calls:
            self._blank = ""
        if delta.end is None:
            tokens = self._visible.feed(delta.tokens)
        else:
            tokens = self._visible.end(delta.tokens, delta.end, delta.text)
            calls += self._calls.end(whole=delta.end.reason != "length")
            self.reason = self._reason(delta.end)
        if self._top is not None:
            tokens = [_likeliest(token, self._top) for token in tokens]
        part = Part(text, delta.reasoning, calls, tuple(tokens))
        if self._keep:
            self._parts.append(part)
        return part

    def whole(self) -> Whole:
        """Everything so far as one; of an answer that is not streamed."""
        text = "".join(part.text for part in self._parts)
        return Whole(
            text=None if self._calls.told and not text else text,
            reasoning="".join(part.reasoning for part in self._parts),
            calls=self._calls.told,
            tokens=[token for part in self._parts for token in part.tokens],
            reason=self.reason or "stop",
        )

    def _text(self, new: str, *, ended: bool) -> str:
        if self._blank is None:
            return new
        text = self._blank + new
        if text.isspace() or not text:
            self._blank = "" if ended else text
            return text if ended and not self._calls.told else ""
        self._blank = None
        return text

    def _reason(self, end: Finish) -> str:
        """A call that was not forced by name ends with `tool_calls`, as OpenAI documents it."""
        if end.reason not in ("stop", "tool_calls"):
            return end.reason
        called = self._calls.told and self._tools is not None and not self._tools.named
        return "tool_calls" if called else "stop"


def _likeliest(token: Token, count: int) -> Token:
    """The engine lists the token itself first, likely or not."""
    return replace(token, top=tuple(sorted(token.top, key=lambda each: -each[1])[:count]))
