"""Text on a terminal: answers coloured by the origin of each token, and their figures."""

import re
from collections.abc import Mapping
from typing import Final, TextIO

from cloud.terminal.answer import Figures, Piece

ORIGINS: Final[dict[str, tuple[str, str]]] = {
    "accepted": ("32", "drafted and accepted"),
    "corrected": ("33", "corrected by the target model"),
    "bonus": ("36", "bonus: free after a full match"),
    "plain": ("", "decoded without a draft"),
}
"""Origin of a token → colour (SGR code) and what it means."""
DIM, BOLD, RED = "2", "1", "31"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def wants_colour(out: TextIO, asked: bool | None, environ: Mapping[str, str]) -> bool:
    """What was asked for, else colour on a terminal unless NO_COLOR (no-color.org) or TERM=dumb is set."""
    if asked is not None:
        return asked
    return out.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class Painter:
    """Writes to one stream; without colour every style is plain text."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self.colour = colour

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and style and text else text

    def write(self, text: str, style: str = "") -> None:
        """Shows it at once. A model's text cannot move the cursor or change the terminal."""
        self._out.write(self.styled(_CONTROL.sub("", text), style))
        self._out.flush()

    def raw(self, text: str) -> None:
        """Our own text with cursor movements."""
        self._out.write(text)
        self._out.flush()

    def line(self, text: str = "", style: str = "") -> None:
        self.write(text + "\n" if not style else text, style)
        if style:
            self.write("\n")

    def legend(self) -> str:
        """What the colours mean; empty without colour."""
        if not self.colour:
            return ""
        return "  ".join(self.styled(f"■ {meaning}", style) for style, meaning in ORIGINS.values())


class AnswerPrinter:
    """Prints one answer as it arrives: by origin when the gateway tells it, else as plain text."""

    def __init__(self, painter: Painter, *, traced: bool) -> None:
        self._painter = painter
        self._traced = traced
        self._shown = 0
        self.text = ""
        """The answer so far."""

    def feed(self, piece: Piece) -> None:
        self.text += piece.text
        if not self._traced:
            self._painter.write(piece.text)
            return
        for token in piece.traced:
            self._shown += len(token.text)
            self._painter.write(token.text, ORIGINS.get(token.origin, ("", ""))[0])

    def finish(self) -> None:
        """Prints what no token has claimed, and ends the line."""
        if self._traced:
            self._painter.write(self.text[self._shown :])
        if not self.text.endswith("\n"):
            self._painter.write("\n")


def figures_table(figures: Figures | None, tokens: int | None, wall_s: float) -> list[str]:
    """The figures of an answer, a line each."""
    rows = [("tokens", _count(tokens))]
    if figures is not None:
        rows.append(("verify steps", str(figures.verify_steps)))
        rows.append(("tokens per step", _ratio(figures, tokens)))
        rows.append(("acceptance", _acceptance(figures)))
    rows.append(("wall time", f"{wall_s:.1f} s" + (f" ({tokens / wall_s:.1f} tokens/s)" if tokens and wall_s else "")))
    return [f"  {name:<16} {value}" for name, value in rows]


def figures_line(figures: Figures | None, tokens: int | None, wall_s: float) -> str:
    """The same in one line."""
    parts = [f"{_count(tokens)} tokens in {wall_s:.1f} s"]
    if figures is not None:
        parts += [f"{_ratio(figures, tokens)} tokens per verify step", f"acceptance {_acceptance(figures)}"]
    return " · ".join(parts)


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _ratio(figures: Figures, tokens: int | None) -> str:
    if figures.tokens_per_step is not None:
        return f"{figures.tokens_per_step:.2f}"
    return f"{tokens / figures.verify_steps:.2f}" if tokens and figures.verify_steps else "?"


def _acceptance(figures: Figures) -> str:
    if figures.acceptance is None:
        return "no drafts"
    return f"{figures.acceptance:.0%} ({figures.accepted} of {figures.drafted} drafted tokens)"
